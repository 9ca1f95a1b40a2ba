"""Pack several fine-tuning examples into one row, in batches of one shape."""

import functools

import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.features import Packable
from bert_jax.data.packing import best_fit, count_within, pack_examples


class PackedSource:
    """Endless shuffled batches of packed rows; `batch` is a pure function of (seed, step).

    Which lengths share a row is determined once, by best fit of all examples in random order. In each epoch, the
    examples of each length are assigned to the slots of that length at random, and the rows are shuffled, so an epoch
    has each example exactly once. Its last batch is padded with empty rows.
    """

    def __init__(self, features: Packable, batch_size: int, row_length: int, pad_id: int, seed: int):
        self._features, self.batch_size, self._row_length = features, batch_size, row_length
        self._fills, self._seed = {"input_ids": pad_id, **features.token_fills}, seed
        longest_first = np.sort(features.lengths)[::-1]
        rows = best_fit(longest_first, row_length, np.random.default_rng(seed).permutation(len(features)))
        self._places = np.concatenate(rows)  # ranks of examples by descending length, row after row
        self._sizes = np.array([len(row) for row in rows])
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._plan = functools.lru_cache(maxsize=2)(self._make_plan)  # as in `TrainSource`

    @property
    def num_examples(self) -> int:
        """The number of examples in an epoch."""
        return len(self._features)

    @property
    def num_rows(self) -> int:
        """The number of packed rows in an epoch."""
        return len(self._sizes)

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch, including an incomplete one."""
        return -(-self.num_rows // self.batch_size)

    def batch(self, step: int, rows: slice | np.ndarray = slice(None)) -> Batch:
        """Return the rows `rows` of the global batch of `step`: the arrays of `features.pad`, packed."""
        examples, order = self._plan(step // self.steps_per_epoch)
        at = step % self.steps_per_epoch * self.batch_size + np.arange(self.batch_size)[rows]
        row = order[np.minimum(at, self.num_rows - 1)]
        sizes = np.where(at < self.num_rows, self._sizes[row], 0)
        number = np.repeat(np.arange(len(row)), sizes)
        index = examples[self._places[self._starts[row][number] + count_within(number)]]
        apart = self._features.pad(index, int(self._features.lengths[index].max(initial=1)), self._fills["input_ids"])
        return pack_examples(apart, number, len(row), self._row_length, int(self._sizes.max()), self._fills)

    def steps_by_shape(self, num_steps: int) -> dict[int, int]:
        """Return, for each batch shape, its first step -> its number of steps, as `TrainSource` does."""
        return {0: num_steps}

    def _make_plan(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the examples by descending length, with ties in random order, and the rows in random order."""
        random = np.random.default_rng([self._seed, epoch])
        shuffled = random.permutation(self.num_examples)
        longest_first = np.argsort(-self._features.lengths[shuffled], kind="stable")
        return shuffled[longest_first], random.permutation(self.num_rows)
