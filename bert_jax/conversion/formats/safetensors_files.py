"""Read safetensors files tensor by tensor with full validation.

The format has no checksums, so in other libraries' files a flipped bit is found only if it breaks the header or makes a
value implausibly large. Files that we write have a CRC-32 of every tensor in the header's `__metadata__`; other readers
ignore it.

The safetensors library is not used, here and in `safetensors_writing`. It maps the whole file into memory, so that the
process crashes if the file is truncated meanwhile, and it needs all tensors in memory to write them.
"""

import contextlib
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from bert_jax import storage
from bert_jax.conversion.formats import lazy_tensors
from bert_jax.conversion.formats.lazy_tensors import LazyTensor
from bert_jax.errors import InputError

CHECKSUMS = "bert_jax.crc32"  # the key in `__metadata__`: a JSON object, tensor name -> CRC-32

# The safetensors library writes tensors sorted by dtype, in the reverse of this order, and then by name.
DTYPE_OF_CODE = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "I16": np.dtype(np.int16),
    "U16": np.dtype(np.uint16),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I32": np.dtype(np.int32),
    "U32": np.dtype(np.uint32),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
    "I64": np.dtype(np.int64),
    "U64": np.dtype(np.uint64),
}


def begins(start: bytes) -> bool:
    """Return whether a file with these first bytes can be a safetensors file."""
    return start[8:9] == b"{"


@contextlib.contextmanager
def open_tensors(path: storage.PathLike) -> Iterator[dict[str, LazyTensor]]:
    """Yield the tensors of a safetensors file by name, in the file's own dtypes.

    Raises:
        InputError: the file is missing, truncated, not safetensors, or its header does not describe its data. Reading
            a tensor that does not match its recorded checksum raises it too.
    """
    with storage.open_offsets(path) as file:
        with lazy_tensors.about(file.path):
            start, header = _header(file)
            metadata = _metadata(header.pop("__metadata__", {}))
            entries = _entries(header, file.size - start)
            checksums = _checksums(metadata.get(CHECKSUMS), entries)
        yield {
            name: LazyTensor(shape, dtype, _reader(file, name, start + begin, shape, dtype, checksums))
            for name, (shape, dtype, begin) in entries.items()
        }


def _header(file: storage.OpenFile) -> tuple[int, dict[str, Any]]:
    """Read the header; return the offset of the data and the parsed header."""
    if file.size < 8:
        raise InputError(f"expected a whole safetensors file, found {file.size} bytes")
    length = int.from_bytes(file.read(0, 8), "little")
    if length > min(lazy_tensors.LONGEST_DESCRIPTION, file.size - 8):
        raise InputError(f"expected a whole safetensors file, found {file.size} bytes with a header of {length} bytes")
    return 8 + length, lazy_tensors.parse_header(file.read(8, length), "a header of tensors")


def _metadata(metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise InputError(f"expected __metadata__ in the header to be an object of strings, found {repr(metadata)[:80]}")
    return metadata


def _entries(header: dict[str, Any], size: int) -> dict[str, tuple[tuple[int, ...], np.dtype, int]]:
    """Return name -> (shape, dtype, offset in the data); the tensors must cover the data without gap or overlap."""
    if len(header) > lazy_tensors.MOST_TENSORS:
        raise InputError(f"expected at most {lazy_tensors.MOST_TENSORS} tensors, found {len(header)}")
    entries, spans = {}, []
    for name, entry in header.items():
        lazy_tensors.checked_name(name)
        if not isinstance(entry, dict) or not entry.keys() >= {"dtype", "shape", "data_offsets"}:
            raise InputError(f"tensor {name!r}: expected dtype, shape and data_offsets in the header")
        if not isinstance(entry["dtype"], str) or entry["dtype"] not in DTYPE_OF_CODE:
            found = str(entry["dtype"])[:20]
            raise InputError(f"tensor {name!r}: expected a dtype of {', '.join(DTYPE_OF_CODE)}, found {found!r}")
        dtype = DTYPE_OF_CODE[entry["dtype"]]
        shape = lazy_tensors.checked_shape(entry["shape"], f"tensor {name!r}")
        offsets = entry["data_offsets"]
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(offset) is int for offset in offsets):
            raise InputError(f"tensor {name!r}: expected two data_offsets, found {repr(offsets)[:80]}")
        begin, end = offsets
        if end - begin != math.prod(shape) * dtype.itemsize:
            raise InputError(
                f"tensor {name!r}: expected {math.prod(shape) * dtype.itemsize} bytes for {entry['dtype']} "
                f"{list(shape)}, found data_offsets {begin} to {end}"
            )
        entries[name] = shape, dtype, begin
        spans.append((begin, end, name))
    last = 0
    for begin, end, name in sorted(spans):
        if begin != last:
            kind = "overlap" if begin < last else "gap"
            raise InputError(f"tensor {name!r}: expected its data at {last}, found it at {begin} ({kind})")
        last = end
    if last != size:
        raise InputError(f"expected a whole safetensors file, with {last} bytes of data, found {size}")
    return entries


def _checksums(recorded: str | None, entries: Mapping[str, Any]) -> dict[str, Any] | None:
    if recorded is None:
        return None
    try:
        checksums = dict(json.loads(recorded))
    except (ValueError, TypeError, RecursionError):
        raise InputError(
            f"expected a JSON object of checksums in the header's {CHECKSUMS!r}, found {recorded[:80]!r}"
        ) from None
    if unmatched := sorted(checksums.keys() ^ entries.keys()):
        raise InputError(
            "expected a recorded checksum for every tensor and for no other, found a mismatch at "
            f"{unmatched[0]!r}; the file is damaged"
        )
    return checksums


def _reader(
    file: storage.OpenFile,
    name: str,
    offset: int,
    shape: tuple[int, ...],
    dtype: np.dtype,
    checksums: dict[str, Any] | None,
) -> Callable[[], np.ndarray]:
    def read() -> np.ndarray:
        tensor = file.array(offset, shape, dtype)
        if checksums is not None and (found := checksum(name, tensor)) != checksums[name]:
            expected = str(checksums[name])[:20]
            raise InputError(
                f"{file.path}: tensor {name!r} has checksum {found}, expected {expected}; the file is damaged"
            )
        return tensor

    return read


def checksum(name: str, tensor: np.ndarray) -> int:
    """Return the CRC-32 of a tensor's name, dtype, shape and values."""
    total = zlib.crc32(f"{name} {tensor.dtype.name} {list(tensor.shape)}".encode(errors="surrogatepass"))
    for piece in lazy_tensors.pieces(tensor):
        total = zlib.crc32(piece, total)
    return total
