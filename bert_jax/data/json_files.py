"""JSON files that are one value, such as an array of rows; and how to tell them from JSON lines.

Such a file is read whole, so it is bounded: JSON lines of any size are read one at a time.
"""

import enum
import json
from typing import Any

from bert_jax import storage
from bert_jax.errors import InputError

MAX_BYTES = 256 << 20  # of a file that is one value, decompressed
MAX_VALUES = 12_000_000  # texts, numbers, lists and objects in it: Python needs 50 bytes and more for each
_LOOKED_AT = 1 << 20  # bytes that tell how a file is laid out
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Layout(enum.Enum):
    """How a JSON file is laid out."""

    ARRAY = "one array"
    LINES = "JSON lines"
    VALUE = "one value"


def layout_of(spec: str) -> Layout:
    """Return how a JSON file, maybe compressed, is laid out, from its first megabyte.

    ARRAY begins with `[`. LINES has a whole value in its first line that is not blank and more after it. VALUE is
    anything else, such as one object in one line or over many.

    Raises:
        InputError: the file is missing, no file, or damaged.
    """
    try:
        with storage.open_decompressed(storage.existing(spec)) as (file, _):
            head = file.read(_LOOKED_AT)
    except storage.DamagedError as error:
        raise InputError(f"{spec}: {error}") from None
    head = head.removeprefix(_BYTE_ORDER_MARK).lstrip()
    if head.startswith(b"["):
        return Layout.ARRAY
    line, _, rest = head.partition(b"\n")
    return Layout.LINES if rest.strip() and _is_json(line) else Layout.VALUE


def read_json_file(spec: str) -> Any:
    """Return the value of a JSON file, maybe compressed; None when it holds nothing but spaces.

    Its texts may have half a surrogate pair, which `check_utf8` names by its row.

    Raises:
        InputError: the file is missing, cut short, not UTF-8, not JSON, or larger than MAX_BYTES or MAX_VALUES.
    """
    path = storage.existing(spec)
    try:
        with storage.open_decompressed(path) as (file, _):
            data = file.read(MAX_BYTES + 1)
    except storage.DamagedError as error:
        raise InputError(f"{spec}: {error}") from None
    values = sum(map(data.count, (b",", b"[", b"{")))
    if len(data) > MAX_BYTES or values > MAX_VALUES:
        limit = f"{MAX_BYTES >> 20:,} MB" if len(data) > MAX_BYTES else f"{MAX_VALUES:,} values"
        raise InputError(
            f"{spec}: expected at most {limit} in one JSON value, found more; JSON lines may have any size"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{data[error.start]:02x} at offset {error.start} (line {line})"
        raise InputError(f"{spec}: expected UTF-8 text, found {found}") from None
    return storage.parse_json(text, spec, surrogates=True) if text.strip() else None


def json_array(spec: str) -> list[Any]:
    """Return the values of a JSON file that is one array (`Layout.ARRAY`). Raises InputError as `read_json_file`."""
    value = read_json_file(spec)
    assert isinstance(value, list), "a JSON text that begins with [ is an array"
    return value


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
