"""Read LevelDB tables (SSTables), in which TensorFlow keeps the index of a checkpoint.

A table is blocks of sorted entries, then an index of these blocks, then a footer that says where the index is
(LevelDB's `doc/table_format.md`). A block stores of a key what differs from the key before it, and ends in the list of
the places where it stores a whole one, which only those who search need.
"""

from collections.abc import Iterator

from bert_jax import storage
from bert_jax.conversion.formats import crc32c
from bert_jax.errors import InputError

_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER = 48  # bytes
_TRAILER = 5  # bytes behind a block: a compression and a CRC-32C
_LONGEST_KEY = 1024


def is_table(end: bytes) -> bool:
    """Whether a file with these last bytes is a table."""
    return end[-8:] == _MAGIC


def entries(file: storage.OpenFile) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a table, in its order.

    Raises:
        InputError: it is not a table, it is compressed, or it is damaged, which the checksum of each block tells.
    """
    footer = file.read(file.size - _FOOTER, _FOOTER) if file.size >= _FOOTER else b""
    if not is_table(footer):
        raise InputError("expected the index of a TensorFlow checkpoint, found another file or a part of one")
    _, position = _handle(footer, 0)  # of the block of metadata, of which there are none
    index, _ = _handle(footer, position)
    end = 0
    last: bytes | None = None
    for _, handle in _block(file, *index):
        (start, size), _ = _handle(handle, 0)
        if start < end:
            raise InputError("expected blocks that lie apart in the index, found them over each other")
        end = start + size + _TRAILER
        for key, value in _block(file, start, size):
            if last is not None and key <= last:
                raise InputError(f"expected names in order in the index, found {key[:80]!r} behind {last[:80]!r}")
            yield key, value
            last = key


def varint(data: bytes, position: int) -> tuple[int, int]:
    """The number (seven bits a byte, the lowest first) at a position, and the position behind it."""
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
    """Where a block is: offset and size."""
    offset, position = varint(data, position)
    size, position = varint(data, position)
    return (offset, size), position


def _block(file: storage.OpenFile, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a block, after checking it."""
    if start + size + _TRAILER > file.size:
        raise InputError(f"expected a block of {size} bytes at {start} in the index, found the end at {file.size}")
    content = file.read(start, size + _TRAILER)
    if crc32c.masked(crc32c.crc32c(memoryview(content)[: size + 1])) != int.from_bytes(content[size + 1 :], "little"):
        raise InputError(f"a block of the index, at {start}, does not match its checksum; the file is damaged")
    if content[size] != 0:
        kind = "Snappy" if content[size] == 1 else f"kind {content[size]}"
        raise InputError(f"expected blocks as TensorFlow writes them in the index, found one compressed ({kind})")
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
            raise InputError(
                f"expected entries that fit into the block at {start} in the index, found one that does not"
            )
        key = key[:shared] + content[position : position + added]
        position += added
        yield key, content[position : position + length]
        position += length
