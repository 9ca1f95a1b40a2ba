"""Read LevelDB tables (SSTables), the format of the index of a TensorFlow checkpoint.

A table consists of blocks of sorted entries, an index of these blocks, and a footer with the offset of the index
(LevelDB's `doc/table_format.md`). A block stores only the part of a key that differs from the key before it. It ends
with a list of restart points, where keys are stored in full; only searches need this list.
"""

from collections.abc import Iterator

from bert_jax import storage
from bert_jax.conversion.formats.crc32c import masked_crc32c
from bert_jax.errors import InputError

_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER = 48  # bytes
_TRAILER = 5  # bytes after a block: the kind of compression and a CRC-32C
_LONGEST_KEY = 1024


def is_table(end: bytes) -> bool:
    """Return whether a file with these last bytes is a table."""
    return end[-8:] == _MAGIC


def entries(file: storage.OpenFile) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table in order.

    Raises:
        InputError: the file is not a table, is compressed, or is damaged (each block has a checksum).
    """
    footer = file.read(file.size - _FOOTER, _FOOTER) if file.size >= _FOOTER else b""
    if not is_table(footer):
        raise InputError("expected the index of a TensorFlow checkpoint, found another file or a part of one")
    _, position = _handle(footer, 0)  # skips the handle of the metadata block
    index, _ = _handle(footer, position)
    end = 0
    last: bytes | None = None
    for _, handle in _block(file, *index):
        (start, size), _ = _handle(handle, 0)
        if start < end:
            raise InputError("expected separate blocks in the index, found overlapping ones")
        end = start + size + _TRAILER
        for key, value in _block(file, start, size):
            if last is not None and key <= last:
                raise InputError(f"expected sorted names in the index, found {key[:80]!r} after {last[:80]!r}")
            yield key, value
            last = key


def varint(data: bytes, position: int) -> tuple[int, int]:
    """Parse the varint (seven bits per byte, lowest first) at a position; return it and the position after it."""
    number = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise InputError("expected a number in the index, found none")


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Parse a block handle; return the block's (offset, size) and the position after the handle."""
    offset, position = varint(data, position)
    size, position = varint(data, position)
    return (offset, size), position


def _block(file: storage.OpenFile, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Check a block and yield its entries."""
    if start + size + _TRAILER > file.size:
        raise InputError(f"expected a block of {size} bytes at {start} in the index, found a file of {file.size} bytes")
    content = file.read(start, size + _TRAILER)
    if masked_crc32c(memoryview(content)[: size + 1]) != int.from_bytes(content[size + 1 :], "little"):
        raise InputError(f"a block of the index, at {start}, does not match its checksum; the file is damaged")
    if content[size] != 0:
        kind = "Snappy" if content[size] == 1 else f"kind {content[size]}"
        raise InputError(f"expected uncompressed blocks in the index, found one compressed ({kind})")
    restarts = int.from_bytes(content[size - 4 : size], "little") if size >= 4 else 0
    end = size - 4 - 4 * restarts
    if end < 0:
        raise InputError(f"expected a block with its list of restarts at {start} in the index, found none")
    position, key = 0, b""
    while position < end:
        shared, position = varint(content, position)
        added, position = varint(content, position)
        length, position = varint(content, position)
        if shared > len(key) or shared + added > _LONGEST_KEY or position + added + length > end:
            raise InputError(f"expected entries inside the block at {start} of the index, found a malformed one")
        key = key[:shared] + content[position : position + added]
        position += added
        yield key, content[position : position + length]
        position += length
