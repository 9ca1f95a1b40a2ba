"""Read compressed files, up to a decompression ratio that text does not exceed."""

import bz2
import contextlib
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from bert_jax.storage.memory_files import MemoryFile
from bert_jax.storage.paths import Path, PathLike

_DECOMPRESSORS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}
COMPRESSED = tuple(_DECOMPRESSORS)  # suffixes of compressed files
# Text compresses to a tenth, and a table of one repeated row to a hundredth; a higher ratio is a bomb, or damage.
MAX_COMPRESSION = 200
_UNCHECKED_BYTES = 64 << 20  # decompressed bytes before the ratio is checked


class DamagedError(Exception):
    """A compressed file is damaged, truncated or a decompression bomb."""


class _Decompressed(io.RawIOBase):
    """The decompressed content of a file; raises DamagedError above `MAX_COMPRESSION` times the bytes read."""

    def __init__(self, content: IO[bytes], raw: IO[bytes], kind: str):
        self._content, self._raw, self._kind = content, raw, kind
        self._size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._content.read(len(buffer))
        buffer[: len(data)] = data
        self._size += len(data)
        if self._size > _UNCHECKED_BYTES and self._size > MAX_COMPRESSION * self._raw.tell():
            raise DamagedError(
                f"expected a {self._kind} file of text, found one that grows to over {MAX_COMPRESSION} times its size"
            )
        return len(data)


@contextlib.contextmanager
def open_decompressed(path: PathLike) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a file to read its bytes, decompressed if its name has a suffix of COMPRESSED.

    Yields:
        The file of decompressed bytes, and the underlying file, whose position shows the progress.

    Raises:
        DamagedError: a read in the block finds damage, or more than `MAX_COMPRESSION` times the bytes of the file.
    """
    path = path if isinstance(path, MemoryFile) else Path(path)
    kind = next((suffix for suffix in COMPRESSED if path.name.lower().endswith(suffix)), "")
    with path.open("rb") as raw:
        try:
            content = _Decompressed(_DECOMPRESSORS[kind](raw), raw, kind) if kind else None
            yield (io.BufferedReader(content, 1 << 16) if content else raw), raw
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # an error of the system, not of a decompressor
                raise
            what = "one that is cut short" if isinstance(error, EOFError) else f"a damaged one ({error})"
            raise DamagedError(f"expected a whole {kind} file, found {what}") from None


def without_compression(name: str) -> str:
    """Return a file's name without a suffix of COMPRESSED."""
    return next((name[: -len(suffix)] for suffix in COMPRESSED if name.lower().endswith(suffix)), name)
