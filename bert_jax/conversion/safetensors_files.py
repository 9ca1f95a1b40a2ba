"""Safetensors files: read with every doubt answered, written with a checksum of each tensor.

The format has no checksum of its own, so a flipped bit in somebody else's file can only be seen when it breaks the
header or makes a value absurd. Files that we write carry a CRC-32 of every tensor in the header's `__metadata__`, which
other readers pass over and `read` checks.
"""

import contextlib
import json
import os
import tempfile
import zlib
from collections.abc import Iterator

import numpy as np
import safetensors
import safetensors.numpy
from etils import epath

from bert_jax import files
from bert_jax.errors import InputError

CHECKSUMS = "bert_jax.crc32"  # the key in `__metadata__`: a JSON object, tensor name -> CRC-32


def read(path: files.PathLike) -> dict[str, np.ndarray]:
    """Returns the tensors of a safetensors file by name, in the file's own dtypes.

    Raises:
        InputError: it is missing, truncated, not safetensors, its header does not describe its data, or a tensor does
            not match the checksum that the file records for it.
    """
    where = epath.Path(path)
    if not where.exists():
        raise InputError(f"{where}: no such file")
    try:
        with _local(where) as name, safetensors.safe_open(name, framework="np") as opened:
            metadata = opened.metadata() or {}
            tensors = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{where}: expected a whole safetensors file, found: {reason}") from None
    _verify(tensors, metadata.get(CHECKSUMS), where)
    return tensors


def write(path: files.PathLike, tensors: dict[str, np.ndarray]) -> None:
    """Writes tensors with the metadata that PyTorch readers expect and our checksums; whole or not at all."""
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    checksums = {name: _checksum(name, tensor) for name, tensor in tensors.items()}
    metadata = {"format": "pt", CHECKSUMS: json.dumps(checksums)}
    files.write_atomically(path, _ordered(safetensors.numpy.save(tensors, metadata)))


def _ordered(content: bytes) -> bytes:
    """The file with its metadata in order: the library's is another each time, and equal models deserve equal files."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data stay aligned
    return b"".join((len(text).to_bytes(8, "little"), text, memoryview(content)[start:]))


def _checksum(name: str, tensor: np.ndarray) -> int:
    """CRC-32 of what the tensor is and what it holds."""
    described = f"{name} {tensor.dtype.name} {list(tensor.shape)}".encode()
    return zlib.crc32(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8), zlib.crc32(described))


def _verify(tensors: dict[str, np.ndarray], recorded: str | None, path: epath.Path) -> None:
    if recorded is None:
        return
    try:
        checksums = dict(json.loads(recorded))
    except (ValueError, TypeError):
        raise InputError(f"{path}: expected checksums in the header's {CHECKSUMS!r}, found something else") from None
    if unmatched := sorted(checksums.keys() ^ tensors.keys()):
        raise InputError(
            f"{path}: tensor {unmatched[0]!r} and the recorded checksums do not match; the file is damaged"
        )
    for name, tensor in tensors.items():
        if (found := _checksum(name, tensor)) != checksums[name]:
            raise InputError(
                f"{path}: tensor {name!r} has checksum {found}, expected {checksums[name]}; the file is damaged"
            )


@contextlib.contextmanager
def _local(path: epath.Path) -> Iterator[str]:
    """Yields the name of a local file with the contents of `path`, which is itself when it is local."""
    name = os.fspath(path)
    if os.path.exists(name):
        yield name
        return
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as copy:
        copy.write(path.read_bytes())
        copy.flush()
        yield copy.name
