"""Batches of several data sets: the set that a step reads, and the position in it, as functions of seed and step."""

import functools
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.batching import TrainSource


class SetOrder(Protocol):
    """The set of each step. Sets are numbered from 0."""

    def place(self, step: int) -> tuple[int, int]:
        """Return the set of `step`, and the number of earlier steps of this set."""
        ...

    def counts(self, num_steps: int) -> list[int]:
        """Return the number of steps of each set among the first `num_steps`."""
        ...


class ShuffledOrder:
    """Blocks of steps in random order; a block has a fixed number of steps of each set.

    Args:
        sizes: the number of steps of each set in a block.
        seed: the seed of the order; each block has another.
    """

    def __init__(self, sizes: Sequence[int], seed: int):
        self._sizes, self._seed = np.array(sizes, np.int64), seed
        # Two blocks are cached: a prefetching reader alternates between them at the end of a block.
        self._block = functools.lru_cache(maxsize=2)(self._make_block)

    def place(self, step: int) -> tuple[int, int]:
        """See `SetOrder`."""
        block, at = divmod(step, int(self._sizes.sum()))
        order, ranks = self._block(block)
        chosen = int(order[at])
        return chosen, block * int(self._sizes[chosen]) + int(ranks[at])

    def counts(self, num_steps: int) -> list[int]:
        """See `SetOrder`."""
        blocks, left = divmod(num_steps, int(self._sizes.sum()))
        order, _ = self._block(blocks)
        counts: list[int] = (blocks * self._sizes + np.bincount(order[:left], minlength=len(self._sizes))).tolist()
        return counts

    def _make_block(self, block: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the set of each step of a block, and the number of earlier steps of this set in the block."""
        sets = np.repeat(np.arange(len(self._sizes)), self._sizes)
        order = np.random.default_rng([self._seed, block]).permutation(sets)
        ranks = np.empty_like(order)
        # A stable sort lists the steps of each set in their order.
        ranks[np.argsort(order, kind="stable")] = np.concatenate([np.arange(size) for size in self._sizes])
        return order, ranks


class RoundRobinOrder:
    """Steps of `num_sets` sets in alternation."""

    def __init__(self, num_sets: int):
        self._num_sets = num_sets

    def place(self, step: int) -> tuple[int, int]:
        """See `SetOrder`."""
        turn, chosen = divmod(step, self._num_sets)
        return chosen, turn

    def counts(self, num_steps: int) -> list[int]:
        """See `SetOrder`."""
        return [-(-(num_steps - number) // self._num_sets) for number in range(self._num_sets)]


class WeightedOrder:
    """Steps of sets in proportion to weights, evenly spread (`bert_jax.data.pretraining.mixtures.Mixture`).

    Weights are rounded to multiples of 1 / 65,536 of their sum; 65,536 consecutive steps have exactly these shares, and
    fewer steps have them to within about ten steps.
    """

    def __init__(self, weights: Sequence[float]):
        from bert_jax.data.pretraining.mixtures import Mixture

        self._mixture, self._row = Mixture(weights, 1), np.zeros(1, np.int64)
        self._num_sets = len(weights)

    def place(self, step: int) -> tuple[int, int]:
        """See `SetOrder`."""
        chosen = int(self._mixture.directories(step, self._row)[0])
        return chosen, self._count(chosen, step)

    def counts(self, num_steps: int) -> list[int]:
        """See `SetOrder`."""
        return [self._count(number, num_steps) for number in range(self._num_sets)]

    def _count(self, number: int, step: int) -> int:
        return int(self._mixture.turns(number, step, self._row)[0])


class OneSetBatches:
    """Batches whose rows are all of one set; arrays are called `SET/NAME` (`bert_jax.data.batches.sub_batches`).

    The n-th batch of a set is the n-th batch of its source.
    """

    def __init__(self, sources: Mapping[str, TrainSource], order: SetOrder):
        self.sources, self.order, self._names = dict(sources), order, list(sources)

    def batch(self, step: int, rows: slice | np.ndarray = slice(None)) -> Batch:
        """Return the rows `rows` of the batch of `step`."""
        chosen, turn = self.order.place(step)
        name = self._names[chosen]
        return _named(name, self.sources[name].batch(turn, rows))


class MixedBatches:
    """Batches with rows of every set; arrays are called `SET/NAME` (`bert_jax.data.batches.sub_batches`).

    Args:
        sources: name of a set -> its source, whose batch size is the number of its rows in each batch.
    """

    def __init__(self, sources: Mapping[str, TrainSource]):
        self.sources = dict(sources)
        self._size = sum(source.batch_size for source in sources.values())

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """Return the part `rows` of the batch of `step`, which has the same part of the rows of each set."""
        start, stop, _ = rows.indices(self._size)
        batch: Batch = {}
        for name, source in self.sources.items():
            of_set = slice(start * source.batch_size // self._size, -(-stop * source.batch_size // self._size))
            batch |= _named(name, source.batch(step, of_set))
        return batch


def _named(name: str, batch: Batch) -> Batch:
    return {f"{name}/{array}": value for array, value in batch.items()}


def rows_of_sets(shares: Sequence[float], batch_size: int, multiple: int) -> list[int]:
    """Return the number of rows of each set in a batch of `batch_size`: its share, rounded to a multiple of `multiple`.

    The numbers sum to `batch_size`, which must be a multiple too; a set may have 0 rows.
    """
    exact = np.array(shares) / np.sum(shares) * (batch_size // multiple)
    counts = np.floor(exact).astype(np.int64)
    missing = batch_size // multiple - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    rows: list[int] = (counts * multiple).tolist()
    return rows
