"""Batches onto the devices, each process building only its own rows, some steps ahead of their use."""

import collections
import concurrent.futures
from collections.abc import Callable, Generator
from typing import Any

import jax
from jax.sharding import NamedSharding


def device_batch(
    rows: Callable[[slice], dict[str, Any]], batch_size: int, sharding: NamedSharding
) -> dict[str, jax.Array]:
    """Makes global arrays of `batch_size` rows, split by `sharding`, which splits rows only.

    Args:
        rows: gives the host arrays of some of the rows; asked once for each part that a device of this process holds.
    """
    indices = sharding.addressable_devices_indices_map((batch_size,)).values()
    wanted = {_bounds(index, batch_size) for index in indices}
    parts = {bounds: rows(slice(*bounds)) for bounds in wanted}

    def assemble(name: str, shape: tuple[int, ...]) -> jax.Array:
        def part(index: tuple[slice, ...] | None) -> Any:
            return parts[_bounds(index, batch_size)][name]

        return jax.make_array_from_callback((batch_size, *shape), sharding, part)

    return {name: assemble(name, array.shape[1:]) for name, array in next(iter(parts.values())).items()}


def ahead(make: Callable[[int], Any], start: int, stop: int, depth: int = 2) -> Generator[Any, None, None]:
    """Yields `make(start) ... make(stop - 1)`, the next `depth` being made in a thread meanwhile."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        waiting: collections.deque[concurrent.futures.Future] = collections.deque()
        try:
            for step in range(start, stop):
                waiting.append(pool.submit(make, step))
                if len(waiting) > depth:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _bounds(index: tuple[slice, ...] | None, size: int) -> tuple[int, int]:
    """The first and last row of a device's part; None stands for all."""
    start, stop, _ = (index[0] if index else slice(None)).indices(size)
    return start, stop
