"""Stages of a pretraining run, one after the other: a curriculum, such as length 128 and then 512."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.prefetching import ALL_ROWS, Rows, Source
from bert_jax.data.pretraining.manifest import Manifest
from bert_jax.errors import InputError
from bert_jax.tokenization import Tokenizer

_COUNTED_LABELS = 20_000  # masked tokens counted to find the most frequent


class StagedSource:
    """Several sources one after the other, as one source.

    A source begins at its own step 0, so stages that read the same examples should have different seeds.

    Args:
        stages: (number of steps, source) of each stage; the last may be endless (None).

    Raises:
        InputError: there is no stage, or a stage has no steps.
    """

    def __init__(self, stages: Sequence[tuple[int | None, Source]]):
        counts = [count for count, _ in stages]
        if not stages or any(count is None for count in counts[:-1]) or any(c is not None and c < 1 for c in counts):
            raise InputError(f"stages: expected at least 1 step in every stage, found {counts}")
        self.stages = tuple(stages)
        self._starts = np.cumsum([0, *(count or 0 for count in counts[:-1])])

    @property
    def num_steps(self) -> int | None:
        """The number of steps of all stages; None when the last stage is endless."""
        last = self.stages[-1][0]
        return None if last is None else int(self._starts[-1]) + last

    def stage(self, step: int) -> int:
        """Return the number of the stage that `step` belongs to."""
        if step < 0 or (self.num_steps is not None and step >= self.num_steps):
            raise IndexError(f"step {step} is not one of {self.num_steps} steps")
        return int(np.searchsorted(self._starts, step, side="right")) - 1

    def batch(self, step: int, rows: Rows = ALL_ROWS) -> Batch:
        """Return the batch of the stage that `step` belongs to; its shape changes from stage to stage."""
        stage = self.stage(step)
        return self.stages[stage][1].batch(step - int(self._starts[stage]), rows)

    def steps_by_shape(self, num_steps: int) -> dict[int, int]:
        """Return the first step of each stage -> its number of steps in a run of `num_steps`."""
        counts = [num_steps if count is None else count for count, _ in self.stages]
        return dict(zip(self._starts.tolist(), counts, strict=True))

    def first(self) -> Any:
        """Return the source of the first stage."""
        return self.stages[0][1]


def check_agreement(manifests: Mapping[str, Manifest], tokenizer: Tokenizer, vocabulary: str = "") -> str:
    """Return the objective of the prepared directories of a run's stages, which must agree.

    Args:
        manifests: directory -> its manifest, in the order of the stages.
        tokenizer: the tokenizer of the run.
        vocabulary: the name of the tokenizer in messages; "": the first directory, from which it comes.

    Raises:
        InputError: the directories differ in objective, or one was prepared with another tokenizer.
    """
    first = next(iter(manifests))
    objective = manifests[first].objective
    for directory, manifest in manifests.items():
        if manifest.objective != objective:
            raise InputError(f"{directory}: expected objective {objective}, as in {first}, found {manifest.objective}")
        if manifest.tokenizer_fingerprint != tokenizer.fingerprint:
            expected = vocabulary or first
            raise InputError(f"{directory}: expected examples in the vocabulary of {expected}, found another")
    return objective


def most_frequent_label(source: StagedSource) -> int:
    """Return the most frequent masked id in the first training batches: the baseline of masked-LM accuracy."""
    first = source.first()
    counts = np.zeros(first.tokenizer.vocab_size, np.int64)
    for step in range(first.steps_per_epoch):
        batch = first.batch(step)
        counts += np.bincount(batch["masked_labels"][batch["masked_weights"] > 0], minlength=len(counts))
        if counts.sum() >= _COUNTED_LABELS:
            break
    return int(counts.argmax())
