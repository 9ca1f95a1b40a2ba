"""Reading files: text, compressed bytes, and a copy on this machine of what is elsewhere."""

import bz2
import contextlib
import gzip
import lzma
import os
import tempfile
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
COMPRESSED = tuple(_DECOMPRESSORS)  # suffixes of names


class DamagedError(Exception):
    """A compressed file that does not come out whole; the message says how."""


@contextlib.contextmanager
def open_decompressed(path: PathLike) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Opens a file to read its bytes, decompressed where its name ends as in COMPRESSED.

    Yields:
        The bytes, and the file under them as it is, whose position tells how far reading has come.

    Raises:
        DamagedError: out of the block, when reading meets damage.
    """
    path = Path(path)
    kind = next((suffix for suffix in COMPRESSED if path.name.lower().endswith(suffix)), "")
    with path.open("rb") as raw:
        try:
            yield (_DECOMPRESSORS[kind](raw) if kind else raw), raw
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # the system's, not a decompressor's
                raise
            what = "one that is cut short" if isinstance(error, EOFError) else f"a damaged one ({error})"
            raise DamagedError(f"expected a whole {kind} file, found {what}") from None


def without_compression(name: str) -> str:
    """Returns a file's name without a suffix of COMPRESSED."""
    return next((name[: -len(suffix)] for suffix in COMPRESSED if name.lower().endswith(suffix)), name)


def existing(path: PathLike) -> Path:
    """Returns the path of a file. Raises InputError when it is missing, a directory, a pipe or a device."""
    found = Path(path)
    if not found.exists():
        raise InputError(f"{path}: no such file")
    if found.is_dir():
        raise InputError(f"{path}: expected a file, found a directory")
    if not found.is_file():
        raise InputError(f"{path}: expected a file, found a pipe or a device; write its content to a file first")
    return found


def read_text(path: PathLike, max_bytes: int | None = None) -> str:
    """Returns the text of a UTF-8 file.

    Raises:
        InputError: it is missing, no file, not UTF-8, or has more than `max_bytes`.
    """
    path = existing(path)
    if max_bytes is not None and path.size() > max_bytes:
        raise InputError(f"{path}: expected at most {max_bytes:,} bytes, found {path.size():,}")
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}: expected UTF-8 text, found byte 0x{data[error.start]:02x} at offset {error.start} (line {line})"
        ) from None


@contextlib.contextmanager
def local_copy(path: PathLike) -> Iterator[str]:
    """Yields the name of a local file: the file itself, or while the block runs a copy of an object."""
    path = Path(path)
    if not path.is_remote:
        yield os.fspath(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, path.name)
        path.download(name)
        yield name
