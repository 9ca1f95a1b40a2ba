"""Mixtures: several prepared directories as one source, each with its share of every batch.

A directory's share is an arc of a circle of slots. In each step the rows of the batch lie on the circle at even
distances, and from step to step all move on by the same stride, which is near the golden ratio of the circle. So in
each batch a directory has its share of the rows to within one, and each row of the batch draws from it in its share of
the steps to within a few. The circle has a finite number of slots, so a closed form gives how often a row of the
batch has drawn from a directory before any step, and the step number remains the only state.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.prefetching import ALL_ROWS, Rows
from bert_jax.data.pretraining.prepared import give_equal_room
from bert_jax.data.pretraining.sources import PretrainingSource, interleave
from bert_jax.errors import InputError
from bert_jax.tokenization import Tokenizer

_SLOTS = 1 << 16  # slots of the circle
_STRIDE = 40_503  # _SLOTS / golden ratio, and odd: every slot is visited once in _SLOTS steps
_GOLDEN = (math.sqrt(5) - 1) / 2


class Mixture:
    """The directory from which each row of each batch comes.

    Args:
        weights: at most 1,000 numbers of at least 0, not all 0; they are rounded to multiples of 1 / 65,536 of their
            sum, but not to 0.
        batch_size: B, rows of a step's batch, over all hosts.

    Attributes:
        shares: float64 [directories], the rounded weights, whose sum is 1.
    """

    def __init__(self, weights: Sequence[float], batch_size: int):
        sizes = _arcs(np.asarray(weights, np.float64))
        self.shares = sizes / _SLOTS
        # The directory of each slot, in the order of visits.
        owner = np.repeat(np.arange(len(sizes)), sizes)[np.arange(_SLOTS) * _STRIDE % _SLOTS]
        self._owner = owner
        self._visits = [np.flatnonzero(owner == directory) for directory in range(len(sizes))]
        spread = next(n for n in range(round(_GOLDEN * batch_size), 2 * batch_size) if math.gcd(n, batch_size) == 1)
        slots = np.arange(batch_size) * spread % batch_size * _SLOTS // batch_size  # adjacent rows take distant slots
        self._phases = slots * pow(_STRIDE, -1, _SLOTS) % _SLOTS

    def directories(self, step: int, batch_rows: np.ndarray) -> np.ndarray:
        """Return the directory of each of these rows of the batch of `step`: int64 of the shape of `batch_rows`."""
        return self._owner[(self._phases[batch_rows] + step) % _SLOTS]

    def turns(self, directory: int, step: int, batch_rows: np.ndarray) -> np.ndarray:
        """Return the number of steps before `step` in which each of these rows of the batch came from `directory`."""
        phases = self._phases[batch_rows]
        return self._visited(directory, phases + step) - self._visited(directory, phases)

    def _visited(self, directory: int, ends: np.ndarray) -> np.ndarray:
        """Return how many of the first `ends` visits of slots are visits of a directory's arc."""
        visits = self._visits[directory]
        rounds, within = np.divmod(ends, _SLOTS)
        return rounds * len(visits) + np.searchsorted(visits, within)


def _arcs(weights: np.ndarray) -> np.ndarray:
    """Return the sizes of the arcs in slots; only a weight of 0 has an empty arc."""
    exact = weights / weights.sum() * _SLOTS
    sizes = np.where(weights > 0, np.maximum(np.floor(exact), 1), 0).astype(np.int64)
    missing = _SLOTS - int(sizes.sum())
    for _ in range(-missing):  # tiny shares were rounded up, so the sum is too large
        sizes[sizes.argmax()] -= 1
    sizes[np.argsort(np.where(weights > 0, sizes - exact, np.inf), kind="stable")[: max(missing, 0)]] += 1
    return sizes


class MixedSource:
    """Endless shuffled batches of several prepared directories.

    Each directory has its own endless sequence of epochs, and each epoch draws every row once. At any moment
    some rows of the batch are ahead of others by a few, so two epochs of a directory overlap by a few batches.

    Args:
        sources: directory -> its source; all have the batch size of the mixture.
        weights: the weight of each directory (`Mixture`).
        num_examples: rows in an epoch of the mixture; None: those of all directories together.

    Raises:
        InputError: some directories have packed rows and others have not.
    """

    def __init__(
        self, sources: Mapping[str, PretrainingSource], weights: Sequence[float], num_examples: int | None = None
    ):
        self._sources = list(sources.values())
        (first, of_first), *others = sources.items()
        packed = of_first.instances.manifest.packed
        for directory, source in others:
            if source.instances.manifest.packed != packed:
                rows = ("rows of one example", "packed rows")
                raise InputError(
                    f"{directory}: expected {rows[packed]}, as in {first} of the same mixture, found {rows[not packed]}"
                )
        give_equal_room([source.instances for source in self._sources])
        self.batch_size = of_first.batch_size
        self.mixture = Mixture(weights, self.batch_size)
        self.num_examples = num_examples or sum(source.num_examples for source in self._sources)

    @property
    def steps_per_epoch(self) -> int:
        return max(1, self.num_examples // self.batch_size)

    @property
    def tokenizer(self) -> Tokenizer:
        return self._sources[0].tokenizer

    def batch(self, step: int, rows: Rows = ALL_ROWS) -> Batch:
        """Return the rows (all of them by default) of the batch of `step`, as `PreparedInstances.batch` does."""
        everyone = np.arange(self.batch_size)
        batch_rows = everyone[rows]
        owners = self.mixture.directories(step, batch_rows)
        parts = []
        for directory, source in enumerate(self._sources):
            if source.fetches_blocks:
                turns = self.mixture.turns(directory, step, everyone)
                source.prefetch(int(turns.min()), int(turns.max()), batch_rows)
            source_rows = batch_rows[owners == directory]
            if len(source_rows):
                turns = self.mixture.turns(directory, step, source_rows)
                parts.append((np.flatnonzero(owners == directory), source.rows(turns, source_rows)))
        return interleave(parts)

    def epochs(self, num_steps: int) -> np.ndarray:
        """Return the number of passes over each directory in `num_steps` steps: float64 [directories]."""
        sizes = np.array([source.num_examples for source in self._sources])
        return self.mixture.shares * num_steps * self.batch_size / sizes
