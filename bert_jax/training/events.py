"""Write scalars for TensorBoard: a file of TFRecords, each an `Event` in the encoding of protocol buffers."""

import os
import socket
import struct
import time
import uuid

import numpy as np

from bert_jax import storage
from bert_jax.conversion.formats.crc32c import masked_crc32c

# Field numbers in TensorBoard's event.proto and summary.proto.
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY, _SESSION_LOG = 1, 2, 3, 5, 7  # fields of Event
_VALUE = 1  # field of Summary
_TAG, _SIMPLE_VALUE = 1, 2  # fields of Summary.Value
_STATUS, _START = 1, 1  # field of SessionLog, and its enum value START
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5  # wire types of protocol buffers


class EventFile:
    """The TensorBoard file of one call of `train`, which may resume a run.

    Args:
        directory: the directory of TensorBoard's files.
        step: the step from which the run resumes; TensorBoard drops later steps that a killed run had written.
    """

    def __init__(self, directory: storage.Path, step: int):
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
        self._file = storage.GrowingFile(directory / name)
        self._add(0, _bytes(_FILE_VERSION, b"brain.Event:2"))
        self._add(step + 1, _bytes(_SESSION_LOG, _integer(_STATUS, _START)))

    def write(self, step: int, values: dict[str, float]) -> None:
        """Write scalars of a step."""
        self._add(step, _bytes(_SUMMARY, b"".join(_bytes(_VALUE, _scalar(*item)) for item in values.items())))

    def flush(self) -> None:
        """Wait until other processes can read all that was written."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close the file."""
        self._file.close()

    def _add(self, step: int, content: bytes) -> None:
        """Append a TFRecord: the length, its checksum, the event, its checksum."""
        event = _key(_WALL_TIME, _EIGHT_BYTES) + struct.pack("<d", time.time()) + _integer(_STEP, step) + content
        length = struct.pack("<Q", len(event))
        checksums = [struct.pack("<I", masked_crc32c(part)) for part in (length, event)]
        self._file.append(length + checksums[0] + event + checksums[1])


def _scalar(name: str, value: float) -> bytes:
    with np.errstate(over="ignore"):  # a perplexity may be infinite in float32
        number = np.array(value).astype("<f4").tobytes()
    return _bytes(_TAG, name.encode()) + _key(_SIMPLE_VALUE, _FOUR_BYTES) + number


def _bytes(field: int, content: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(content)) + content


def _integer(field: int, number: int) -> bytes:
    return _key(field, _VARINT) + _varint(number)


def _key(field: int, encoding: int) -> bytes:
    return _varint(field << 3 | encoding)


def _varint(number: int) -> bytes:
    """Return a number as seven bits per byte, lowest first; all bytes but the last have the eighth bit set."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
