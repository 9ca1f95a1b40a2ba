"""Read files: text, decompressed bytes, and local copies of remote files."""

import bz2
import contextlib
import gzip
import io
import lzma
import os
import tempfile
import types
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from bert_jax.errors import InputError
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
        DamagedError: reading in the block found damage, or more than `MAX_COMPRESSION` times the file's bytes.
    """
    path = Path(path)
    kind = next((suffix for suffix in COMPRESSED if path.name.lower().endswith(suffix)), "")
    with path.open("rb") as raw:
        try:
            content = _Decompressed(_DECOMPRESSORS[kind](raw), raw, kind) if kind else None
            yield (io.BufferedReader(content, 1 << 16) if content else raw), raw
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # the system's, not a decompressor's
                raise
            what = "one that is cut short" if isinstance(error, EOFError) else f"a damaged one ({error})"
            raise DamagedError(f"expected a whole {kind} file, found {what}") from None


def without_compression(name: str) -> str:
    """Return a file's name without a suffix of COMPRESSED."""
    return next((name[: -len(suffix)] for suffix in COMPRESSED if name.lower().endswith(suffix)), name)


def existing(path: PathLike) -> Path:
    """Return the path of a file. Raises InputError when it is missing, a directory, a pipe or a device."""
    found = Path(path)
    if found.is_file():  # one request for an object
        return found
    if not found.exists():
        raise InputError(f"{path}: no such file")
    if found.is_dir():
        raise InputError(f"{path}: expected a file, found a directory")
    raise InputError(f"{path}: expected a file, found a pipe or a device; write its content to a file first")


def read_text(path: PathLike, max_bytes: int | None = None) -> str:
    """Return the text of a UTF-8 file.

    Raises:
        InputError: the file is missing, not a regular file, not UTF-8, or larger than `max_bytes`.
    """
    path = existing(path)
    if max_bytes is not None and (size := path.size()) > max_bytes:
        raise InputError(f"{path}: expected at most {max_bytes:,} bytes, found {size:,}")
    return decode_text(path.read_bytes(), path)


def run_python(path: PathLike) -> types.ModuleType:
    """Execute a Python file, and return the module with its names.

    Raises:
        InputError: as `read_text`; errors of the file itself are its own.
    """
    module = types.ModuleType(Path(path).name.removesuffix(".py"))
    module.__file__ = str(path)
    exec(compile(read_text(path), str(path), "exec"), vars(module))
    return module


def decode_text(data: bytes, where: object) -> str:
    """Decode the bytes of a file as UTF-8. Raises InputError, naming `where`, when they are not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{where}: expected UTF-8 text, found byte 0x{data[error.start]:02x} at offset {error.start} (line {line})"
        ) from None


@contextlib.contextmanager
def local_copy(path: PathLike) -> Iterator[str]:
    """Yield the name of a local file: the file itself, or a temporary copy of an object."""
    path = Path(path)
    if not path.is_remote:
        yield os.fspath(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, path.name)
        path.download(name)
        yield name
