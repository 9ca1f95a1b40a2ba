"""Random access to parts of a local file, or of a local copy."""

import contextlib
import math
import os
from collections.abc import Iterator

import numpy as np

from bert_jax.errors import InputError
from bert_jax.storage.paths import Path, PathLike
from bert_jax.storage.reading import local_copy

_PART = 2**18  # bytes


class OpenFile:
    """A local file whose parts are read by offset; closed by `close`, or when nothing refers to it.

    Args:
        path: what to call it in messages.
        name: of the file, where that is a copy of what `path` names.

    Attributes:
        path: as given.
        size: bytes.
    """

    def __init__(self, path: Path, name: str | None = None):
        self.path = path
        self._file = open(name or path, "rb", buffering=0)  # noqa: SIM115 (closed by `close`)
        self.size = os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # it could be opened
            self.close()

    def read_part(self, offset: int, count: int) -> bytes:
        """`count` bytes from `offset`, or fewer where the file ends before."""
        return os.pread(self._file.fileno(), count, offset)

    def read(self, offset: int, count: int) -> bytes:
        """`count` bytes from `offset`. Raises InputError when the file has fewer."""
        return self.array(offset, (count,), np.dtype(np.uint8)).tobytes()

    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """A fresh array of what lies at `offset`. Raises InputError when the file ends before."""
        self._check(offset, math.prod(shape) * dtype.itemsize)  # before memory is taken for it
        values = np.empty(shape, dtype)
        self.fill(offset, memoryview(values.reshape(-1).view(np.uint8)))
        return values

    def fill(self, offset: int, left: memoryview) -> None:
        """Copies what lies at `offset` to memory. Raises InputError when the file ends before."""
        self._check(offset, len(left))
        while left:  # one call reads 2 GB at most
            done = os.preadv(self._file.fileno(), [left], offset)
            if not done:
                raise InputError(f"{self.path}: expected {self.size} bytes, found fewer: it was cut while being read")
            left, offset = left[done:], offset + done

    def _check(self, offset: int, count: int) -> None:
        if offset < 0 or offset + count > self.size:
            raise InputError(f"{self.path}: expected {count} bytes at {offset}, found the file's end at {self.size}")

    def chunks(self, offset: int, count: int) -> Iterator[memoryview]:
        """The `count` bytes from `offset`, a part at a time."""
        for start in range(offset, offset + count, _PART):
            yield memoryview(self.array(start, (min(_PART, offset + count - start),), np.dtype(np.uint8)))


@contextlib.contextmanager
def open_offsets(path: PathLike) -> Iterator[OpenFile]:
    """Opens a file; an object is copied to this machine first.

    Raises:
        InputError: there is no such file.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if not path.is_file():
        raise InputError(f"{path}: expected a file, found a directory or a device")
    with local_copy(path) as name, contextlib.closing(OpenFile(path, name)) as file:
        yield file
