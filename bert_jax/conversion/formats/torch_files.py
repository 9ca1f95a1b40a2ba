"""Read PyTorch's `pytorch_model.bin` without PyTorch and without running code.

Its pickle is parsed as a description of tensors (`torch_pickles.py`). The bytes of a tensor are read from its storage
on access, after every offset and stride has been checked.

Both layouts of `torch.save` are supported: the zip archive (since PyTorch 1.6) and the older sequence of pickles.
"""

import contextlib
import io
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bert_jax import storage
from bert_jax.conversion.formats import lazy_tensors
from bert_jax.conversion.formats.lazy_tensors import LazyTensor
from bert_jax.conversion.formats.torch_pickles import (
    Placeholder,
    Tensor,
    Unpickler,
    longest_in,
    most_in,
    whole_object,
)
from bert_jax.errors import InputError, logger

_log = logger(__name__)

# The older layout begins with a magic number and a protocol version (torch/serialization.py).
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001
# Keys under which trainers (Lightning, fairseq, DeepSpeed, Accelerate, hand-written loops) save the model's state dict.
_STATES = (
    "state_dict",
    "model_state_dict",
    "model_state",
    "model",
    "module",
    "net",
    "network",
    "weights",
    "params",
    "app",
)
_DEEPEST_STATE = 3  # maximum number of dicts around a state dict
# Limit of total tensor bytes / file size; above 1 because tied tensors and views of one storage share bytes.
_MOST_SHARING = 16


class _Extent(NamedTuple):
    """The offset and size in bytes of a storage in the file, with its CRC-32 if the file has one."""

    start: int
    size: int
    crc: int | None = None


def begins(start: bytes) -> bool:
    """Return whether a file with these first bytes can be a PyTorch file: a zip archive, or a pickle of protocol 2+."""
    return start[:4] == b"PK\x03\x04" or (start[:1] == b"\x80" and 2 <= int.from_bytes(start[1:2]) <= 5)


@contextlib.contextmanager
def open_tensors(path: storage.PathLike) -> Iterator[dict[str, LazyTensor]]:
    """Yield the tensors of a PyTorch state-dict file by name, in the file's own dtypes.

    Raises:
        InputError: the file is missing, damaged or not a state dict, or its pickle names something that a state dict
            does not need (no code is run). Reading a tensor from a damaged storage raises it too.
    """
    with storage.open_offsets(path) as file:
        with lazy_tensors.about(file.path):
            try:
                described = _open_zip if file.size > 4 and file.read(0, 4) == b"PK\x03\x04" else _open_legacy
                tensors = _tensors(file, *described(file))
            except InputError:
                raise
            except Exception as error:  # a damaged pickle can raise almost anything
                reason = " ".join(str(error).split())[:200] or type(error).__name__
                raise InputError(f"expected a whole PyTorch state-dict file, found: {reason}") from None
        yield tensors


def _tensors(file: storage.OpenFile, state: Any, extents: dict[str, _Extent]) -> dict[str, LazyTensor]:
    """Return the lazy tensors of a state dict, after checking that their bytes are in the file."""
    state = _model_state(state)
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise InputError("expected a state dict (names to tensors), found something else")
    if len(state) > most_in(file.size):
        raise InputError(f"expected at most {most_in(file.size)} tensors, found {len(state)}")
    others = {name: value for name, value in state.items() if not isinstance(value, Tensor)}
    if others and (len(others) == len(state) or any(_is_part_of_torch(value) for value in others.values())):
        raise _no_tensor(*next(iter(others.items())))
    if others:
        _log.warning("%s: ignored, as they are not tensors: %s", file.path, ", ".join(sorted(others)[:10]))
    whole: set[str] = set()  # keys of the storages whose CRC-32 has been verified
    tensors, claimed = {}, 0
    for name, value in state.items():
        lazy_tensors.checked_name(name)
        if name in others:
            continue
        if value.storage.key not in extents:
            raise InputError(f"{name!r}: expected its storage {value.storage.key!r} in the file, found none")
        extent = extents[value.storage.key]
        count = _reach(value, extent, name)
        claimed += count
        tensors[name] = LazyTensor(value.shape, value.storage.dtype, _reader(file, value, extent, count, whole))
    if claimed > _MOST_SHARING * file.size:
        raise InputError(
            f"expected tensors that fit the file's {file.size} bytes, found tensors that would take {claimed}"
        )
    return tensors


def _is_part_of_torch(value: Any) -> bool:
    """Return whether a value is a placeholder for a PyTorch class, such as a distributed or quantized tensor."""
    return isinstance(value, Placeholder) and value.named.startswith("torch.")


def _no_tensor(name: str, value: Any) -> InputError:
    if not isinstance(value, Placeholder):
        return InputError(f"expected a tensor under {name!r}, found {type(value).__name__}")
    return InputError(
        f"refused: the pickle names {value.named} under {name!r}, which no state dict needs; nothing was run"
    )


def _model_state(state: Any) -> Any:
    """Return the model's state dict inside a trainer's checkpoint, or `state` itself.

    Raises:
        InputError: the file holds a model as an object, or several state dicts, none of them under a usual name.
    """
    for _ in range(_DEEPEST_STATE):
        if not isinstance(state, dict):
            break
        named = [state[name] for name in _STATES if isinstance(state.get(name), dict | Placeholder)]
        held = {} if named else _state_dicts(state)
        if len(held) > 1:
            names = ", ".join(map(repr, held))
            raise InputError(f"expected one state dict, or one named {_STATES[0]!r}, found {names}; save one of them")
        inner = named[0] if named else next(iter(held.values()), None)
        if inner is None:
            break
        state = inner
    if isinstance(state, Placeholder):
        raise whole_object(state.named)
    return state


def _state_dicts(state: dict[Any, Any]) -> dict[str, Any]:
    """Return the state dicts in a dictionary that has no tensors of its own, without those of optimizers."""
    if any(isinstance(value, Tensor) for value in state.values()):
        return {}
    return {
        str(name): value
        for name, value in state.items()
        if isinstance(value, dict)
        and any(isinstance(part, Tensor) for part in value.values())
        and not str(name).startswith(("optim", "scheduler"))
    }


def _reach(tensor: Tensor, extent: _Extent, name: str) -> int:
    """Return the bytes from a tensor's first element to the end of its last; checks that its storage holds them."""
    storage, itemsize = tensor.storage, tensor.storage.dtype.itemsize
    if extent.size % itemsize or (storage.offset + storage.numel) * itemsize > extent.size:
        raise InputError(f"{name!r}: expected {storage.numel} {storage.dtype} in storage, found {extent.size} bytes")
    if len(tensor.shape) != len(tensor.strides):
        raise InputError(f"{name!r}: shape {list(tensor.shape)} and strides {list(tensor.strides)} differ in rank")
    count = math.prod(tensor.shape)
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True))
    # The count is bounded too: with a stride of 0, a few bytes could claim to be a tensor of any size.
    if count > storage.numel or (count and tensor.offset + last >= storage.numel):
        raise InputError(
            f"{name!r}: shape {list(tensor.shape)} reaches outside of its storage of {storage.numel} elements"
        )
    return (last + 1) * itemsize if count else 0


def _reader(
    file: storage.OpenFile, tensor: Tensor, extent: _Extent, count: int, whole: set[str]
) -> Callable[[], np.ndarray]:
    """Return the function that reads a tensor: `count` bytes of the file, viewed with the tensor's strides."""
    storage, dtype = tensor.storage, tensor.storage.dtype
    strides = [stride * dtype.itemsize for stride in tensor.strides]
    start = extent.start + (storage.offset + tensor.offset) * dtype.itemsize

    def read() -> np.ndarray:
        if not count:
            return np.zeros(tensor.shape, dtype)
        if extent.crc is not None and storage.key not in whole:
            crc = 0
            for chunk in file.chunks(extent.start, extent.size):
                crc = zlib.crc32(chunk, crc)
            if crc != extent.crc:
                raise InputError(
                    f"{file.path}: storage {storage.key!r} does not match its recorded CRC-32; the file is damaged"
                )
            whole.add(storage.key)
        values = file.array(start, (count // dtype.itemsize,), dtype)
        return np.lib.stride_tricks.as_strided(values, tensor.shape, strides, writeable=False)

    return read


class _Directory(io.BufferedIOBase):
    """A file object for `zipfile` that limits the size of the archive's list of members."""

    def __init__(self, file: storage.OpenFile):
        self._file = file
        self._position = 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size}[whence]
        if base + offset < 0:
            raise OSError("before the beginning")
        self._position = base + offset
        return self._position

    def read(self, count: int | None = -1) -> bytes:
        left = max(0, self._file.size - self._position)
        count = left if count is None or count < 0 else min(count, left)
        if count > longest_in(self._file.size):
            raise InputError(f"expected a shorter list of members in the archive, found {count} bytes")
        data = self._file.read(self._position, count)
        self._position += count
        return data


def _open_zip(file: storage.OpenFile) -> tuple[Any, dict[str, _Extent]]:
    """Read a zip archive of `NAME/data.pkl` and uncompressed storages `NAME/data/KEY`, each with a CRC-32.

    Returns:
        The unpickled description, and the extent of each storage by key.
    """
    try:
        with zipfile.ZipFile(_Directory(file)) as archive:
            members = {info.filename: info for info in archive.infolist()}
    except zipfile.BadZipFile as error:
        raise InputError(f"expected a whole zip archive, found: {error}") from None
    pickles = [name for name in members if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        raise InputError(f"expected one NAME/data.pkl in the archive, found {len(pickles)}")
    root = pickles[0].removesuffix("data.pkl")
    prefix = f"{root}data/"
    if f"{root}byteorder" in members and _short(file, members[f"{root}byteorder"]).strip() != b"little":
        raise InputError("expected little-endian storages")
    state = Unpickler(io.BytesIO(_short(file, members[pickles[0]])), file.size).load()
    extents = {name.removeprefix(prefix): _extent(file, members[name]) for name in members if name.startswith(prefix)}
    if sum(extent.size for extent in extents.values()) > file.size:
        raise InputError("expected separate storages in the archive, found overlapping ones")
    return state, extents


def _extent(file: storage.OpenFile, member: zipfile.ZipInfo) -> _Extent:
    """Return the extent of a member of the archive."""
    name = member.filename
    if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
        # torch never compresses members; a zip bomb does
        raise InputError(f"expected {name!r} to be stored uncompressed in the archive")
    if member.flag_bits & 1:
        raise InputError(f"expected {name!r} in the archive unencrypted, found it encrypted")
    header = file.read(member.header_offset, 30)
    if header[:4] != b"PK\x03\x04":
        raise InputError(f"{name!r} in the archive is damaged: expected a member at {member.header_offset}")
    lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    return _Extent(member.header_offset + 30 + lengths, member.file_size, member.CRC)


def _short(file: storage.OpenFile, member: zipfile.ZipInfo) -> bytes:
    """Read a small member of the archive, such as the pickle that describes the tensors."""
    extent = _extent(file, member)
    if extent.size > longest_in(file.size):
        raise InputError(f"expected {member.filename!r} to be smaller, found {extent.size} bytes")
    content = file.read(extent.start, extent.size)
    if zlib.crc32(content) != extent.crc:
        raise InputError(f"{member.filename!r} in the archive does not match its recorded CRC-32; the file is damaged")
    return content


def _open_legacy(file: storage.OpenFile) -> tuple[Any, dict[str, _Extent]]:
    """Read the older layout: pickles of magic number, version, system, state dict and storage keys, then the storages.

    A storage is its number of elements (int64) followed by its bytes; storages are in the order of the keys.
    """
    stream = io.BytesIO(file.read(0, min(file.size, longest_in(file.size))))

    def load() -> Any:
        return Unpickler(stream, file.size).load()

    # `!=` is safe: the unpickler makes no object that defines a comparison.
    if (first := load()) != _LEGACY_MAGIC or load() != _LEGACY_PROTOCOL:
        values = first.items() if isinstance(first, dict) else ()
        if strange := next(((name, value) for name, value in values if isinstance(value, Placeholder)), None):
            raise _no_tensor(*strange)
        raise InputError("expected a PyTorch file, found another pickle")
    system = load()
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise InputError("expected little-endian storages")
    unpickler = Unpickler(stream, file.size)
    state, keys = unpickler.load(), load()
    if not isinstance(keys, list):
        raise InputError(f"expected the list of storage keys, found {type(keys).__name__}")
    extents: dict[str, _Extent] = {}
    position = stream.tell()
    for key in map(str, keys):
        if key not in unpickler.itemsizes:
            raise InputError(f"expected storages of tensors only, found {key!r}, which no tensor uses")
        size = int.from_bytes(file.read(position, 8), "little") * unpickler.itemsizes[key]
        position += 8
        if position + size > file.size:
            raise InputError(f"truncated: storage {key!r} needs {size} bytes, found {max(0, file.size - position)}")
        extents[key] = _Extent(position, size)
        position += size
    return state, extents
