"""Read parts of a file by offset; an object is copied to the local disk first."""

import contextlib
import math
import os
from collections.abc import Iterator

import numpy as np

from bert_jax.errors import InputError
from bert_jax.storage.paths import Path, PathLike

_PART = 2**18  # bytes that are read at a time


class OpenFile:
    """A local file that is read by offset; closed by `close` or by the garbage collector.

    Args:
        path: path of the file, for messages.
        name: name of the local copy, if `path` is an object.

    Attributes:
        path: the argument `path`.
        size: size in bytes.
    """

    def __init__(self, path: Path, name: str | None = None):
        self.path = path
        self._file = open(name or path, "rb", buffering=0)  # noqa: SIM115 (closed by `close`)
        self.size = os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # False if opening failed
            self.close()

    def read_part(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from `offset`, or fewer at the end of the file."""
        return os.pread(self._file.fileno(), count, offset)

    def read(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from `offset`. Raises InputError when the file has fewer."""
        return self.array(offset, (count,), np.dtype(np.uint8)).tobytes()

    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return a new array with the data at `offset`. Raises InputError when the file ends before."""
        self._check(offset, math.prod(shape) * dtype.itemsize)  # before memory is allocated
        values = np.empty(shape, dtype)
        self.fill(offset, memoryview(values.reshape(-1).view(np.uint8)))
        return values

    def fill(self, offset: int, left: memoryview) -> None:
        """Read the data at `offset` into a buffer. Raises InputError when the file ends before."""
        self._check(offset, len(left))
        while left:  # one call reads at most 2 GB
            done = os.preadv(self._file.fileno(), [left], offset)
            if not done:
                raise InputError(
                    f"{self.path}: expected {self.size} bytes, found fewer: the file was truncated while being read"
                )
            left, offset = left[done:], offset + done

    def _check(self, offset: int, count: int) -> None:
        if offset < 0 or offset + count > self.size:
            raise InputError(
                f"{self.path}: expected {count} bytes at {offset}, found the end of the file at {self.size}"
            )

    def chunks(self, offset: int, count: int) -> Iterator[memoryview]:
        """Yield `count` bytes from `offset`, in parts."""
        for start in range(offset, offset + count, _PART):
            yield memoryview(self.array(start, (min(_PART, offset + count - start),), np.dtype(np.uint8)))


@contextlib.contextmanager
def open_offsets(path: PathLike) -> Iterator[OpenFile]:
    """Open a file for reading by offset; an object is copied to the local disk first.

    Raises:
        InputError: there is no such file.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if not path.is_file():
        raise InputError(f"{path}: expected a file, found a directory or a device")
    with contextlib.ExitStack() as stack:
        name = os.fspath(path)
        if path.is_remote:
            from bert_jax.storage.local_files import local_copy

            name = stack.enter_context(local_copy(path))
        yield stack.enter_context(contextlib.closing(OpenFile(path, name)))
