"""Write a file or directory atomically: whole or not at all.

On a disk it is written beside its place and renamed. An object appears when all of it has arrived. A directory of an
object store cannot be renamed: its objects are written in place, the one that says what they are last, and meanwhile
`INCOMPLETE` lies among them.
"""

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from typing import Any, BinaryIO, TextIO

from bert_jax.errors import InputError
from bert_jax.storage import object_store
from bert_jax.storage.claims import LEASES, claimed
from bert_jax.storage.paths import Path, PathLike, is_remote

INCOMPLETE = ".incomplete"  # the object that a directory holds as long as it is being written
_YOUNG_SECONDS = 2.0  # after which whoever writes a file holds it for sure
_LAST = ("config.json", "manifest.json")  # without which no reader takes a directory for what it is


def write_atomically(path: PathLike, data: bytes | str) -> None:
    """Writes `data` so that a reader finds the old file or the new one."""
    path, data = Path(path), data.encode() if isinstance(data, str) else data
    if path.is_remote:
        path.write_bytes(data)
        return
    with _opened_beside(path, "wb") as file:
        file.write(data)


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
    """Yields a new UTF-8 file that becomes `path` when the block ends well, and nothing when it does not."""
    with _opened_beside(path, "w", encoding="utf-8") as file:
        yield file


@contextlib.contextmanager
def open_binary_atomically(path: PathLike) -> Iterator[BinaryIO]:
    """As `open_atomically`, for bytes."""
    with _opened_beside(path, "wb") as file:
        yield file


@contextlib.contextmanager
def _opened_beside(path: PathLike, mode: str, **options: Any) -> Iterator[Any]:
    path = Path(path)
    if path.is_remote:
        with tempfile.TemporaryDirectory() as folder:
            name = os.path.join(folder, "object")
            with naming(path, name), open(name, mode, **options) as file:
                yield file
            path.upload(name)
        return
    remove_leftovers(path)
    beside = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}.partial"
    try:
        with naming(path, beside), beside.open(mode, **options) as file, _held(beside):
            yield file
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def directory_atomically(path: PathLike) -> Iterator[Path]:
    """Yields a new local directory that becomes `path` when the block ends well, and is removed when it does not.

    Raises:
        InputError: `path` exists and is not an empty directory.
    """
    path = _checked_new(path)
    if path.is_remote:
        with tempfile.TemporaryDirectory() as folder, naming(path, folder):
            yield Path(folder)
            _upload_directory(Path(folder), path)
        return
    remove_leftovers(path)
    beside = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}.partial"
    beside.mkdir(parents=True)
    with _moved(beside, path, removed_after=BaseException), _held(beside):
        yield beside


@contextlib.contextmanager
def directory_resumably(path: PathLike) -> Iterator[Path]:
    """As `directory_atomically`, but what was written stays when the process is killed or interrupted, and is given to
    the next call with the same path. In an object store the directory is `path` itself.

    Raises:
        InputError: as there, or another process writes there.
    """
    path = _checked_new(path, keep_incomplete=True)
    busy = f"{path}: another process is writing there"
    if path.is_remote:
        with claimed(path, busy):
            _checked_new(path, keep_incomplete=True)  # once more: its last owner may have completed it meanwhile
            (path / INCOMPLETE).write_bytes(b"")
            try:
                yield path
            except Exception as error:
                if isinstance(error, OSError) and is_remote(str(error.filename)):
                    raise  # a store that fails: what it has is kept, as after a kill
                for file in path.files_below():
                    if LEASES not in file.parts:
                        file.unlink()
                raise
            (path / INCOMPLETE).unlink()
        return
    beside = path.parent / f".{path.name}.partial"
    beside.mkdir(parents=True, exist_ok=True)
    with claimed(beside, busy), _moved(beside, path, removed_after=Exception):
        yield beside


def _checked_new(path: PathLike, keep_incomplete: bool = False) -> Path:
    path = Path(path)
    if not path.exists():
        return path
    if path.is_remote and path.is_dir():
        names = {entry.name for entry in path.iterdir()} - {LEASES}
        if INCOMPLETE in names or not names:
            if not keep_incomplete:
                remove_incomplete(path)
            return path
    elif path.is_dir() and not any(path.iterdir()):
        return path
    raise InputError(f"{path}: expected a new or empty directory, found one with files in it")


@contextlib.contextmanager
def local_directory(path: PathLike) -> Iterator[str]:
    """Yields the name of a local directory whose files are in `path` when the block ends, however it ends."""
    path = Path(path)
    if not path.is_remote:
        yield os.fspath(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            yield folder
        finally:
            for file in Path(folder).files_below():
                (path / file.relative_to(folder)).upload(file)


def check_output(out: PathLike, *inputs: Any) -> None:
    """Check, before anything is read, that a file or directory to write is none of those to read.

    Args:
        out: what is to be written.
        inputs: names of what is to be read; what is no name of a file (say, a table in memory) is passed by.

    Raises:
        InputError: `out` is one of them, under whatever name.
    """
    for name in inputs:
        if isinstance(name, str | os.PathLike) and _is_same(Path(out), Path(name)):
            raise InputError(f"{out}: expected another file to write to than {name}, which is read")


def _is_same(out: Path, other: Path) -> bool:
    if out.is_remote or other.is_remote:
        return out.is_remote and other.is_remote and str(out).rstrip("/") == str(other).rstrip("/")
    try:
        return os.path.samefile(out, other)
    except (OSError, ValueError):  # one of them is not there, so that nothing can be lost
        return False


def check_writable(path: PathLike) -> None:
    """Looks, before work begins, whether a file could be written.

    Raises:
        InputError: it is a directory, or its directory is missing or read-only.
        FileNotFoundError: its bucket is missing.
    """
    path = Path(path)
    if path.is_remote:
        object_store.check_bucket(path.url)
        return
    if path.is_dir():
        raise InputError(f"{path}: expected a file to write to, found a directory")
    if not path.parent.is_dir():
        raise InputError(f"{path}: expected a directory to write into, found no {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: expected a directory to write into, found one that is not writable")


def remove_incomplete(path: PathLike) -> None:
    """Removes what a killed `directory_atomically` has left in an object store; anything else is left alone."""
    path = Path(path)
    if path.is_remote and (path / INCOMPLETE).exists():
        path.rmtree(missing_ok=True)


def remove_leftovers(path: PathLike) -> None:
    """Removes what killed processes have left beside `path` on a disk when they wrote it; not what one still writes."""
    path = Path(path)
    if path.is_remote or not path.parent.is_dir():
        return
    name = re.compile(re.escape(f".{path.name}.") + "[0-9a-f]{8}[.]partial")
    for left in path.parent.iterdir():
        if not name.fullmatch(left.name):
            continue
        with contextlib.suppress(OSError):  # gone meanwhile, or another's
            if time.time() - os.stat(left).st_mtime < _YOUNG_SECONDS:
                continue  # perhaps not held yet
            with _held(left) as held:
                if held and left.is_dir():
                    shutil.rmtree(left, ignore_errors=True)
                elif held:
                    left.unlink(missing_ok=True)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[bool]:
    """Locks a file or directory while the block runs, as the system notices when the process dies; yields whether it
    was free. Where there are no locks, it counts as held by another."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except OSError:
            free = False
        yield free
    finally:
        os.close(descriptor)


def _upload_directory(folder: Path, path: Path) -> None:
    """Copies the files of a local directory, those of `_LAST` at its end."""
    marker = path / INCOMPLETE
    marker.write_bytes(b"")
    files = sorted(folder.files_below(), key=lambda file: (file.parent == folder and file.name in _LAST, str(file)))
    for file in files:
        (path / file.relative_to(folder)).upload(file)
    marker.unlink()


def replace_directory(path: PathLike, new: PathLike) -> None:
    """Puts the directory `new` in the place of `path`, which is removed; on a disk a reader finds one or the other."""
    path, new = Path(path), Path(new)
    if path.is_remote:
        path.rmtree(missing_ok=True)
        new.rename(path)
        return
    old = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}.replaced"
    path.rename(old)
    new.rename(path)
    old.rmtree()


@contextlib.contextmanager
def _moved(beside: Path, path: Path, removed_after: type[BaseException]) -> Iterator[None]:
    """Moves `beside` to `path` when the block ends well; takes it away after such an exception."""
    try:
        with naming(path, beside):
            yield
        if path.exists():
            path.rmdir()
        beside.rename(path)
    except removed_after:
        shutil.rmtree(beside, ignore_errors=True)
        raise
