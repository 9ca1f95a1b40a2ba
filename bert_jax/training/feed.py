"""Batches from a source onto the devices, each process building only its own rows, some steps ahead."""

import collections
import concurrent.futures
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.sharding import NamedSharding

from bert_jax.tasks.job import Source


def device_batch(source: Source, step: int, batch_size: int, sharding: NamedSharding) -> dict[str, jax.Array]:
    """The batch of `step` as global arrays split by `sharding`, which splits rows only."""
    rows_of = sharding.addressable_devices_indices_map((batch_size,))
    wanted = {_bounds(index[0], batch_size) for index in rows_of.values()}
    parts = {bounds: source.batch(step, slice(*bounds)) for bounds in wanted}

    def assemble(name: str, shape: tuple[int, ...]) -> jax.Array:
        def shard(index: tuple[slice, ...]) -> Any:
            return parts[_bounds(index[0], batch_size)][name]

        return jax.make_array_from_callback((batch_size, *shape), sharding, shard)

    some = next(iter(parts.values()))
    return {name: assemble(name, array.shape[1:]) for name, array in some.items()}


def ahead(make: Callable[[int], Any], start: int, stop: int, depth: int = 2) -> Iterator[Any]:
    """Yields `make(start) ... make(stop - 1)`, the next `depth` being made in a thread meanwhile."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        waiting: collections.deque[concurrent.futures.Future] = collections.deque()
        steps = iter(range(start, stop))
        try:
            for step in steps:
                waiting.append(pool.submit(make, step))
                if len(waiting) > depth:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _bounds(rows: slice, size: int) -> tuple[int, int]:
    start, stop, _ = rows.indices(size)
    return start, stop
