"""Reading and writing files so that nothing half-written is ever found and nothing unreadable is guessed at.

Paths may be local or `gs://...` (through `etils.epath`).
"""

import bz2
import contextlib
import fcntl
import gzip
import lzma
import os
import shutil
import uuid
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TextIO

from etils import epath

from bert_jax.errors import InputError

PathLike = str | os.PathLike

_DECOMPRESSORS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}
COMPRESSED = tuple(_DECOMPRESSORS)  # suffixes of names


class DamagedError(Exception):
    """A compressed file that does not come out whole; the message says how."""


@contextlib.contextmanager
def open_decompressed(path: PathLike) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Opens a file to read its bytes, decompressed where its name ends as in COMPRESSED.

    Yields:
        The bytes, and the file under them as it is, whose position tells how far reading has come.

    Raises:
        DamagedError: out of the block, when reading meets damage.
    """
    path = epath.Path(path)
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


def existing(path: PathLike) -> epath.Path:
    """Returns the path of a file. Raises InputError when it is missing or a directory."""
    found = epath.Path(path)
    if not found.exists():
        raise InputError(f"{path}: no such file")
    if found.is_dir():
        raise InputError(f"{path}: expected a file, found a directory")
    return found


def read_text(path: PathLike) -> str:
    """Returns the text of a UTF-8 file. Raises InputError when it is missing, a directory or not UTF-8."""
    path = existing(path)
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}: expected UTF-8 text, found byte 0x{data[error.start]:02x} at offset {error.start} (line {line})"
        ) from None


def write_atomically(path: PathLike, data: bytes | str) -> None:
    """Writes `data` beside `path` and renames it into place, so that a reader finds the old file or the new one."""
    path = epath.Path(path)
    beside = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}.partial"
    try:
        with naming(path, beside):
            beside.write_bytes(data.encode() if isinstance(data, str) else data)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def naming(path: PathLike, partial: PathLike | None = None) -> Iterator[None]:
    """Makes an OSError name `path` where it names no file, as of a full disk, or `partial`, which is not to be there
    when it is read."""
    try:
        yield
    except OSError as error:
        named = str(error.filename or path)
        error.filename = named if partial is None else named.replace(str(partial), str(path))
        raise


@contextlib.contextmanager
def open_atomically(path: PathLike) -> Iterator[TextIO]:
    """Yields a new UTF-8 file beside `path`, moved to `path` when the block ends well and removed when it does not."""
    with _opened_beside(path, "w", encoding="utf-8") as file:
        yield file


@contextlib.contextmanager
def open_binary_atomically(path: PathLike) -> Iterator[BinaryIO]:
    """As `open_atomically`, for bytes."""
    with _opened_beside(path, "wb") as file:
        yield file


@contextlib.contextmanager
def _opened_beside(path: PathLike, mode: str, **how: str) -> Iterator[Any]:
    path = epath.Path(path)
    beside = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}.partial"
    try:
        with naming(path, beside), beside.open(mode, **how) as file:
            yield file
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def directory_atomically(path: PathLike) -> Iterator[epath.Path]:
    """Yields a new directory beside `path`, moved to `path` when the block ends well and removed when it does not.

    Raises:
        InputError: `path` exists and is not an empty directory.
    """
    path = _checked_new(path)
    beside = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}.partial"
    beside.mkdir(parents=True)
    with _moved(beside, path, removed_after=BaseException):
        yield beside


@contextlib.contextmanager
def directory_resumably(path: PathLike) -> Iterator[epath.Path]:
    """As `directory_atomically`, but what was written stays when the process is killed or interrupted, and is given to
    the next call with the same path.

    Raises:
        InputError: as there, or another process writes there.
    """
    path = _checked_new(path)
    beside = path.parent / f".{path.name}.partial"
    beside.mkdir(parents=True, exist_ok=True)
    busy = f"{path}: another process is writing there"
    with locked(beside, busy), _moved(beside, path, removed_after=Exception):
        yield beside


@contextlib.contextmanager
def locked(directory: PathLike, busy: str) -> Iterator[None]:
    """Keeps other processes out of a block on the same directory; not on `gs://`, where there are no locks. The lock is
    let go of when the process ends, however that is.

    Raises:
        InputError: saying `busy`: another process is in the block.
    """
    if "://" in str(directory):
        yield
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(busy) from None
        yield
    finally:
        os.close(descriptor)


def _checked_new(path: PathLike) -> epath.Path:
    path = epath.Path(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path}: expected a new or empty directory, found one with files in it")
    return path


@contextlib.contextmanager
def _moved(beside: epath.Path, path: epath.Path, removed_after: type[BaseException]) -> Iterator[None]:
    """Moves `beside` to `path` when the block ends well; takes it away after such an exception."""
    try:
        with naming(path, beside):
            yield
        if path.exists():
            path.rmdir()
        beside.rename(path)
    except removed_after:
        shutil.rmtree(beside, ignore_errors=True) if os.path.isdir(beside) else beside.rmtree(missing_ok=True)
        raise
