"""Batches of tokenised examples in memory, padded to a few static lengths.

Every distinct batch shape costs a compilation and every padding token costs arithmetic, so a batch is made of rows of
similar length and padded to one of a few lengths that are chosen from the data.
"""

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.features import Paddable


def choose_buckets(
    lengths: np.ndarray, limit: int, *, most: int = 6, multiple: int = 8, least_gain: float = 0.02
) -> tuple[int, ...]:
    """Choose the padded lengths (buckets) that need the least padding.

    The choice is optimal, by dynamic programming over the histogram of `lengths`. A length is added only while it saves
    `least_gain` of the tokens, since it also costs a compilation.

    Args:
        lengths: int [n], tokens of each sequence.
        limit: the maximum length of a sequence, in tokens.
        most: the maximum number of padded lengths.
        multiple: the padded lengths, except the limit, are multiples of this number.
        least_gain: the share of all tokens, padding included, that one more length must save.
    """
    counts = np.bincount(-(-np.asarray(lengths) // multiple))
    total, top = np.cumsum(counts), len(counts) - 1
    # cost[k][j]: minimum padded size of all sequences of up to j multiples, with k lengths of which the longest is j.
    cost = [np.where(np.arange(top + 1) == 0, 0.0, np.inf)]
    came_from = []
    for k in range(1, most + 1):
        step = cost[-1][:, None] + (total[None, :] - total[:, None]) * np.arange(top + 1)
        step[np.tril_indices(top + 1)] = np.inf
        came_from.append(step.argmin(0))
        cost.append(step.min(0))
        if k > 1 and cost[k][top] > (1 - least_gain) * cost[k - 1][top]:
            came_from.pop()
            break
    buckets, j = [], top
    for previous in reversed(came_from):
        buckets.append(min(int(j) * multiple, limit))
        j = previous[j]
    return tuple(reversed(buckets))


def few_buckets(lengths: np.ndarray, limit: int) -> tuple[int, ...]:
    """Choose at most three padded lengths, for rows that are used once or a few times.

    Compiling one more shape takes as long as hundreds of such rows.
    """
    return choose_buckets(lengths, limit, most=3, least_gain=0.1)


def buckets_of(given: tuple[int, ...], lengths: np.ndarray, limit: int) -> tuple[int, ...]:
    """Return the padded lengths `given` in a recipe, plus one for longer texts; choose them where none are given."""
    if not given:
        return choose_buckets(lengths, limit)
    longest = int(lengths.max())
    return (*sorted(set(given)), *((longest,) if longest > max(given) else ()))


class TrainSource:
    """Endless shuffled batches of rows of similar length; `batch` is a pure function of (seed, step).

    Each epoch is a seeded permutation of the examples. The examples are distributed to buckets by length; each bucket
    is cut into batches, and its remainder joins the next longer bucket. So every epoch has the same number of batches
    of each shape and holds each example exactly once. The only incomplete batch (in the longest bucket) is padded with
    rows of weight 0. Then the order of the batches is shuffled.
    """

    def __init__(self, features: Paddable, batch_size: int, buckets: Sequence[int], pad_id: int, seed: int):
        self.features, self.batch_size, self.buckets = features, batch_size, tuple(buckets)
        self._pad_id, self._seed = pad_id, seed
        self._bucket_of = np.searchsorted(self.buckets, features.lengths)
        # Two epochs are cached: a prefetching reader alternates between them at the end of an epoch.
        self._plan = functools.lru_cache(maxsize=2)(self._make_plan)
        self._values: Callable[[int, int], Mapping[str, float]] = lambda step, num_steps: {}
        self._num_steps = 0

    def with_values(self, values: Callable[[int, int], Mapping[str, float]], num_steps: int = 0) -> Self:
        """Return this source with further float32 arrays `[B]` in each batch, filled with the values for the step and
        the number of steps of the run."""
        changed = self.in_run(num_steps)
        changed._values = values
        return changed

    def in_run(self, num_steps: int) -> Self:
        """Return this source for a run of `num_steps` of its batches."""
        changed = copy.copy(self)
        changed._num_steps = num_steps
        return changed

    def resized(self, batch_size: int, buckets: Sequence[int]) -> "TrainSource":
        """Return a source of the same rows with another batch size and other buckets."""
        changed = TrainSource(self.features, batch_size, buckets, self._pad_id, self._seed)
        changed._values, changed._num_steps = self._values, self._num_steps
        return changed

    @property
    def num_examples(self) -> int:
        """The number of examples in an epoch."""
        return len(self.features)

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch, including an incomplete one."""
        return -(-len(self.features) // self.batch_size)

    def batch(self, step: int, rows: slice | np.ndarray = slice(None)) -> Batch:
        """Return the rows `rows` of the global batch of `step`, padded to the length of the global batch."""
        index, lengths = self._plan(step // self.steps_per_epoch)
        at = step % self.steps_per_epoch
        batch = self.pad(index[at][rows], lengths[at])
        more = self._values(step, self._num_steps)
        return batch | {name: np.full(len(batch["example_weights"]), value, np.float32) for name, value in more.items()}

    def pad(self, index: np.ndarray, bucket: int) -> Batch:
        """Return the batch of the examples `index`, padded to the length `bucket`, one of `buckets`."""
        return self.features.pad(index, bucket, self._pad_id)

    def shapes(self) -> dict[int, int]:
        """Return padded length -> number of batches of that length in an epoch."""
        values, counts = np.unique(self._plan(0)[1], return_counts=True)
        return dict(zip(values.tolist(), counts.tolist(), strict=True))

    def steps_by_shape(self, num_steps: int) -> dict[int, int]:
        """Return, for each padded length, its first step -> its number of steps in a run of `num_steps`."""
        lengths, epoch = self._plan(0)[1], self.steps_per_epoch
        return {lengths.index(length): round(num_steps * count / epoch) for length, count in self.shapes().items()}

    def _make_plan(self, epoch: int) -> tuple[np.ndarray, list[int]]:
        """Return the example index of each row `[steps, B]` (-1 is padding) and the padded length of each batch."""
        random = np.random.default_rng([self._seed, epoch])
        order = random.permutation(len(self.features))
        buckets = self._bucket_of[order]
        batches, lengths, left = [], [], np.empty(0, order.dtype)
        for number, length in enumerate(self.buckets):
            pool = np.concatenate([left, order[buckets == number]])
            full = len(pool) // self.batch_size
            batches.append(pool[: full * self.batch_size].reshape(full, self.batch_size))
            lengths += [length] * full
            left = pool[full * self.batch_size :]
        if len(left):
            batches.append(np.pad(left, (0, self.batch_size - len(left)), constant_values=-1)[None])
            lengths.append(self.buckets[-1])
        shuffled = random.permutation(len(lengths))
        return np.concatenate(batches)[shuffled], [lengths[i] for i in shuffled]


class EvalSource:
    """Batches of all examples exactly once, sorted by length; the last batch is padded with rows of weight 0.

    Attributes:
        num_batches: the number of batches.
        order: int64 `[n]`, the example at each position; `original[order] = np.concatenate(outputs)[:n]` restores the
            original order.
    """

    def __init__(self, features: Paddable, batch_size: int, buckets: Sequence[int], pad_id: int):
        self._features, self._batch_size, self._pad_id = features, batch_size, pad_id
        self.order = np.argsort(features.lengths, kind="stable")
        self.num_batches = -(-len(features) // batch_size)
        longest = int(features.lengths.max())
        self._buckets = (*buckets, *((longest,) if longest > buckets[-1] else ()))

    @property
    def num_examples(self) -> int:
        """The number of examples in all batches."""
        return len(self._features)

    def batch(self, i: int, rows: slice | np.ndarray = slice(None)) -> Batch:
        """Return the rows `rows` of batch `i`."""
        index = self.order[i * self._batch_size : (i + 1) * self._batch_size]
        length = self._buckets[int(np.searchsorted(self._buckets, self._features.lengths[index[-1]]))]
        index = np.pad(index, (0, self._batch_size - len(index)), constant_values=-1)
        return self._features.pad(index[rows], length, self._pad_id)

    def restore(self, outputs: Sequence[np.ndarray]) -> np.ndarray:
        """Concatenate per-batch outputs `[B, ...]` to one array `[n, ...]` in the order of the file."""
        together = np.concatenate(outputs)[: len(self.order)]
        original = np.empty_like(together)
        original[self.order] = together
        return original
