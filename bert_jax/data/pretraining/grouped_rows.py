"""Files of grouped rows: uint64 offsets, then the rows. Two reads return the rows of any run of groups."""

from collections.abc import Iterable

import numpy as np

from bert_jax import storage

_OFFSET = np.dtype("<u8")


def write_grouped(path: storage.Path, sizes: np.ndarray, blocks: Iterable[np.ndarray]) -> None:
    """Write grouped rows atomically.

    Args:
        path: the file.
        sizes: int [G], the number of rows of each group.
        blocks: the rows, sorted by group.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(_OFFSET)
    with storage.open_binary_atomically(path) as file:
        file.write(starts.tobytes())
        for rows in blocks:
            file.write(rows.tobytes())


def read_grouped(path: storage.Path, dtype: np.dtype, count: int, first: int, stop: int) -> np.ndarray:
    """Return the rows of the groups `first` to `stop - 1` of a file of `count` groups."""
    size = _OFFSET.itemsize
    offsets = np.frombuffer(path.read_range(first * size, (stop + 1) * size), _OFFSET)
    begin = (count + 1) * size
    start, end = (begin + int(offset) * dtype.itemsize for offset in (offsets[0], offsets[-1]))
    return np.frombuffer(path.read_range(start, end), dtype)
