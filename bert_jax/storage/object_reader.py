"""An object of an object store as a file, which is read ahead."""

import io
import os
from collections.abc import Callable
from typing import Any

_READ_AHEAD = 8 << 20  # bytes per request when an object is read sequentially


class ObjectReader(io.RawIOBase):
    """An object as a raw file that is read in ranges of _READ_AHEAD bytes.

    io.BufferedReader is not enough: it forwards the reads of `read()` and TextIOWrapper, 8 KiB at a time.
    """

    def __init__(self, size: int, read_range: Callable[[int, int], bytes]):
        """Create a reader of an object.

        Args:
            size: the object's size in bytes.
            read_range: function that returns the object's bytes from `start` to `stop` - 1.
        """
        self._size, self._read_range = size, read_range
        self._position = 0
        self._block, self._block_start = b"", 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        skipped = self._position - self._block_start
        if not 0 <= skipped < len(self._block):
            stop = min(self._position + max(len(buffer), _READ_AHEAD), self._size)
            self._block, self._block_start = self._read_range(self._position, stop), self._position
            skipped = 0
        data = memoryview(self._block)[skipped : skipped + len(buffer)]
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def readall(self) -> bytes:
        data = self._read_range(self._position, self._size)
        self._position += len(data)
        return data
