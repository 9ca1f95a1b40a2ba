"""Files of a search index: the texts, and arrays that are written in constant memory and read by memory mapping."""

import contextlib
import json
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax import storage
from bert_jax.errors import InputError, printable

ABOUT = "index.json"
_VERSIONS = (1, 2)  # 2 = an index that has grown, whose `index.json` names its segments
_ROWS_COPIED = 1 << 14


class IndexWriter:
    """The files of an index under construction, in a local directory.

    An array is a file NAME.bin of its values; `index.json` has its dtype and shape.
    """

    def __init__(self, directory: storage.Path):
        self.directory = directory
        self._arrays: dict[str, tuple[np.dtype, tuple[int, ...]]] = {}
        self._files: dict[str, Any] = {}

    def append(self, name: str, rows: Any) -> None:
        """Append rows `[n, ...]` to an array, whose first rows set its dtype and width."""
        rows = np.ascontiguousarray(rows)
        if name not in self._files:
            self._files[name] = (self.directory / f"{name}.bin").open("wb")
            self._arrays[name] = (rows.dtype, (0, *rows.shape[1:]))
        kind, (count, *width) = self._arrays[name]
        self._files[name].write(rows.astype(kind, copy=False).tobytes())
        self._arrays[name] = (kind, (count + len(rows), *width))

    def append_rows(self, name: str, array: np.ndarray, rows: np.ndarray) -> None:
        """Append rows of another array, by their numbers, in constant memory."""
        self.append(name, array[:0])
        for start in range(0, len(rows), _ROWS_COPIED):
            self.append(name, array[rows[start : start + _ROWS_COPIED]])

    def append_texts(self, texts: Sequence[str], name: str = "text") -> None:
        """Append texts, or with the name `id` ids."""
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        self.append(f"{name}s", np.frombuffer(b"".join(encoded), np.uint8))
        self.append(f"{name}_lengths", np.array([len(text) for text in encoded], np.int64))

    def create(self, name: str, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        """Return a new memory-mapped array to be filled."""
        self._arrays[name] = (np.dtype(dtype), shape)
        (self.directory / f"{name}.bin").write_bytes(b"")
        return _mapped(self.directory, name, *self._arrays[name], "w+")

    def read(self, name: str) -> np.ndarray:
        """Return the rows of an array that are written so far."""
        if name in self._files:
            self._files[name].flush()
        return _mapped(self.directory, name, *self._arrays[name], "r")

    def drop(self, name: str) -> None:
        """Remove an array that the finished index does not need."""
        self._files.pop(name).close()
        del self._arrays[name]
        (self.directory / f"{name}.bin").unlink()

    def close_files(self) -> None:
        """Close the files of the arrays."""
        for file in self._files.values():
            file.close()

    def close(self, kind: str, about: dict[str, Any]) -> None:
        """Close the files of the arrays, and write `index.json` last."""
        self.close_files()
        arrays = {name: {"dtype": dtype.str, "shape": shape} for name, (dtype, shape) in sorted(self._arrays.items())}
        content = {"version": _VERSIONS[0], "kind": kind} | about | {"arrays": arrays}
        storage.write_atomically(self.directory / ABOUT, json.dumps(content, indent=2) + "\n")


class IndexFiles:
    """The files of a finished index.

    Attributes:
        directory: the directory.
        about: the content of `index.json`.
    """

    def __init__(self, directory: storage.PathLike):
        self.directory = storage.Path(directory)
        path = self.directory / ABOUT
        if self.directory.is_remote or not path.exists():
            raise InputError(f"{directory}: expected a local directory with an index ({ABOUT}), found none")
        self.about: dict[str, Any] = storage.read_json(path)
        if self.about.get("version") not in _VERSIONS or not isinstance(self.about.get("arrays"), dict):
            expected = f"an index of version {' or '.join(map(str, _VERSIONS))}"
            raise InputError(f"{path}: expected {expected}, found {self.about.get('version')!r}")
        self._strings: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # name -> bytes, and the start of each string

    @property
    def count(self) -> int:
        """Return the number of texts. Raises InputError if `index.json` has no valid number."""
        count = self.about.get("texts")
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise InputError(f"{self.directory / ABOUT}: texts: expected a number, found {printable(repr(count), 60)}")
        return count

    @property
    def size(self) -> int | None:
        """Return the size that vectors were truncated to; None = not truncated. Raises InputError if it is invalid."""
        size = self.about.get("size")
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            expected = "null or a positive number"
            raise InputError(f"{self.directory / ABOUT}: size: expected {expected}, found {printable(repr(size), 60)}")
        return size

    def array(self, name: str, dtype: Any, shape: tuple[int | None, ...]) -> np.ndarray:
        """Return an array, mapped into memory.

        Args:
            name: name of the array.
            dtype: its dtype.
            shape: its shape; None = a dimension of any size.

        Raises:
            InputError: the array has another dtype or shape, or its file is missing or has another size.
        """
        entry = self.about["arrays"].get(name)
        try:
            sizes = tuple(operator.index(size) for size in entry["shape"])
            fits = str(entry["dtype"]) == np.dtype(dtype).str and len(sizes) == len(shape)
        except (KeyError, TypeError):
            sizes, fits = (), False
        if not fits or any(
            size < 0 or expected not in (None, size) for size, expected in zip(sizes, shape, strict=False)
        ):
            dimensions = ", ".join("any" if size is None else f"{size:,}" for size in shape)
            expected = f"{name} of dtype {np.dtype(dtype).str} and shape [{dimensions}]"
            raise InputError(f"{self.directory / ABOUT}: expected {expected}, found {printable(repr(entry), 100)}")
        path, size = self.directory / f"{name}.bin", np.dtype(dtype).itemsize * math.prod(sizes)
        bytes_there = path.size() if path.exists() else None
        if bytes_there != size:
            file = "no file" if bytes_there is None else f"{bytes_there:,}"
            raise InputError(f"{path}: expected {size:,} bytes, found {file}")
        return _mapped(self.directory, name, np.dtype(dtype), sizes, "r")

    def starts(self, lengths: np.ndarray, total: int, name: str) -> np.ndarray:
        """Return the offsets of consecutive parts with `lengths`: the start of each part, then `total`.

        Raises:
            InputError: the lengths, which are of the array `name`, do not add up to `total`.
        """
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        if (lengths < 0).any() or starts[-1] != total:
            raise self.damaged(f"{name} with a sum of {total:,}")
        return starts

    def damaged(self, expected: str) -> InputError:
        """Return the error for an index whose files do not fit together."""
        return InputError(f"{self.directory}: expected {expected}, found other values; the index is damaged")

    def texts(self, numbers: Sequence[int], name: str = "text") -> list[str]:
        """Return texts of the corpus by their numbers, or with the name `id` their ids."""
        content, starts = self.strings(name)
        try:
            return [content[starts[i] : starts[i + 1]].tobytes().decode("utf-8", "surrogatepass") for i in numbers]
        except UnicodeDecodeError:
            raise self.damaged(f"{name}s in UTF-8") from None

    def strings(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the bytes of all texts, or with the name `id` ids, and the start of each, then their number."""
        if name not in self._strings:
            content = self.array(f"{name}s", np.uint8, (None,))
            lengths = self.array(f"{name}_lengths", np.int64, (self.count,))
            self._strings[name] = content, self.starts(lengths, len(content), f"{name}_lengths")
        return self._strings[name]


@contextlib.contextmanager
def new_index(directory: storage.PathLike) -> Iterator[IndexWriter]:
    """Yield the writer of a new index, which is moved to `directory` if the block succeeds.

    Raises:
        InputError: the directory is in an object store, or exists and is not empty.
    """
    if storage.is_remote(directory):
        raise InputError(f"{directory}: expected a local directory, as an index is mapped into memory")
    with storage.directory_atomically(directory) as beside:
        yield IndexWriter(beside)


def _mapped(directory: storage.Path, name: str, dtype: np.dtype, shape: tuple[int, ...], mode: Any) -> np.ndarray:
    if not np.prod(shape):  # skip empty files, which cannot be mapped
        return np.zeros(shape, dtype)
    return np.memmap(str(directory / f"{name}.bin"), dtype, mode, shape=shape)
