"""Open the prepared data of a pretraining recipe, by stages."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import recipes
from bert_jax.config import BertConfig
from bert_jax.data.diffusion import EVALUATION
from bert_jax.data.pretraining.manifest import TOKENIZER_DIR, Manifest
from bert_jax.data.pretraining.mixtures import MixedSource
from bert_jax.data.pretraining.sources import PretrainingEvalSource, PretrainingSource
from bert_jax.data.pretraining.stages import StagedSource, check_agreement
from bert_jax.errors import InputError
from bert_jax.tasks import fingerprints, setup
from bert_jax.tasks.base import AbstractTask, Job, Stage
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class PretrainingData:
    """The prepared directories that a recipe names, checked to agree with each other.

    Attributes:
        recipe: the resolved recipe.
        directories: the directories of each stage; a mixture has several.
        objective: nsp, sop or mlm (`bert_jax.data.pretraining.instances`).
        tokenizer: the tokenizer of the recipe, else of the data.
    """

    recipe: Any
    directories: tuple[tuple[str, ...], ...]
    objective: str
    tokenizer: Tokenizer

    @classmethod
    def of(cls, recipe: Any) -> "PretrainingData":
        """Open the data of a resolved recipe. Raises InputError when they are missing or inconsistent."""
        directories = tuple(_prepared(recipe, length) for _, length, _ in recipes.stages(recipe))
        manifests = {directory: Manifest.read(directory) for stage in directories for directory in stage}
        tokenizer = setup.tokenizer(recipe, data=f"{directories[0][0]}/{TOKENIZER_DIR}")
        vocabulary = f"config.tokenizer {recipe.tokenizer!r}" if recipe.tokenizer else ""
        objective = check_agreement(manifests, tokenizer, vocabulary)
        return cls(recipe, directories, objective, tokenizer)

    def fingerprint(self, config: BertConfig) -> dict[str, Any]:
        """Return what a resumed run compares (`Job.data`)."""
        return fingerprints.of_prepared(self.tokenizer, config, self.directories)

    def train_source(self, config: BertConfig) -> StagedSource:
        """Return the training batches of all stages. Raises InputError when they are too long for the model."""
        recipe, stages = self.recipe, []
        check_lengths(recipe, config)
        for i, (count, length, batch_size) in enumerate(recipes.stages(recipe)):
            # Each stage starts with its first example, so it needs its own seed of order and masks.
            options = _masking(recipe, recipe.seed + i, config)
            sources = {
                directory: PretrainingSource(directory, "train", length, batch_size, **options)
                for directory in self.directories[i]
            }
            source = _mixed(recipe, i, sources) if recipe.data.mixture else sources[self.directories[i][0]]
            stages.append((count if recipe.stages else None, source))
        return StagedSource(stages)

    def eval_source(self, config: BertConfig) -> PretrainingEvalSource | None:
        """Return the held-out batches, with one sequence length for the whole run so that losses are comparable."""
        recipe = self.recipe
        length = recipe.data.eval_sequence_length or max(recipes.stages(recipe))[1]
        setup.check_length(length, config, "config.data.eval_sequence_length")
        directories = [each for each in _prepared(recipe, length) if Manifest.read(each).lengths("validation")]
        if not directories:
            return None
        most = recipe.data.eval_batches * recipe.eval_batch_size or None
        options = _masking(recipe, recipe.seed, config, evaluated=True)
        return PretrainingEvalSource(
            directories, "validation", length, recipe.eval_batch_size, max_examples=most, **options
        )


def describe_mixtures(data: PretrainingData, source: StagedSource, steps: int) -> tuple[str, ...]:
    """Return a line for the mixture of each stage: the share of each directory, and its epochs in the stage."""
    lines = []
    for number, (count, part) in enumerate(source.stages, 1):
        if isinstance(part, MixedSource):
            columns = data.directories[number - 1], part.mixture.shares, part.epochs(count or steps)
            parts = (f"{name} {share:.1%} ({epochs:.3g} epochs)" for name, share, epochs in zip(*columns, strict=True))
            lines.append(f"mixture of stage {number}: {', '.join(parts)}")
    return tuple(lines)


def _mixed(recipe: Any, stage: int, sources: Mapping[str, PretrainingSource]) -> MixedSource:
    """Return the mixture of a stage, with the weights that the recipe gives."""
    data, sizes = recipe.data, np.array([source.num_examples for source in sources.values()], float)
    if weights := data.mixture_weights:
        return MixedSource(sources, weights[stage] if isinstance(weights[0], tuple) else weights)
    if data.mixture_epochs:
        weights = sizes * data.mixture_epochs
        return MixedSource(sources, weights, num_examples=round(weights.sum()))
    return MixedSource(sources, (sizes / sizes.max()) ** (1 / data.mixture_temperature))


def num_steps(recipe: Any, source: StagedSource) -> int:
    """Return the optimizer steps of a run, from num_steps or from num_epochs."""
    per_epoch = source.first().num_examples / recipe.global_batch_size
    return recipe.num_steps or setup.steps_of_epochs(recipe.num_epochs, per_epoch)


def check_lengths(recipe: Any, config: BertConfig) -> None:
    """Raise InputError when the sequences of a stage are longer than the model's positions."""
    for _, length, _ in recipes.stages(recipe):
        setup.check_length(length, config, "config.stages" if recipe.stages else "config.data.sequence_length")


def abstract_pretraining_task(recipe: Any, job: Job) -> AbstractTask:
    """Return the abstract task of a job with its data."""
    assert isinstance(job.train_source, StagedSource)
    return AbstractTask(job.task, job.init_params, abstract_stages(recipe, job.train_source, job.num_steps))


def abstract_stages(recipe: Any, source: StagedSource | None, steps: int, pairs: bool = False) -> tuple[Stage, ...]:
    """The stages of a run of so many steps: of the data in `source`, or of unpacked rows where there are none.

    Args:
        recipe: the resolved recipe.
        source: training batches whose shapes are used; None means unpacked rows.
        steps: number of steps of a run without stages.
        pairs: whether unpacked rows have labels of pairs.
    """
    stages = recipes.stages(recipe)
    rows: list[Mapping[str, Any]]
    if source is not None:
        rows = [part.batch(0, slice(0, 1)) for _, part in source.stages]
    else:
        rows = [_row(length, _predictions(recipe, length), pairs) for _, length, _ in stages]
        if "noise_schedule" in recipe.data:
            rows = [{**row, "target_counts": row["example_weights"]} for row in rows]
    return tuple(
        Stage.of_rows(count if recipe.stages else steps, size, row)
        for (count, _, size), row in zip(stages, rows, strict=True)
    )


def _predictions(recipe: Any, length: int) -> int:
    """Return the most predictions in an unpacked row of `length` tokens."""
    if "noise_schedule" in recipe.data:
        return length
    return recipe.data.max_predictions or math.ceil(recipe.data.mask_prob * length)


def _row(length: int, predictions: int, pairs: bool) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shapes of an unpacked row of `PreparedInstances.batch`."""

    def array(dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((1, *shape), dtype)

    return {
        **{name: array(jnp.int32, length) for name in ("input_ids", "attention_mask", "token_type_ids")},
        **{name: array(jnp.int32, predictions) for name in ("masked_positions", "masked_labels")},
        "masked_weights": array(jnp.float32, predictions),
        "example_weights": array(jnp.float32),
        **({"next_sentence_labels": array(jnp.int32)} if pairs else {}),
    }


def has_data(recipe: Any) -> bool:
    """Return whether a recipe names prepared directories."""
    return bool(recipe.data.prepared or recipe.data.mixture)


def _prepared(recipe: Any, length: int) -> tuple[str, ...]:
    """Return the prepared directories of a stage with sequences of `length` tokens."""
    if not has_data(recipe):
        raise InputError("config.data.prepared: expected a directory made by `bert-jax prepare`, found nothing")
    directories = recipe.data.mixture or (recipe.data.prepared,)
    return tuple(directory.replace("{sequence_length}", str(length)) for directory in directories)


def _masking(recipe: Any, seed: int, config: BertConfig, evaluated: bool = False) -> dict[str, Any]:
    data = recipe.data
    if "noise_schedule" in data:
        noise = EVALUATION if evaluated else (data.noise_schedule, data.noise_weighting)
        return {"noise": noise, "static_masks": data.static_masks, "seed": seed, "config": config}
    return {
        "max_predictions": data.max_predictions or None,
        "mask_prob": data.mask_prob,
        "mask_unit": data.mask_unit,
        "hidden_share": data.hidden_share,
        "random_share": data.random_share,
        "static_masks": data.static_masks,
        "seed": seed,
        "config": config,
    }
