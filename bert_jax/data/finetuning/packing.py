"""Pack several fine-tuning examples into one row, in batches of one shape; report how full the rows are."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.features import Packable
from bert_jax.data.packing import best_fit, count_within, pack_examples


class PackedSource:
    """Shuffled batches of packed rows, without end; `batch` is a pure function of (seed, step).

    Which lengths share a row is settled once, by best fit of all examples in random order. Each epoch deals the
    examples of a length anew to the places that there are for it and shuffles the rows, so it holds each example
    exactly once. Its last batch is filled with rows of padding.
    """

    def __init__(self, features: Packable, batch_size: int, row_length: int, pad_id: int, seed: int):
        self._features, self.batch_size, self._row_length = features, batch_size, row_length
        self._fills, self._seed = {"input_ids": pad_id, **features.token_fills}, seed
        longest_first = np.sort(features.lengths)[::-1]
        rows = best_fit(longest_first, row_length, np.random.default_rng(seed).permutation(len(features)))
        self._places = np.concatenate(rows)  # among the examples from the longest to the shortest, row after row
        self._sizes = np.array([len(row) for row in rows])
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._plan = functools.lru_cache(maxsize=2)(self._make_plan)  # as in `TrainSource`

    @property
    def num_examples(self) -> int:
        """Examples in an epoch."""
        return len(self._features)

    @property
    def num_rows(self) -> int:
        """Rows in an epoch."""
        return len(self._sizes)

    @property
    def steps_per_epoch(self) -> int:
        """Batches in an epoch, the one that is not full included."""
        return -(-self.num_rows // self.batch_size)

    def batch(self, step: int, rows: slice | np.ndarray = slice(None)) -> Batch:
        """The rows `rows` of the global batch of `step`, as `pack_examples` makes them of what `features.pad` does."""
        examples, order = self._plan(step // self.steps_per_epoch)
        at = step % self.steps_per_epoch * self.batch_size + np.arange(self.batch_size)[rows]
        row = order[np.minimum(at, self.num_rows - 1)]
        sizes = np.where(at < self.num_rows, self._sizes[row], 0)
        number = np.repeat(np.arange(len(row)), sizes)
        index = examples[self._places[self._starts[row][number] + count_within(number)]]
        apart = self._features.pad(index, int(self._features.lengths[index].max(initial=1)), self._fills["input_ids"])
        return pack_examples(apart, number, len(row), self._row_length, int(self._sizes.max()), self._fills)

    def _make_plan(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The examples from the longest to the shortest, those of a length in random order; and the rows in theirs."""
        random = np.random.default_rng([self._seed, epoch])
        shuffled = random.permutation(self.num_examples)
        longest_first = np.argsort(-self._features.lengths[shuffled], kind="stable")
        return shuffled[longest_first], random.permutation(self.num_rows)


def is_token(batch: Batch) -> jax.Array:
    """Return bool `[B, S]`: which tokens are not padding."""
    return batch["segment_ids" if "segment_ids" in batch else "attention_mask"] > 0


def packing(batch: Batch) -> tuple[jax.Array, jax.Array]:
    """The fraction of a batch that is not padding, as (sum, count)."""
    tokens = is_token(batch)
    return tokens.sum(dtype=jnp.float32), jnp.float32(tokens.size)
