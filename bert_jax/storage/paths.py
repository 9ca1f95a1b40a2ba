"""`Path`: a file or directory on a disk or in an object store, with the methods of `pathlib.Path` that suit both.

A directory of an object store is a common prefix of names: it exists if an object in it exists, need not be created,
and cannot be renamed in one step.
"""

import errno
import glob
import io
import os
import posixpath
import re
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, Self

from etils.epath.gpath import PosixGPath

from bert_jax.errors import InputError
from bert_jax.lazy import LazyModule

if TYPE_CHECKING:
    from bert_jax.storage import object_directories, object_reader, object_store
else:
    object_directories = LazyModule("bert_jax.storage.object_directories")
    object_reader = LazyModule("bert_jax.storage.object_reader")
    object_store = LazyModule("bert_jax.storage.object_store")

PathLike = str | os.PathLike

_URL = re.compile(r"(\w+)://")


def is_remote(path: PathLike) -> bool:
    """Return whether a path is in an object store, such as `gs://bucket/name`."""
    return _URL.match(os.fspath(path)) is not None


class Path(PosixGPath):
    """A local path, or a URL with one of `object_store.URL_SCHEMES`.

    All reads and writes of the package use this class or the functions of `bert_jax.storage`. In an object store,
    operations are repeated when the store or the connection fails, and errors are OSErrors with the URL and a message
    of one line.
    """

    __truediv__: Callable[[Any, PathLike], Self]  # `PosixGPath` has no types
    if not hasattr(PosixGPath, "with_segments"):  # Python 3.11 lacks with_segments

        def __new__(cls, *parts: PathLike) -> Self:
            return super().__new__(cls, *_checked(parts))

    else:

        def __init__(self, *parts: PathLike) -> None:
            super().__init__(*_checked(parts))

    @property
    def is_remote(self) -> bool:
        """Return whether the path is in an object store."""
        return self._uri_scheme is not None

    @property
    def url(self) -> str:
        """Return the path as text."""
        return os.fspath(self)

    def resolve(self, strict: bool = False) -> Self:
        """Return the absolute path; a URL is already absolute."""
        return self if self.is_remote else super().resolve(strict)

    def is_same(self, other: Self) -> bool:
        """Return whether two paths name the same file or directory."""
        return self.resolve() == other.resolve()

    def exists(self) -> bool:
        """Return whether a file or directory exists. Raises FileNotFoundError when the bucket is missing."""
        return self._info() is not None if self.is_remote else super().exists()

    def is_dir(self) -> bool:
        if not self.is_remote:
            return super().is_dir()
        info = self._info()
        return info is not None and info["type"] == "directory"

    def is_file(self) -> bool:
        """Return whether a regular file exists; False for pipes and devices, on which reading could block forever."""
        if not self.is_remote:
            return os.path.isfile(self)
        info = self._info()
        return info is not None and info["type"] == "file"

    def size(self) -> int:
        """Return the size of a file in bytes."""
        if not self.is_remote:
            return os.stat(self).st_size
        return int(self._existing_info()["size"])

    def iterdir(self) -> Iterator[Self]:
        if not self.is_remote:
            yield from (self / name for name in os.listdir(self))  # epath leaves out names that end in ~
            return
        names = object_store.attempt(self.url, lambda store: store.ls(self.url, detail=False))
        own = self.url.partition("://")[2].rstrip("/")
        yield from (self / posixpath.basename(name) for name in names if name.rstrip("/") != own)

    def files_below(self) -> list[Self]:
        """Return all files in the directory and its subdirectories, sorted."""
        if not self.is_remote:
            files = sorted(os.path.join(folder, name) for folder, _, names in os.walk(self) for name in names)
            return [type(self)(path) for path in files]
        return [type(self)(url) for url in object_directories.urls_below(self.url) if not url.endswith("/")]

    def sizes_below(self) -> dict[str, int]:
        """Return the size in bytes of all files in the directory and its subdirectories, by relative name."""
        if not self.is_remote:
            return {str(file.relative_to(self)): file.size() for file in self.files_below()}
        objects = object_store.attempt(self.url, lambda store: store.find(self.url, detail=True))
        own = self.url.partition("://")[2].rstrip("/") + "/"
        return {name.removeprefix(own): int(info["size"]) for name, info in objects.items() if not name.endswith("/")}

    def glob(self, pattern: str) -> Iterator[Self]:
        pattern = f"{glob.escape(self.url)}/{pattern}"
        if not self.is_remote:
            yield from map(type(self), glob.glob(pattern))
            return
        scheme = self.url.partition("://")[0]
        names = object_store.attempt(self.url, lambda store: store.glob(pattern))
        yield from (type(self)(f"{scheme}://{name}") for name in names)

    def mkdir(self, mode: int | None = None, parents: bool = False, exist_ok: bool = False) -> None:
        """Create a directory; in an object store, only check that the bucket exists."""
        if not self.is_remote:
            super().mkdir(mode, parents, exist_ok)
        else:
            object_store.check_bucket(self.url)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove a file; an object may be missing, as the response to an earlier request may have been lost."""
        if not self.is_remote:
            super().unlink(missing_ok)
            return
        object_directories.remove_object(self.url)

    def rmtree(self, missing_ok: bool = False) -> None:
        if not self.is_remote:
            super().rmtree(missing_ok)
        else:
            object_directories.remove_tree(self.url, missing_ok)

    def rmdir(self) -> None:
        if not self.is_remote:
            super().rmdir()

    def rename(self, target: PathLike) -> Self:
        """Move a file or directory; not atomic in an object store, where objects are moved one by one."""
        target = type(self)(target)
        if not self.is_remote:
            return super().rename(target)
        paths = [self] if self.is_file() else self.files_below()
        object_directories.move([path.url for path in paths], self.url, target.url)
        return target

    def replace(self, target: PathLike) -> Self:
        return self.rename(target) if self.is_remote else super().replace(target)

    def open(self, mode: str = "r", **options: Any) -> IO[Any]:
        """Open a file as `pathlib.Path.open` does; objects can only be read (see `storage.open_atomically`)."""
        if not self.is_remote:
            return super().open(mode, **options)
        if mode not in ("r", "rb"):
            raise ValueError(
                f"{self}: expected mode r or rb for an object (storage.open_atomically writes), found {mode!r}"
            )
        info = self._existing_info()
        if info["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, "is a directory", self.url)
        binary = io.BufferedReader(object_reader.ObjectReader(int(info["size"]), self.read_range))
        return binary if mode == "rb" else io.TextIOWrapper(binary, encoding="utf-8")

    def read_bytes(self) -> bytes:
        if not self.is_remote:
            return super().read_bytes()
        return object_store.attempt(self.url, lambda store: store.cat_file(self.url))

    def read_range(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop` - 1, or fewer at the end of the file."""
        if not self.is_remote:
            with open(self, "rb", buffering=0) as file:
                return os.pread(file.fileno(), stop - start, start)
        if stop <= start:
            return b""

        def read(store: Any) -> bytes:
            try:
                return store.cat_file(self.url, start=start, end=stop)
            except Exception as error:
                if object_store.status_of(error) == 416:  # the range begins after the end
                    return b""
                raise

        return object_store.attempt(self.url, read)

    def write_bytes(self, data: bytes) -> int:
        """Write a whole file; atomic in an object store."""
        if not self.is_remote:
            return super().write_bytes(data)
        object_store.attempt(self.url, lambda store: store.pipe_file(self.url, bytes(data)))
        return len(data)

    def write_text(self, data: str, encoding: str | None = None, errors: str | None = None) -> int:
        return self.write_bytes(data.encode(encoding or "utf-8", errors or "strict"))

    def upload(self, local: PathLike) -> None:
        """Upload a local file to this object."""
        object_store.attempt(self.url, lambda store: store.put_file(os.fspath(local), self.url))

    def download(self, local: PathLike) -> None:
        """Download this object to a local file."""
        object_store.attempt(self.url, lambda store: store.get_file(self.url, os.fspath(local)))

    def create(self, data: bytes) -> bool:
        """Write an object if it does not exist; return whether it was written. Only one of several writers succeeds."""
        try:
            object_store.attempt(self.url, lambda store: store.pipe_file(self.url, data, mode="create"))
        except FileExistsError:
            # The response to our own earlier request may have been lost.
            return self.read_bytes() == data
        return True

    def _existing_info(self) -> dict[str, Any]:
        return object_store.attempt(self.url, lambda store: store.info(self.url))

    def _info(self) -> dict[str, Any] | None:
        try:
            return self._existing_info()
        except FileNotFoundError as error:
            if error.filename != self.url:  # the error names the bucket
                raise
            return None


def _checked(parts: tuple[PathLike, ...]) -> tuple[PathLike, ...]:
    """Raise InputError for a URL with an unknown scheme."""
    url = _URL.match(os.fspath(parts[0])) if parts else None
    if url and url[1] not in object_store.URL_SCHEMES:
        known = ", ".join(f"{name}://" for name in object_store.URL_SCHEMES)
        raise InputError(f"{os.fspath(parts[0])}: expected a local path or one of {known}, found {url[0]}")
    return parts
