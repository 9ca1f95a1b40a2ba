"""Put batches onto the devices; each process builds only its own rows."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import NamedSharding

from bert_jax.jobs.base import Batches


@dataclasses.dataclass(frozen=True)
class DeviceSource:
    """A source whose batches are global arrays, split by `sharding` over the devices of all processes.

    Attributes:
        source: the source of host arrays.
        batch_size_at: step -> number of rows in its batch.
        sharding: a sharding that splits only the rows.
    """

    source: Batches
    batch_size_at: Callable[[int], int]
    sharding: NamedSharding

    def batch(self, step: int, rows: Any = None) -> dict[str, Any]:
        """Return the batch of `step`, with the rows of this process's devices; `rows` is ignored."""
        return device_batch(lambda rows: self.source.batch(step, rows), self.batch_size_at(step), self.sharding)


def device_batch(
    rows: Callable[[slice], dict[str, Any]], batch_size: int, sharding: NamedSharding
) -> dict[str, jax.Array]:
    """Make global arrays of `batch_size` rows, split by `sharding`.

    Args:
        rows: slice of rows -> host arrays; called once for each distinct part on the devices of this process. Arrays
            with other numbers of rows must be split in the same proportions.
        batch_size: number of rows in the global batch.
        sharding: a sharding that splits only the rows.
    """
    indices = sharding.addressable_devices_indices_map((batch_size,)).values()
    parts = {bounds: rows(slice(*bounds)) for bounds in {_bounds(index, batch_size) for index in indices}}

    def assemble(name: str, size: int, shape: tuple[int, ...]) -> jax.Array:
        def part(index: tuple[slice, ...] | None) -> Any:
            start, stop = _bounds(index, size)
            return parts[start * batch_size // size, stop * batch_size // size][name]

        return jax.make_array_from_callback((size, *shape), sharding, part)

    ((start, stop), first), *_ = parts.items()
    sizes = {name: len(array) * batch_size // (stop - start) for name, array in first.items()}
    return {name: assemble(name, sizes[name], array.shape[1:]) for name, array in first.items()}


def _bounds(index: tuple[slice, ...] | None, size: int) -> tuple[int, int]:
    """Return the half-open range of the rows that a device holds; None as index means all rows."""
    start, stop, _ = (index[0] if index else slice(None)).indices(size)
    return start, stop
