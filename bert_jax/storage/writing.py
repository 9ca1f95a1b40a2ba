"""Write files and directories atomically.

On a disk, a file or directory is written under a temporary name and renamed. An object appears when its upload is
complete. A directory of an object store cannot be renamed: its objects are written in place, its config or manifest
last, and it has an object `INCOMPLETE` while it is being written.
"""

import contextlib
import fcntl
import itertools
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

INCOMPLETE = ".incomplete"  # the object that marks a directory that is being written
_YOUNG_SECONDS = 2.0  # a file that is older than this is locked if a process is writing it
_LAST = ("config.json", "manifest.json")  # files that are uploaded last, as readers recognise a directory by them


def write_atomically(path: PathLike, data: bytes | str) -> None:
    """Write a file so that readers find either the old or the new content."""
    path, data = Path(path), data.encode() if isinstance(data, str) else data
    if path.is_remote:
        path.write_bytes(data)
        return
    with _opened_beside(path, "wb") as file:
        file.write(data)


@contextlib.contextmanager
def naming(path: PathLike, partial: PathLike | None = None) -> Iterator[None]:
    """Set the file name of an OSError in the block to `path` if it has none or names the temporary file `partial`."""
    try:
        yield
    except OSError as error:
        named = str(error.filename or path)
        error.filename = named if partial is None else named.replace(str(partial), str(path))
        raise


@contextlib.contextmanager
def open_atomically(path: PathLike) -> Iterator[TextIO]:
    """Yield a new UTF-8 file that becomes `path` if the block succeeds, and is removed if it raises."""
    with _opened_beside(path, "w", encoding="utf-8") as file:
        yield file


@contextlib.contextmanager
def open_binary_atomically(path: PathLike) -> Iterator[BinaryIO]:
    """Yield a new binary file that becomes `path` if the block succeeds, and is removed if it raises."""
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
    """Yield a new local directory that becomes `path` if the block succeeds, and is removed if it raises.

    Raises:
        InputError: `path` exists and is not an empty directory.
    """
    path = new_directory(path)
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
    """Yield a directory that becomes `path` if the block succeeds; after a kill the next call continues with it.

    A directory that a killed or interrupted process was writing is kept, and yielded by the next call with the same
    path. In an object store the directory is `path` itself.

    Raises:
        InputError: `path` exists and is not an empty directory, or another process is writing it.
    """
    path = new_directory(path, keep_incomplete=True)
    busy = f"{path}: another process is writing there"
    if path.is_remote:
        with claimed(path, busy):
            new_directory(path, keep_incomplete=True)  # again, as its last owner may have completed it meanwhile
            (path / INCOMPLETE).write_bytes(b"")
            try:
                yield path
            except Exception as error:
                if isinstance(error, OSError) and is_remote(str(error.filename)):
                    raise  # after a failure of the store, keep the files as after a kill
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


def new_directory(path: PathLike, keep_incomplete: bool = False) -> Path:
    """Return the path of a directory to write, after removing what a killed process left in it in an object store.

    Args:
        path: a new or empty directory.
        keep_incomplete: whether to leave an incomplete directory as it is.

    Raises:
        InputError: the directory has files in it.
    """
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
    """Yield a local directory whose files are in `path` after the block, also if the block raises."""
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
    """Check that an output is not also an input.

    Args:
        out: the file or directory to write.
        inputs: files to read; objects that are no paths, such as tables in memory, are ignored.

    Raises:
        InputError: `out` is the same file as an input, also under another name.
    """
    for name in inputs:
        if isinstance(name, str | os.PathLike) and _is_same(Path(out), Path(name)):
            raise InputError(f"{out}: expected an output other than the input {name}, found the same file")


def _is_same(out: Path, other: Path) -> bool:
    if out.is_remote or other.is_remote:
        return out.is_remote and other.is_remote and str(out).rstrip("/") == str(other).rstrip("/")
    try:
        return os.path.samefile(out, other)
    except (OSError, ValueError):  # one of them does not exist, so nothing can be overwritten
        return False


def check_writable(path: PathLike) -> None:
    """Check before a long computation that its output file can be written.

    Raises:
        InputError: the path is a directory, or its directory is missing or read-only.
        FileNotFoundError: the bucket is missing.
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


def is_incomplete(path: PathLike) -> bool:
    """Return whether a directory in an object store is being written, or was when its writer was killed."""
    path = Path(path)
    return path.is_remote and (path / INCOMPLETE).exists()


def free_name(path: PathLike) -> Path:
    """Return `path` if nothing is there, or else the first of `NAME-2`, `NAME-3`, ... where nothing is."""
    path = Path(path)
    names = itertools.chain([path], (path.with_name(f"{path.stem}-{n}{path.suffix}") for n in itertools.count(2)))
    return next(name for name in names if not name.exists())


def remove_incomplete(path: PathLike) -> None:
    """Remove a directory in an object store that a killed `directory_atomically` left incomplete; keep any other."""
    if is_incomplete(path):
        Path(path).rmtree(missing_ok=True)


def remove_leftovers(path: PathLike) -> None:
    """Remove temporary files of `path` that killed processes left on a disk; keep those still being written."""
    path = Path(path)
    if path.is_remote or not path.parent.is_dir():
        return
    # One dot and one ending for each writer: a directory that is written within one being written is beside that.
    name = re.compile("([.]+)" + re.escape(path.name) + "((?:[.][0-9a-f]{8}[.]partial)+)")
    for left in path.parent.iterdir():
        match = name.fullmatch(left.name)
        if match is None or len(match[1]) != match[2].count(".partial"):
            continue
        with contextlib.suppress(OSError):  # removed meanwhile, or owned by another user
            if time.time() - os.stat(left).st_mtime < _YOUNG_SECONDS:
                continue  # perhaps not locked yet
            with _held(left) as held:
                if held and left.is_dir():
                    shutil.rmtree(left, ignore_errors=True)
                elif held:
                    left.unlink(missing_ok=True)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[bool]:
    """Lock a file or directory during the block, and yield whether that succeeded.

    The system releases the lock when the process dies. On file systems without locks, the result is False.
    """
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
    """Upload the files of a local directory, those named in `_LAST` last."""
    marker = path / INCOMPLETE
    marker.write_bytes(b"")
    files = sorted(folder.files_below(), key=lambda file: (file.parent == folder and file.name in _LAST, str(file)))
    for file in files:
        (path / file.relative_to(folder)).upload(file)
    marker.unlink()


def replace_directory(path: PathLike, new: PathLike) -> None:
    """Replace the directory `path` with the directory `new`; on a disk by renaming both."""
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
    """Move `beside` to `path` if the block succeeds; remove it after an exception of type `removed_after`."""
    try:
        with naming(path, beside):
            yield
        if path.exists():
            path.rmdir()
        beside.rename(path)
    except removed_after:
        shutil.rmtree(beside, ignore_errors=True)
        raise
