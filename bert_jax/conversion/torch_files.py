"""PyTorch's `pytorch_model.bin` without PyTorch, and without running anything that is inside it.

Such a file is a pickle, and unpickling is a programming language. Here the pickle may name only the few things that a
state dict is made of (`_ALLOWED`); what they make are descriptions of tensors (`_Tensor`), whose bytes are then cut out
of the file's storages with every offset and stride checked. Any other name is refused before anything is called.

Both layouts of `torch.save` are read: the zip archive (since PyTorch 1.6) and the older sequence of pickles.
"""

import collections
import io
import math
import pickle
import pickletools
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import ml_dtypes
import numpy as np
from etils import epath

from bert_jax import files
from bert_jax.errors import InputError

_STORAGES = {
    "DoubleStorage": np.float64,
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "BFloat16Storage": ml_dtypes.bfloat16,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}
# The opcodes that `torch.save` writes, under Python 2 and 3.
# fmt: off
_OPCODES = frozenset({
    "PROTO", "FRAME", "MEMOIZE", "MARK", "STOP", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2",
    "TUPLE3", "SETITEM", "SETITEMS", "APPEND", "APPENDS", "BINUNICODE", "SHORT_BINUNICODE", "BINSTRING",
    "SHORT_BINSTRING", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "NONE", "NEWTRUE", "NEWFALSE", "BINPUT",
    "LONG_BINPUT", "BINGET", "LONG_BINGET", "GLOBAL", "STACK_GLOBAL", "BINPERSID", "REDUCE", "BUILD",
})
# fmt: on
# What opens the older layout: a magic number and a protocol version (torch/serialization.py).
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001


# The three are named tuples because a pickle can set attributes on what it holds: these take none.
class _StorageType(NamedTuple):
    """Stands for `torch.FloatStorage` and its kin."""

    name: str

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(_STORAGES[self.name])


class _Storage(NamedTuple):
    """A run of `numel` elements kept in the file under `key`; `offset` elements in when it is a view of it."""

    key: str
    dtype: np.dtype
    numel: int
    offset: int = 0


class _Tensor(NamedTuple):
    """A tensor as the pickle describes it: where it lies in its storage."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read(path: files.PathLike) -> dict[str, np.ndarray]:
    """Returns the tensors of a PyTorch state-dict file by name, in the file's own dtypes.

    Raises:
        InputError: it is missing, damaged, not a state dict, or its pickle names anything that a state dict does not
            need; nothing has been run then.
    """
    where = epath.Path(path)
    if not where.exists():
        raise InputError(f"{where}: no such file")
    data = where.read_bytes()
    try:
        state, storage_bytes = (_read_zip if data[:4] == b"PK\x03\x04" else _read_legacy)(data)
        if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
            raise InputError("expected a state dict (names to tensors), found something else")
        tensors = {}
        for name, value in state.items():
            if not isinstance(value, _Tensor):
                raise InputError(f"expected a tensor under {name!r}, found {type(value).__name__}")
            tensors[name] = _cut(value, storage_bytes(value.storage), name)
        return tensors
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except Exception as error:  # a damaged pickle can raise almost anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{where}: expected a whole PyTorch state-dict file, found: {reason}") from None


def _integer(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"expected {what} to be a non-negative integer, found {value!r}")
    return value


def _rebuild_tensor(storage, offset, shape, strides, requires_grad=False, hooks=None, metadata=None) -> _Tensor:
    """Stands for `torch._utils._rebuild_tensor_v2`."""
    if not isinstance(storage, _Storage) or not isinstance(shape, tuple) or not isinstance(strides, tuple):
        raise InputError("expected a tensor's storage, shape and strides, found something else")
    shape = tuple(_integer(size, "a tensor's size") for size in shape)
    strides = tuple(_integer(stride, "a tensor's stride") for stride in strides)
    return _Tensor(storage, _integer(offset, "a tensor's offset"), shape, strides)


def _rebuild_parameter(tensor, requires_grad=True, hooks=None) -> _Tensor:
    """Stands for `torch._utils._rebuild_parameter`."""
    if not isinstance(tensor, _Tensor):
        raise InputError("expected a parameter to hold a tensor, found something else")
    return tensor


class _Closed:
    """A function that a pickle may call and can do nothing else with: it has no attributes to set."""

    __slots__ = ("function",)
    function: Callable[..., Any]

    def __init__(self, function: Callable[..., Any]):
        object.__setattr__(self, "function", function)

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise InputError(f"the pickle tries to set {name!r}")


class _StateDict(collections.OrderedDict):
    """An ordered dict that takes no attributes: `torch.save` attaches `_metadata` to one, which nobody here needs."""

    def __setstate__(self, state: Any) -> None:
        pass


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _Closed(lambda *items: _StateDict(*items)),
    ("torch._utils", "_rebuild_tensor_v2"): _Closed(_rebuild_tensor),
    ("torch._utils", "_rebuild_parameter"): _Closed(_rebuild_parameter),
    **{("torch", name): _StorageType(name) for name in _STORAGES},
}


class _Unpickler(pickle.Unpickler):
    """An unpickler that knows the names in `_ALLOWED` and no others."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file, encoding="utf-8")
        self._file = file

    def load(self) -> Any:
        """The next object of the file, whose opcodes are looked at first."""
        start = self._file.tell()
        for opcode, argument, _ in pickletools.genops(self._file):
            if opcode.name not in _OPCODES:
                raise InputError(f"refused: the pickle uses {opcode.name}, which no state dict needs; nothing was run")
            # A memo index makes the unpickler allocate that many slots, however short the file.
            if opcode.name == "LONG_BINPUT" and int(argument or 0) > self._file.getbuffer().nbytes:
                raise InputError(f"refused: the pickle memoises at {argument}, past its own length")
        self._file.seek(start)
        return super().load()

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise InputError(f"refused: the pickle names {module}.{name}, which no state dict needs; nothing was run")
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        """`('storage', type, key, device, numel)`; the older layout appends None or a view `(key, offset, numel)`."""
        if not isinstance(pid, tuple) or len(pid) not in (5, 6) or pid[0] != "storage":
            raise InputError(f"expected a reference to a storage, found {str(pid)[:80]!r}")
        _, kind, key, _, numel = pid[:5]
        if not isinstance(kind, _StorageType):
            raise InputError(f"expected a storage type, found {str(kind)[:80]!r}")
        numel, offset = _integer(numel, "a storage's size"), 0
        if len(pid) == 6 and pid[5] is not None:
            _, offset, numel = pid[5]
            offset, numel = _integer(offset, "a view's offset"), _integer(numel, "a view's size")
        return _Storage(str(key), kind.dtype, numel, offset)


def _cut(tensor: _Tensor, data: memoryview, name: str) -> np.ndarray:
    """The tensor's values, after checking that it lies inside of its storage."""
    storage, dtype = tensor.storage, tensor.storage.dtype
    if len(data) % dtype.itemsize or (storage.offset + storage.numel) * dtype.itemsize > len(data):
        raise InputError(f"{name}: expected {storage.numel} {dtype} elements in storage, found {len(data)} bytes")
    if len(tensor.shape) != len(tensor.strides):
        raise InputError(f"{name}: shape {list(tensor.shape)} and strides {list(tensor.strides)} differ in rank")
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True))
    count = math.prod(tensor.shape)
    # The count is bounded too: with a stride of 0 a few bytes could claim to be a tensor of any size.
    if count > storage.numel or (count and tensor.offset + last >= storage.numel):
        raise InputError(
            f"{name}: shape {list(tensor.shape)} reaches outside of its storage of {storage.numel} elements"
        )
    if not count:
        return np.zeros(tensor.shape, dtype)
    values = np.frombuffer(data, dtype)[storage.offset + tensor.offset :]
    strides = [stride * dtype.itemsize for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(values, tensor.shape, strides, writeable=False)


def _read_zip(data: bytes) -> tuple[Any, Callable[[_Storage], memoryview]]:
    """The archive: one pickle `NAME/data.pkl` and the storages `NAME/data/KEY`, uncompressed, each with a CRC-32."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except zipfile.BadZipFile as error:
        raise InputError(f"expected a whole zip archive, found: {error}") from None
    members = {info.filename: info for info in archive.infolist()}
    pickles = [name for name in members if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        raise InputError(f"expected one NAME/data.pkl in the archive, found {len(pickles)}")
    root = pickles[0].removesuffix("data.pkl")

    def member(name: str) -> bytes:
        if name not in members:
            raise InputError(f"expected {name!r} in the archive, found no such member")
        if members[name].compress_type != zipfile.ZIP_STORED:  # torch never compresses; a bomb would
            raise InputError(f"expected {name!r} to be stored uncompressed in the archive")
        try:
            return archive.read(name)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise InputError(f"{name!r} in the archive is damaged: {error}") from None

    if f"{root}byteorder" in members and member(f"{root}byteorder").strip() != b"little":
        raise InputError("expected little-endian storages")
    storages: dict[str, memoryview] = {}

    def storage_bytes(storage: _Storage) -> memoryview:
        if storage.key not in storages:
            storages[storage.key] = memoryview(member(f"{root}data/{storage.key}"))
        return storages[storage.key]

    return _Unpickler(io.BytesIO(member(pickles[0]))).load(), storage_bytes


def _read_legacy(data: bytes) -> tuple[Any, Callable[[_Storage], memoryview]]:
    """The older layout: pickles of magic number, version, system, state dict and storage keys, then the storages.

    Each storage is its number of elements (int64) and its bytes, in the order of the keys.
    """
    stream = io.BytesIO(data)

    def load() -> Any:
        return _Unpickler(stream).load()

    # Not by `!=` on anything unpickled but integers: these come from the file too.
    if load() != _LEGACY_MAGIC or load() != _LEGACY_PROTOCOL:
        raise InputError("expected a PyTorch file, found another pickle")
    system = load()
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise InputError("expected little-endian storages")
    unpickler = _LegacyUnpickler(stream)
    state, keys = unpickler.load(), load()
    storages: dict[str, memoryview] = {}
    position, view = stream.tell(), memoryview(data)
    if not isinstance(keys, list):
        raise InputError("expected the list of storage keys")
    for key in map(str, keys):
        if key not in unpickler.itemsizes:
            raise InputError(f"storage {key!r} belongs to no tensor")
        size = int.from_bytes(view[position : position + 8], "little") * unpickler.itemsizes[key]
        position += 8
        if position + size > len(data):
            raise InputError(f"truncated: storage {key!r} needs {size} bytes, found {max(0, len(data) - position)}")
        storages[key] = view[position : position + size]
        position += size

    def storage_bytes(storage: _Storage) -> memoryview:
        if storage.key not in storages:
            raise InputError(f"storage {storage.key!r} is not in the file")
        return storages[storage.key]

    return state, storage_bytes


class _LegacyUnpickler(_Unpickler):
    """Remembers the element size of each storage, which the older layout does not write beside its bytes."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file)
        self.itemsizes: dict[str, int] = {}

    def persistent_load(self, pid: Any) -> _Storage:
        storage = super().persistent_load(pid)
        self.itemsizes[storage.key] = storage.dtype.itemsize
        return storage
