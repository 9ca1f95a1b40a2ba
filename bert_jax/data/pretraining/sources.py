"""Batches for pretraining, each a pure function of the step.

The global batch of a step is a range of positions in an endless sequence of epochs. Each epoch has all examples, in an
order computed from the seed (`shuffling.py`). So the step number is the only state, a host reads only its own rows, and
the number of hosts may change between runs.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.prefetching import ALL_ROWS, Rows
from bert_jax.data.pretraining.prepared import PreparedInstances, give_equal_room
from bert_jax.data.pretraining.shuffling import ShuffledRows
from bert_jax.errors import InputError
from bert_jax.storage import PathLike
from bert_jax.tokenization import Tokenizer


class PretrainingSource:
    """Endless shuffled batches, with new masks in every epoch; see PreparedInstances for the other arguments.

    From an object store, blocks of rows are fetched ahead, which takes the memory of two shuffle windows
    (`shuffling.WINDOW_BLOCKS`), or of this host's share of them.

    Args:
        batch_size: rows of a step's batch, over all hosts.

    Attributes:
        num_examples: examples in an epoch.
        steps_per_epoch: whole steps in an epoch; epochs follow one another without a gap, so a batch may hold the end
            of one epoch and the beginning of the next.
    """

    def __init__(
        self, prepared_dir: PathLike, split: str, seq_length: int, batch_size: int, *, seed: int = 0, **options
    ):
        self.instances = PreparedInstances(prepared_dir, split, seq_length, seed=seed, **options)
        self.batch_size = _checked_batch_size(batch_size)
        self._order = ShuffledRows(self.instances.reader.block_starts, self.batch_size, seed)
        self._blocks: dict[int, np.ndarray] = {}  # window -> the blocks that the rows of this host need
        self._lock = threading.Lock()

    @property
    def num_examples(self) -> int:
        return len(self.instances)

    @property
    def steps_per_epoch(self) -> int:
        return max(1, self.num_examples // self.batch_size)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.instances.tokenizer

    @property
    def fetches_blocks(self) -> bool:
        """Whether `prefetch` makes reading faster."""
        return self.instances.reader.fetches_blocks

    def batch(self, step: int, rows: Rows = ALL_ROWS) -> Batch:
        """Return the rows (all of them by default) of the batch of `step`, as `PreparedInstances.batch` does."""
        batch_rows = np.arange(self.batch_size)[rows]
        self.prefetch(step, step, batch_rows)
        return self.rows(step, batch_rows)

    def rows(self, steps: int | np.ndarray, batch_rows: np.ndarray) -> Batch:
        """Return these rows of the batch of one step, or each of its own step's batch."""
        return self.instances.batch(*self._order.rows(steps * self.batch_size + batch_rows))

    def prefetch(self, first_step: int, last_step: int, batch_rows: np.ndarray) -> None:
        """Start fetching the blocks that these rows of the batches need, in these steps and in the next window.

        Several devices of a host request rows of the same step, so blocks that other devices need are kept.
        """
        if not self.fetches_blocks or not len(batch_rows):
            return
        with self._lock:
            windows = self._order.windows_ahead(first_step, last_step)
            needed = {w: self._order.blocks(w, batch_rows) for w in windows}
            self._blocks = {w: np.union1d(self._blocks.get(w, blocks), blocks) for w, blocks in needed.items()}
            self.instances.reader.prefetch(np.concatenate(list(self._blocks.values())).tolist())


class RepeatedRow:
    """Batches that repeat one row, to find the shapes of a run whose data are not prepared yet.

    Attributes:
        num_examples, steps_per_epoch, tokenizer: as of PretrainingSource.
    """

    num_examples = steps_per_epoch = 1

    def __init__(self, row: Mapping[str, Any], batch_size: int, tokenizer: Tokenizer):
        arrays = {name: np.asarray(value) for name, value in row.items()}
        self._row = {name: a.astype(np.float32 if a.dtype.kind == "f" else np.int32) for name, a in arrays.items()}
        self._batch_rows, self.tokenizer = np.arange(batch_size), tokenizer

    def batch(self, step: int, rows: Rows = ALL_ROWS) -> Batch:
        """Return the row, repeated for each of `rows`."""
        return {name: np.repeat(array[None], len(self._batch_rows[rows]), axis=0) for name, array in self._row.items()}


class PretrainingEvalSource:
    """Batches of every example once, in order, always with the same masks; see PreparedInstances for other arguments.

    The last batch is padded with rows whose weights (`example_weights`, `masked_weights`) are 0.

    Args:
        prepared_dirs: a prepared directory, or several, whose examples follow one another.
        batch_size: rows of a batch, over all hosts.
        max_examples: use only this number, spread evenly over the split; None for all.
    """

    def __init__(
        self,
        prepared_dirs: PathLike | Sequence[PathLike],
        split: str,
        seq_length: int,
        batch_size: int,
        *,
        seed: int = 0,
        max_examples: int | None = None,
        **options,
    ):
        directories = prepared_dirs if isinstance(prepared_dirs, (list, tuple)) else (prepared_dirs,)
        self._parts = [PreparedInstances(each, split, seq_length, seed=seed, **options) for each in directories]
        give_equal_room(self._parts)
        self.batch_size = _checked_batch_size(batch_size)
        self._starts = np.cumsum([0, *map(len, self._parts)])
        total = int(self._starts[-1])
        self.num_examples = total if max_examples is None else min(total, max_examples)
        self._examples = np.arange(self.num_examples) * total // self.num_examples

    @property
    def num_batches(self) -> int:
        return -(-self.num_examples // self.batch_size)

    def batch(self, step: int, rows: Rows = ALL_ROWS) -> Batch:
        """Return the rows of batch `step`, from 0 to num_batches - 1, as `PreparedInstances.batch` does."""
        if not 0 <= step < self.num_batches:
            raise IndexError(f"expected a batch from 0 to {self.num_batches - 1}, found {step}")
        positions = step * self.batch_size + np.arange(self.batch_size)[rows]
        real = positions < self.num_examples
        batch = self._read(self._examples[np.where(real, positions, 0)])
        for name in ("example_weights", "masked_weights", "target_counts"):
            if name in batch:
                batch[name] *= real.reshape(-1, *[1] * (batch[name].ndim - 1))
        return batch

    def _read(self, examples: np.ndarray) -> Batch:
        owners = np.searchsorted(self._starts, examples, side="right") - 1
        parts = []
        for number in np.unique(owners).tolist():
            places = np.flatnonzero(owners == number)
            within = examples[places] - self._starts[number]
            parts.append((places, self._parts[number].batch(within, np.zeros(len(within), np.int64))))
        return interleave(parts)


def interleave(parts: Sequence[tuple[np.ndarray, Batch]]) -> Batch:
    """Join batches with the same arrays; each comes with the positions of its rows in the joined batch."""
    if len(parts) == 1:
        return parts[0][1]
    order = np.argsort(np.concatenate([places for places, _ in parts]))
    return {name: np.concatenate([batch[name] for _, batch in parts])[order] for name in parts[0][1]}


def _checked_batch_size(batch_size: int) -> int:
    if batch_size < 1:
        raise InputError(f"batch size: expected at least 1, found {batch_size}")
    return batch_size
