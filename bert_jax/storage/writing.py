"""Write files and directories atomically.

On a disk, a file or directory is written under a temporary name and renamed. An object appears when its upload is
complete. A directory of an object store cannot be renamed: its objects are written in place, its config or manifest
last, and it has an object `INCOMPLETE` while it is being written.

Only files that this module wrote are ever removed: no other program uses its names of temporary files and directories,
and `INCOMPLETE` lists the files that it is writing into a directory.
"""

import contextlib
import fcntl
import itertools
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TextIO

from bert_jax.errors import InputError
from bert_jax.storage.claims import LEASES, claimed
from bert_jax.storage.paths import Path, PathLike, is_remote

INCOMPLETE = ".incomplete"  # the file that marks a directory that is being written
_MARK = "bert_jax"  # value of `written_by` in our `INCOMPLETE` files
_LONGEST_MARK = 1 << 24  # maximum size of our `INCOMPLETE` files, in bytes
_ENDING = "[.]bert_jax-[0-9a-f]{16}[.]partial"  # ending of the names of temporary files and directories
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
    with _temporary(path, lambda beside: beside.touch(exist_ok=False)) as beside:
        try:
            with naming(path, beside), beside.open(mode, **options) as file:
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
    with _temporary(path, lambda beside: beside.mkdir(parents=True)) as beside:
        try:
            with naming(path, beside):
                yield beside
            _move(beside, path)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise


@contextlib.contextmanager
def directory_resumably(path: PathLike, remove: Callable[[Path], object] = lambda directory: None) -> Iterator[Path]:
    """Yield a directory that becomes `path` if the block succeeds; after a kill the next call continues with it.

    A directory that a killed or interrupted process was writing is kept, and yielded by the next call with the same
    path. In an object store the directory is `path` itself.

    Args:
        path: a new or empty directory.
        remove: called with the directory after an exception, to remove only the files that the block and earlier
            killed blocks wrote there. By default, all files are kept, as after a kill.

    Raises:
        InputError: `path` exists and is not an empty directory, or another process is writing it; or its temporary
            directory is another program's.
    """
    path = new_directory(path, keep_incomplete=True)
    busy = f"{path}: another process is writing there"
    beside = path if path.is_remote else path.parent / f".{path.name}.partial"
    if not path.is_remote:
        if beside.exists() and not beside.is_dir():
            raise InputError(f"{beside}: expected no file of this name, under which {path} is written, found one")
        beside.mkdir(parents=True, exist_ok=True)
    with claimed(beside, busy):
        new_directory(path, keep_incomplete=True)  # call again, as the last owner may have completed it meanwhile
        if not path.is_remote and any(beside.iterdir()) and _files_being_written(beside) is None:
            raise InputError(f"{beside}: expected no directory of this name, under which {path} is written, found one "
                             f"with other files in it")  # fmt: skip
        _mark(beside, [])
        try:
            with naming(path, beside):
                yield beside
            if not path.is_remote:
                _move(beside, path)
        except Exception as error:
            if isinstance(error, OSError) and is_remote(str(error.filename)):
                raise  # after a failure of the store, keep the files as after a kill
            remove(beside)
            if {file.name for file in beside.iterdir()} <= {INCOMPLETE, LEASES}:
                (beside / INCOMPLETE).unlink()
                if not path.is_remote:
                    beside.rmdir()
            raise
        (path / INCOMPLETE).unlink()  # last, as without it the directory would not be known as ours


def new_directory(path: PathLike, keep_incomplete: bool = False) -> Path:
    """Return the path of a directory to write; in an object store, first remove what a killed process left in it.

    Args:
        path: a new or empty directory.
        keep_incomplete: whether to accept a directory that a killed `directory_resumably` left, as it is.

    Raises:
        InputError: the directory has files in it that no killed process left.
    """
    path = Path(path)
    if not path.exists():
        return path
    if path.is_remote and path.is_dir():
        names = {entry.name for entry in path.iterdir()} - {LEASES}
        written = _files_being_written(path) if INCOMPLETE in names else None
        if not names or written or (written is not None and keep_incomplete):
            remove_incomplete(path)
            return path
        if written is not None:
            raise InputError(f"{path}: expected a new or empty directory, found one that another command began; "
                             "run that command again, or remove the directory")  # fmt: skip
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
        from bert_jax.storage import object_store

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
    return path.is_remote and _files_being_written(path) is not None


def free_name(path: PathLike) -> Path:
    """Return `path` if nothing is there, or else the first of `NAME-2`, `NAME-3`, ... where nothing is."""
    path = Path(path)
    names = itertools.chain([path], (path.with_name(f"{path.stem}-{n}{path.suffix}") for n in itertools.count(2)))
    return next(name for name in names if not name.exists())


def remove_incomplete(path: PathLike) -> None:
    """Remove the files of a killed `directory_atomically` from a directory in an object store, and no others."""
    path = Path(path)
    files = _files_being_written(path) if path.is_remote else None
    if files:
        for name in files:
            (path / name).unlink()
        (path / INCOMPLETE).unlink()


def _mark(directory: Path, files: list[str]) -> None:
    """Write `INCOMPLETE`, which says that this package is writing `files` into a directory; [] = not yet known."""
    write_atomically(directory / INCOMPLETE, json.dumps({"written_by": _MARK, "files": files}))


def _files_being_written(directory: Path) -> list[str] | None:
    """Return the files in the mark of a directory; None = it has no mark, or that of another program."""
    try:
        if (directory / INCOMPLETE).size() > _LONGEST_MARK:
            return None
        content = json.loads((directory / INCOMPLETE).read_bytes())
    except (FileNotFoundError, IsADirectoryError, ValueError, RecursionError):
        return None
    files = content.get("files") if isinstance(content, dict) and content.get("written_by") == _MARK else None
    if not isinstance(files, list) or not all(isinstance(name, str) and _is_below(name) for name in files):
        return None
    return files


def _is_below(name: str) -> bool:
    """Return whether a relative name stays inside the directory."""
    return not any(part in ("", ".", "..") for part in name.split("/"))


def is_leftover(name: str) -> bool:
    """Return whether a name is that of a temporary file or directory of this module."""
    return re.fullmatch(f"[.].+{_ENDING}", name, re.DOTALL) is not None


def remove_leftovers(path: PathLike) -> None:
    """Remove temporary files of `path` that killed processes left on a disk; keep those still being written."""
    path = Path(path)
    if path.is_remote or not path.parent.is_dir():
        return
    # Each writer adds one dot and one ending; there are several if a temporary path is itself written atomically.
    name = re.compile(f"([.]+){re.escape(path.name)}((?:{_ENDING})+)")
    for left in path.parent.iterdir():
        match = name.fullmatch(left.name)
        if match is None or len(match[1]) != match[2].count(".partial"):
            continue
        with contextlib.suppress(OSError):  # removed meanwhile, or owned by another user
            descriptor = os.open(left, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the lock fails while the owner's process lives
                if left.is_dir():
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    left.unlink(missing_ok=True)
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def _temporary(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Yield a new file or directory beside `path`, created by `make` and locked until the block ends.

    The system releases the lock when the process dies. On file systems without locks, leftovers are not removed.
    """
    remove_leftovers(path)
    while True:
        beside = path.parent / f".{path.name}.bert_jax-{secrets.token_hex(8)}.partial"
        with naming(path, beside):
            make(beside)
        try:
            descriptor = os.open(beside, os.O_RDONLY)
        except FileNotFoundError:
            continue  # removed by another process, as it was not locked yet
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if beside.exists():  # otherwise it was removed before it was locked
                yield beside
                return
        finally:
            os.close(descriptor)


def _upload_directory(folder: Path, path: Path) -> None:
    """Upload the files of a local directory, those named in `_LAST` last.

    Raises:
        InputError: another program has written a file of the same name meanwhile.
    """
    files = sorted(folder.files_below(), key=lambda file: (file.parent == folder and file.name in _LAST, str(file)))
    names = [str(file.relative_to(folder)) for file in files]
    for name in path.sizes_below().keys() & set(names):
        raise InputError(f"{path / name}: expected no file of this name yet, found one; move it elsewhere")
    _mark(path, names)
    for file, name in zip(files, names, strict=True):
        (path / name).upload(file)
    (path / INCOMPLETE).unlink()


def replace_directory(path: PathLike, new: PathLike) -> None:
    """Replace the directory `path` with the directory `new`; on a disk by renaming both."""
    path, new = Path(path), Path(new)
    if path.is_remote:
        path.rmtree(missing_ok=True)
        new.rename(path)
        return
    old = path.parent / f".{path.name}.bert_jax-{secrets.token_hex(8)}.replaced"
    path.rename(old)
    new.rename(path)
    old.rmtree()


def _move(beside: Path, path: Path) -> None:
    """Rename a directory to `path`, which may be an empty directory."""
    if path.exists():
        path.rmdir()
    beside.rename(path)
