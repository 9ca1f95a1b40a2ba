"""Read and write Hugging Face's `flax_model.msgpack`: nested dicts of arrays in MessagePack (`flax.serialization`).

An array is an extension of type 1 that holds the packed (shape, name of the dtype, bytes); a long array is a dict of
chunks, each an array. A file is read whole; arrays are written one at a time.
"""

import contextlib
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import ml_dtypes
import msgpack
import numpy as np

from bert_jax import storage
from bert_jax.conversion.formats import lazy_tensors
from bert_jax.conversion.formats.lazy_tensors import LazyTensor, Tensors
from bert_jax.errors import InputError

_DTYPES = {
    np.dtype(kind).name: np.dtype(kind)
    for kind in (
        *(np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.bool_),
        *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    )
}
_CHUNKED = "__msgpack_chunked_array__"
_ARRAYS = (1, 3)  # extension types of arrays and of numpy scalars, which are written as arrays without axes
_BYTES = (0xC4, 0xC5, 0xC6)  # MessagePack types of bytes
_LONGEST_DESCRIPTION = 512  # limit of the bytes before an array's values
# Names that `nn.scan` and Hugging Face give to stacked layers; some files have none.
_STACK = re.compile(r"(Flax)?ScanLayers|[Ss]can_?[Ll]ayers?|\w*Collection_\d+")


def begins(start: bytes) -> bool:
    """Return whether a file with these first bytes can be a dict in MessagePack."""
    return start[:1] != b"" and (0x80 <= start[0] <= 0x8F or start[0] in (0xDE, 0xDF))


@contextlib.contextmanager
def open_tensors(path: storage.PathLike) -> Iterator[Tensors]:
    """Yield the arrays of a file by Flax's names, as `a/b/c`; if there is a dict `params`, only its arrays.

    Stacked layers are split: `layer/attention/...` becomes `layer/0/attention/...`, `layer/1/attention/...`, ...

    Raises:
        InputError: the file is missing, truncated, not MessagePack, or no tree of parameters.
    """
    with storage.open_offsets(path) as file, lazy_tensors.about(file.path):
        tree = _restored(file.array(0, (file.size,), np.dtype(np.uint8)))
        tensors: Tensors = {}
        for name, array in _flatten(tree["params"] if isinstance(tree.get("params"), dict) else tree):
            for single, values in _unstacked(name, array):
                if single in tensors:
                    raise InputError(f"expected each array once, found {single!r} twice")
                tensors[single] = _in_memory(values)
                if len(tensors) > lazy_tensors.MOST_TENSORS:
                    raise InputError(f"expected at most {lazy_tensors.MOST_TENSORS} arrays, found more")
    yield tensors


def _in_memory(array: np.ndarray) -> LazyTensor:
    return LazyTensor(array.shape, array.dtype, lambda: array)


def renamed(arrays: Tensors) -> Tensors:
    """Give arrays the names and the orientation that they have in PyTorch.

    Raises:
        InputError: two arrays have the same name in PyTorch.
    """
    tensors: Tensors = {}
    for name, array in arrays.items():
        new = re.sub(r"(^|/)(kernel|scale|embedding)$", r"\1weight", name).replace("/", ".")
        if new in tensors:
            raise InputError(
                f"array {name!r}: expected its PyTorch name {new!r} to be unique, found another array of that name"
            )
        flipped = re.search(r"(^|/)kernel$", name) and len(array.shape) == 2
        tensors[new] = array.transposed() if flipped else array
    return tensors


def _restored(content: np.ndarray) -> dict[str, Any]:
    """Return the nested dicts of a file, with bounds on their size, so that a small file cannot take much memory."""
    entries = 0

    def as_dict(pairs: list[tuple[Any, Any]]) -> Any:
        nonlocal entries
        entries += len(pairs)
        if entries > 4 * lazy_tensors.MOST_TENSORS:
            raise InputError(f"expected at most {lazy_tensors.MOST_TENSORS} arrays, found dicts of {entries} entries")
        tree: dict[str, Any] = {}
        for key, value in pairs:
            if not isinstance(key, str | int) or str(key) in tree:
                raise InputError(f"expected a dict of distinct names, found {str(key)[:80]!r} twice or no name")
            tree[str(key)] = value
        return _joined(tree) if _CHUNKED in tree else tree

    try:
        tree = msgpack.unpackb(
            content, object_pairs_hook=as_dict, ext_hook=_array, strict_map_key=False, max_array_len=0,
            max_map_len=2 * lazy_tensors.MOST_TENSORS, max_str_len=1024,
        )  # fmt: skip
    except InputError:
        raise
    except ValueError as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"expected nested dicts of arrays in MessagePack, found: {reason}") from None
    if not isinstance(tree, dict):
        raise InputError(f"expected a dict of arrays, found {type(tree).__name__}")
    return tree


def _array(code: int, content: bytes) -> np.ndarray:
    """Return the array in a MessagePack extension, a view of its bytes."""
    if code not in _ARRAYS:
        raise InputError(f"expected arrays, found a MessagePack extension of type {code}")
    description = msgpack.Unpacker(max_buffer_size=_LONGEST_DESCRIPTION)
    description.feed(content[:_LONGEST_DESCRIPTION])
    try:
        length, shape, name = description.read_array_header(), description.unpack(), description.unpack()
    except (ValueError, msgpack.UnpackException):
        length, shape, name = 0, [], ""
    if length != 3 or not isinstance(name, str) or name not in _DTYPES:
        found = f"{length} values and the dtype {str(name)[:80]!r}"
        raise InputError(f"expected the shape, the dtype ({', '.join(_DTYPES)}) and bytes of an array, found {found}")
    shape, dtype = lazy_tensors.checked_shape(shape, "an array"), _DTYPES[name]
    size, before = math.prod(shape) * dtype.itemsize, description.tell()
    start = len(content) - size
    if start <= before or content[before] not in _BYTES or int.from_bytes(content[before + 1 : start]) != size:
        raise InputError(f"expected {size} bytes for an array {name} {list(shape)}, found others")
    return np.frombuffer(content, dtype, offset=start).reshape(shape)


def _joined(chunked: dict[str, Any]) -> np.ndarray:
    """Return the array that a dict of chunks describes."""
    sizes, chunks = chunked.get("shape"), chunked.get("chunks")
    if not isinstance(sizes, dict) or not isinstance(chunks, dict):
        kinds = f"{type(sizes).__name__} and {type(chunks).__name__}"
        raise InputError(f"expected the shape and the chunks of an array as dicts, found {kinds}")
    shape = lazy_tensors.checked_shape([sizes.get(str(i)) for i in range(len(sizes))], "a chunked array")
    parts = [part for i in range(len(chunks)) if isinstance(part := chunks.get(str(i)), np.ndarray)]
    dtypes = {part.dtype for part in parts}
    if len(parts) != len(chunks) or len(dtypes) != 1:
        raise InputError(
            f"expected the {len(chunks)} chunks of an array to be arrays of the same dtype, found {len(parts)} "
            f"arrays of {len(dtypes)} dtypes"
        )
    count = sum(part.size for part in parts)
    if count != math.prod(shape):
        raise InputError(f"expected chunks of {math.prod(shape)} values in all, for shape {list(shape)}, found {count}")
    return np.concatenate([part.reshape(-1) for part in parts]).reshape(shape)


def _flatten(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of nested dicts by path; other values, such as a step number, are skipped."""
    for name, value in tree.items():
        path = lazy_tensors.checked_name(f"{prefix}{name}")
        if isinstance(value, dict):
            yield from _flatten(value, f"{path}/")
        elif isinstance(value, np.ndarray):
            yield path, value


def _unstacked(name: str, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield an array, or for stacked layers each layer with its number in the name."""
    match = re.match(r"((?:.*/)?layers?)/(?!\d+/)(.+)$", name)
    if match is None:
        yield name, array
        return
    before, rest = match.groups()
    scope, _, inner = rest.partition("/")
    if inner and _STACK.fullmatch(scope):
        rest = inner
    if not array.shape or len(array) > lazy_tensors.MOST_TENSORS:
        raise InputError(f"array {name!r}: expected layers on a leading axis, found shape {list(array.shape)}")
    for number, layer in enumerate(array):
        yield f"{before}/{number}/{rest}", layer


def write(path: storage.PathLike, tensors: Mapping[str, np.ndarray | LazyTensor]) -> None:
    """Write tensors with PyTorch's names and orientation as a file for Hugging Face's Flax models.

    The file is written completely or not at all. Lazy tensors are read one at a time.

    Raises:
        InputError: two names conflict in the tree, or a tensor has an unsupported dtype.
    """
    tree: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if np.dtype(tensor.dtype).name not in _DTYPES:
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
        stored = tensor if isinstance(tensor, LazyTensor) else _in_memory(tensor)
        node[leaf] = stored.transposed() if flipped else stored
    with storage.open_binary_atomically(path) as file:
        _write_tree(file, tree, msgpack.Packer())


def _flax_leaf(scopes: list[str], last: str, rank: int) -> tuple[str, bool]:
    """Return Flax's name of a PyTorch parameter, and whether Flax stores it transposed."""
    if last != "weight" or rank not in (1, 2):
        return last, False
    if rank == 1:
        return "scale", False
    if scopes and re.search(r"embeddings?$|^relative_attention_bias$", scopes[-1]):
        return "embedding", False
    return "kernel", True


def _write_tree(file: BinaryIO, tree: dict[str, Any], packer: msgpack.Packer) -> None:
    from flax.serialization import msgpack_serialize  # not imported where models are only read

    file.write(packer.pack_map_header(len(tree)))
    for name, value in sorted(tree.items()):  # sorted, as Flax does
        file.write(packer.pack(name))
        if isinstance(value, dict):
            _write_tree(file, value, packer)
        else:
            file.write(msgpack_serialize(value.read()))
