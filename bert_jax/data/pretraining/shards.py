"""The file format of a shard: a `.npy` matrix of unsigned integers with one record per row.

A row is the CRC-32 of the rest of the row (4 bytes, little endian), the record, and zeros up to the width of the shard.
Row i of a shard begins at byte `header_bytes + i * row_bytes`, so one ranged read fetches any run of rows, from a disk
or from an object store, and `numpy.load(path, mmap_mode="r")` opens the file as it is.
"""

import hashlib
import io
import zlib
from collections.abc import Sequence

import numpy as np

from bert_jax import storage
from bert_jax.data.pretraining.manifest import InstanceSet, Shard

SHARD_SUFFIX = ".npy"
BLOCK_BYTES = 256 << 10  # bytes of a block, the unit in which rows are shuffled and fetched
_CHECKSUM_BYTES = 4
_ROWS_WRITTEN_AT_ONCE = 4096


def checksum_width(dtype: np.dtype) -> int:
    """Return the number of integers at the beginning of a row that hold its checksum."""
    return _CHECKSUM_BYTES // dtype.itemsize


def is_intact(row: bytes | memoryview) -> bool:
    """Return whether the bytes of a row agree with the checksum at its beginning."""
    return zlib.crc32(row[_CHECKSUM_BYTES:]) == int.from_bytes(row[:_CHECKSUM_BYTES], "little")


def write_shard(path: storage.Path, records: Sequence[bytes], dtype: np.dtype) -> Shard:
    """Write a shard whole or not at all.

    Args:
        path: the file, which is replaced if it exists.
        records: at least one record, each a whole number of integers of `dtype`.
        dtype: an unsigned little-endian dtype.
    """
    longest = max(map(len, records))
    row_bytes = _CHECKSUM_BYTES + longest
    shape = (len(records), row_bytes // dtype.itemsize)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype.str, "fortran_order": False, "shape": shape})
    digest = hashlib.sha256(header.getvalue())
    with storage.open_binary_atomically(path) as file:
        file.write(header.getvalue())
        for start in range(0, len(records), _ROWS_WRITTEN_AT_ONCE):
            padded = (record.ljust(longest, b"\0") for record in records[start : start + _ROWS_WRITTEN_AT_ONCE])
            rows = b"".join(zlib.crc32(row).to_bytes(_CHECKSUM_BYTES, "little") + row for row in padded)
            digest.update(rows)
            file.write(rows)
    header_bytes = len(header.getvalue())
    num_bytes = header_bytes + len(records) * row_bytes
    return Shard(path.name, len(records), num_bytes, digest.hexdigest(), shape[1], header_bytes)


def block_starts(instances: InstanceSet, dtype: np.dtype) -> np.ndarray:
    """Cut the rows of a set into blocks: runs of rows of one shard, of about BLOCK_BYTES.

    Returns:
        int64 [num_blocks + 1], the number of the first row of each block, followed by the number of rows.
    """
    rows_per_block = max(1, BLOCK_BYTES // ((instances.max_seq_length + 3) * dtype.itemsize))
    starts, first = [], 0
    for shard in instances.shards:
        starts.append(np.arange(first, first + shard.rows, rows_per_block))
        first += shard.rows
    return np.concatenate([*starts, [first]]).astype(np.int64)
