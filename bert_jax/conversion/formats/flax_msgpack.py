"""Read and write Hugging Face's `flax_model.msgpack`: nested dicts of arrays in MessagePack (`flax.serialization`).

An array is an extension of type 1 that holds the packed (shape, name of the dtype, bytes); an array over `MAX_CHUNK`
bytes is a dict of such chunks. The reader walks the structure by offset and skips the bytes; a MessagePack library
would load all of them at once.
"""

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from bert_jax import storage
from bert_jax.conversion.formats import lazy_tensors
from bert_jax.conversion.formats.lazy_tensors import LazyTensor
from bert_jax.errors import InputError

MAX_CHUNK = 2**30  # bytes; as in `flax.serialization`
_DTYPES = {
    np.dtype(kind).name: np.dtype(kind)
    for kind in (
        *(np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.bool_),
        *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    )
}
_CHUNKED = "__msgpack_chunked_array__"
_ARRAYS = (1, 3)  # extension types of arrays and of numpy scalars, which are written as arrays without axes
# Names that `nn.scan` and Hugging Face give to stacked layers; some files have none.
_STACK = re.compile(r"(Flax)?ScanLayers|[Ss]can_?[Ll]ayers?|\w*Collection_\d+")
# Bounds on the structure, so that a small file cannot take much memory.
_DEEPEST = 64
_LONGEST_TEXT = 1024  # bytes
_WINDOW = 2**12  # bytes


@dataclasses.dataclass(frozen=True)
class _Array:
    """An array in the file, in one or more parts of (offset, size) in bytes."""

    shape: tuple[int, ...]
    dtype: np.dtype
    parts: tuple[tuple[int, int], ...]

    def stored(self, file: storage.OpenFile, skipped: int = 0, shape: tuple[int, ...] | None = None) -> LazyTensor:
        """Return a lazy tensor of `shape` that begins after `skipped` values of the array."""
        shape = self.shape if shape is None else shape

        def read() -> np.ndarray:
            values = np.empty(shape, self.dtype)
            left, begin = memoryview(values.reshape(-1).view(np.uint8)), skipped * self.dtype.itemsize
            for offset, size in self.parts:
                here = min(max(0, size - begin), len(left))
                file.fill(offset + begin, left[:here])
                left, begin = left[here:], max(0, begin - size)
            return values

        return LazyTensor(shape, self.dtype, read)


def begins(start: bytes) -> bool:
    """Return whether a file with these first bytes can be a dict in MessagePack."""
    return start[:1] != b"" and (0x80 <= start[0] <= 0x8F or start[0] in (0xDE, 0xDF))


@contextlib.contextmanager
def open_tensors(path: storage.PathLike) -> Iterator[dict[str, LazyTensor]]:
    """Yield the arrays of a file by Flax's names, as `a/b/c`; of a dict with `params`, only the arrays in `params`.

    Stacked layers are split: `layer/attention/...` becomes `layer/0/attention/...`, `layer/1/attention/...`, ...

    Raises:
        InputError: the file is missing, truncated, not MessagePack, or no tree of parameters.
    """
    with storage.open_offsets(path) as file:
        with lazy_tensors.about(file.path):
            reader = _Reader(file)
            tree = reader.value()
            if reader.position != file.size:
                raise InputError(f"expected a file of {reader.position} bytes, found {file.size}")
            if isinstance(tree, dict) and isinstance(tree.get("params"), dict):
                tree = tree["params"]
            if not isinstance(tree, dict):
                raise InputError(f"expected a dict of arrays, found {type(tree).__name__}")
            tensors: dict[str, LazyTensor] = {}
            for name, array in _flatten(tree):
                for single, tensor in _unstacked(file, name, array):
                    if single in tensors:
                        raise InputError(f"expected each array once, found {single!r} twice")
                    tensors[single] = tensor
                    if len(tensors) > lazy_tensors.MOST_TENSORS:
                        raise InputError(f"expected at most {lazy_tensors.MOST_TENSORS} arrays, found more")
        yield tensors


def renamed(arrays: dict[str, LazyTensor]) -> dict[str, LazyTensor]:
    """Give arrays the names and the orientation that they have in PyTorch.

    Raises:
        InputError: two arrays have the same name in PyTorch.
    """
    tensors: dict[str, LazyTensor] = {}
    for name, array in arrays.items():
        new = re.sub(r"(^|/)(kernel|scale|embedding)$", r"\1weight", name).replace("/", ".")
        if new in tensors:
            raise InputError(
                f"array {name!r}: expected its PyTorch name {new!r} to be unique, found another array of that name"
            )
        flipped = re.search(r"(^|/)kernel$", name) and len(array.shape) == 2
        tensors[new] = array.transposed() if flipped else array
    return tensors


def _flatten(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, _Array]]:
    """Yield the arrays of nested dicts by path; other values, such as a step number, are skipped."""
    for name, value in tree.items():
        path = lazy_tensors.checked_name(f"{prefix}{name}")
        if isinstance(value, dict):
            yield from _flatten(value, f"{path}/")
        elif isinstance(value, _Array):
            yield path, value


def _unstacked(file: storage.OpenFile, name: str, array: _Array) -> Iterator[tuple[str, LazyTensor]]:
    """Yield an array, or for stacked layers each layer with its number in the name."""
    match = re.match(r"((?:.*/)?layers?)/(?!\d+/)(.+)$", name)
    if match is None:
        yield name, array.stored(file)
        return
    before, rest = match.groups()
    scope, _, inner = rest.partition("/")
    if inner and _STACK.fullmatch(scope):
        rest = inner
    if not array.shape or array.shape[0] > lazy_tensors.MOST_TENSORS:
        raise InputError(f"array {name!r}: expected layers on a leading axis, found shape {list(array.shape)}")
    shape = array.shape[1:]
    for layer in range(array.shape[0]):
        yield f"{before}/{layer}/{rest}", array.stored(file, layer * math.prod(shape), shape)


class _Reader:
    """A parser of the MessagePack types that Flax's files use.

    Attributes:
        position: offset of the next byte.
    """

    def __init__(self, file: storage.OpenFile):
        self.position = 0
        self._file = file
        self._window, self._start = b"", 0
        self._entries = 0

    def value(self, depth: int = 0) -> Any:
        """Parse the next value: a dict, an `_Array`, an integer or a string; skip other types and return None."""
        kind = self._take(1)[0]
        if kind < 0x80 or kind >= 0xE0:
            return kind if kind < 0x80 else kind - 0x100
        if kind < 0x90 or kind in (0xDE, 0xDF):
            return self._dict(kind & 0x0F if kind < 0x90 else self._number(2 if kind == 0xDE else 4), depth)
        if 0xA0 <= kind < 0xC0 or 0xD9 <= kind <= 0xDB:
            return self._text(kind & 0x1F if kind < 0xC0 else self._number(1 << kind - 0xD9))
        if 0xCC <= kind <= 0xD3:
            return self._number(1 << (kind - 0xCC) % 4, signed=kind >= 0xD0)
        if 0xD4 <= kind <= 0xD8 or 0xC7 <= kind <= 0xC9:
            return self._extension(1 << kind - 0xD4 if kind >= 0xD4 else self._number(1 << kind - 0xC7))
        if kind in (0xC0, 0xC2, 0xC3):  # nil, false, true
            return None
        if kind in (0xCA, 0xCB):  # floating point
            return self._skip(4 if kind == 0xCA else 8)
        if 0xC4 <= kind <= 0xC6:  # bytes
            return self._skip(self._number(1 << kind - 0xC4))
        raise InputError(
            f"expected nested dicts of arrays, found MessagePack type 0x{kind:02x} at byte {self.position - 1}"
        )

    def _dict(self, count: int, depth: int) -> Any:
        if depth >= _DEEPEST:
            raise InputError(
                f"expected dicts nested at most {_DEEPEST} deep, found deeper ones at byte {self.position}"
            )
        self._entries += count
        if self._entries > 4 * lazy_tensors.MOST_TENSORS:
            raise InputError(
                f"expected at most {lazy_tensors.MOST_TENSORS} arrays, found dicts of {self._entries} entries"
            )
        found: dict[str, Any] = {}
        for _ in range(count):
            where = self.position
            key = self.value(_DEEPEST)
            if not isinstance(key, str | int) or str(key) in found:
                raise InputError(
                    f"expected distinct names in the dict at byte {where}, found {str(key)[:80]!r} twice or no name"
                )
            found[str(key)] = self.value(depth + 1)
        return _joined(found) if _CHUNKED in found else found

    def _extension(self, size: int) -> _Array:
        """Parse an array and skip its bytes."""
        where, code = self.position, self._take(1)[0]
        if code not in _ARRAYS:
            raise InputError(f"expected an array at byte {where}, found a MessagePack extension of type {code}")
        end = self.position + size
        if self._take(1) != b"\x93":
            raise InputError(f"expected [shape, dtype, bytes] of an array at byte {where}, found no list of three")
        kind = self._take(1)[0]
        if kind & 0xF0 != 0x90:
            raise InputError(f"expected the shape of an array at byte {where}, found MessagePack type 0x{kind:02x}")
        shape = lazy_tensors.checked_shape([self.value(_DEEPEST) for _ in range(kind & 0x0F)], f"array at byte {where}")
        name = self.value(_DEEPEST)
        if not isinstance(name, str) or name not in _DTYPES:
            raise InputError(
                f"array at byte {where}: expected a dtype of {', '.join(_DTYPES)}, found {str(name)[:80]!r}"
            )
        dtype = _DTYPES[name]
        kind = self._take(1)[0]
        if not 0xC4 <= kind <= 0xC6:
            raise InputError(
                f"expected the bytes of an array at byte {self.position}, found MessagePack type 0x{kind:02x}"
            )
        length = self._number(1 << kind - 0xC4)
        if length != math.prod(shape) * dtype.itemsize or self.position + length != end:
            raise InputError(
                f"array at byte {where}: expected {math.prod(shape) * dtype.itemsize} bytes for {name} {list(shape)}, "
                f"found {length} (in a MessagePack extension of {size})"
            )
        start = self.position
        self._skip(length)
        return _Array(shape, dtype, ((start, length),))

    def _text(self, length: int) -> str:
        if length > _LONGEST_TEXT:
            raise InputError(
                f"expected a name of at most {_LONGEST_TEXT} bytes at byte {self.position}, found {length} bytes"
            )
        content = self._take(length)
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise InputError(f"expected a name in UTF-8 at byte {self.position}, found {content[:80]!r}") from None

    def _number(self, width: int, signed: bool = False) -> int:
        return int.from_bytes(self._take(width), "big", signed=signed)

    def _skip(self, count: int) -> None:
        if self.position + count > self._file.size:
            raise InputError(
                f"expected {count} bytes from byte {self.position}, found the end of the file at {self._file.size}"
            )
        self.position += count

    def _take(self, count: int) -> bytes:
        begin = self.position - self._start
        self._skip(count)
        if begin + count > len(self._window):
            self._start, begin = self.position - count, 0
            self._window = self._file.read(self._start, min(_WINDOW, self._file.size - self._start))
        return self._window[begin : begin + count]


def _joined(chunked: dict[str, Any]) -> _Array:
    """Return the array that a dict of chunks describes."""
    sizes, chunks = chunked.get("shape"), chunked.get("chunks")
    if not isinstance(sizes, dict) or not isinstance(chunks, dict):
        raise InputError(
            f"expected the shape and the chunks of an array as dicts, found {type(sizes).__name__} and "
            f"{type(chunks).__name__}"
        )
    shape = lazy_tensors.checked_shape([sizes.get(str(i)) for i in range(len(sizes))], "a chunked array")
    parts = [part for i in range(len(chunks)) if isinstance(part := chunks.get(str(i)), _Array)]
    if len(parts) != len(chunks) or len({part.dtype for part in parts}) != 1:
        raise InputError(
            f"expected the {len(chunks)} chunks of an array to be arrays of the same dtype, found {len(parts)} "
            f"arrays of {len({part.dtype for part in parts})} dtypes"
        )
    if sum(math.prod(part.shape) for part in parts) != math.prod(shape):
        raise InputError(
            f"expected chunks of {math.prod(shape)} values in all, for shape {list(shape)}, found "
            f"{sum(math.prod(part.shape) for part in parts)}"
        )
    return _Array(shape, parts[0].dtype, tuple(extent for part in parts for extent in part.parts))


def write(path: storage.PathLike, tensors: Mapping[str, np.ndarray | LazyTensor]) -> None:
    """Write tensors with PyTorch's names and orientation as a file for Hugging Face's Flax models.

    The file is written completely or not at all. Lazy tensors are read one at a time.

    Raises:
        InputError: two names conflict in the tree, or a tensor has an unsupported dtype.
    """
    tree: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if np.dtype(tensor.dtype).name not in _DTYPES or len(tensor.shape) > 15:
            found = f"{tensor.dtype} {list(tensor.shape)}"
            raise InputError(f"{path}: tensor {name!r}: expected one of {', '.join(_DTYPES)}, found {found}")
        *scopes, last = name.split(".")
        node: Any = tree
        leaf, flipped = _flax_leaf(scopes, last, len(tensor.shape))
        for scope in scopes:
            node = node.setdefault(scope, {})
            if not isinstance(node, dict):
                break
        if not isinstance(node, dict) or leaf in node:
            raise InputError(
                f"{path}: tensor {name!r}: expected a unique name in the tree of dicts, found another tensor or a "
                "dict there"
            )
        node[leaf] = (tensor, flipped)
    with storage.open_binary_atomically(path) as file:
        _write_tree(file, tree)


def _flax_leaf(scopes: list[str], last: str, rank: int) -> tuple[str, bool]:
    """Return Flax's name of a PyTorch parameter, and whether Flax stores it transposed."""
    if last != "weight" or rank not in (1, 2):
        return last, False
    if rank == 1:
        return "scale", False
    if scopes and re.search(r"embeddings?$|^relative_attention_bias$", scopes[-1]):
        return "embedding", False
    return "kernel", True


def _write_tree(file: BinaryIO, tree: dict[str, Any]) -> None:
    file.write(_header(len(tree), 0x80, 16, (None, 0xDE, 0xDF)))
    for name, value in sorted(tree.items()):  # in the order of Flax
        file.write(_text(name))
        if isinstance(value, dict):
            _write_tree(file, value)
            continue
        tensor, flipped = value
        array = tensor.read() if isinstance(tensor, LazyTensor) else tensor
        _write_leaf(file, array.T if flipped else array)


def _write_leaf(file: BinaryIO, array: np.ndarray) -> None:
    if array.nbytes <= MAX_CHUNK:
        _write_array(file, array)
        return
    count = max(1, MAX_CHUNK // array.itemsize)
    flat = array.reshape(-1)
    file.write(b"\x83" + _text(_CHUNKED) + b"\xc3" + _text("shape") + _header(array.ndim, 0x80, 16, (None, 0xDE, 0xDF)))
    for i, size in enumerate(array.shape):
        file.write(_text(str(i)) + _integer(size))
    file.write(_text("chunks") + _header(-(-flat.size // count), 0x80, 16, (None, 0xDE, 0xDF)))
    for i, start in enumerate(range(0, flat.size, count)):
        file.write(_text(str(i)))
        _write_array(file, flat[start : start + count])


def _write_array(file: BinaryIO, array: np.ndarray) -> None:
    shape = b"".join(_integer(size) for size in array.shape)
    inner = b"\x93" + bytes([0x90 | array.ndim]) + shape + _text(array.dtype.name)
    inner += _header(array.nbytes, 0, 0, (0xC4, 0xC5, 0xC6))
    size = len(inner) + array.nbytes
    fixed = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}
    file.write(bytes([fixed[size]]) if size in fixed else _header(size, 0, 0, (0xC7, 0xC8, 0xC9)))
    file.write(b"\x01" + inner)
    for piece in lazy_tensors.pieces(array):
        file.write(piece)


def _header(count: int, short: int, below: int, codes: tuple[int | None, int, int]) -> bytes:
    """Return the header of a value with a length: one byte if `count` is less than `below`, else a code and `count`."""
    if count < below:
        return bytes([short | count])
    for code, width in zip(codes, (1, 2, 4), strict=True):
        if code is not None and count < 1 << 8 * width:
            return bytes([code]) + count.to_bytes(width, "big")
    raise InputError(f"expected fewer than 2**32 bytes or entries, found {count}")


def _text(value: str) -> bytes:
    content = value.encode()
    return _header(len(content), 0xA0, 32, (0xD9, 0xDA, 0xDB)) + content


def _integer(value: int) -> bytes:
    return _header(value, 0, 128, (0xCC, 0xCD, 0xCE))
