"""Read rows of JSON files: JSON lines one at a time, or a single value such as an array of objects.

A file that is one value is read whole, so its size is bounded.
"""

import enum
import json
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax import storage
from bert_jax.data import parquet_files
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows, RowNumber, place
from bert_jax.data.lines import numbered_lines, parse_object
from bert_jax.errors import InputError

MAX_BYTES = 256 << 20  # of a file that is one value, decompressed
MAX_VALUES = 12_000_000  # texts, numbers, lists and objects in it: Python needs 50 bytes and more for each
_LOOKED_AT = 1 << 20  # bytes that tell how a file is laid out
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class JsonLayout(enum.Enum):
    """How a JSON file is laid out."""

    ARRAY = "one array"
    LINES = "JSON lines"
    VALUE = "one value"


def json_layout_of(spec: str) -> JsonLayout:
    """Return how a JSON file, maybe compressed, is laid out, from its first megabyte.

    LINES has a whole value in its first line that is not blank, and more after it. ARRAY begins with `[`. VALUE is
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
    line, _, rest = head.partition(b"\n")
    if rest.strip() and _is_json(line):
        return JsonLayout.LINES
    return JsonLayout.ARRAY if head.startswith(b"[") else JsonLayout.VALUE


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
    text = storage.decode_text(data, spec)
    return storage.parse_json(text, spec, surrogates=True) if text.strip() else None


def json_objects(
    spec: str, bad: InvalidRows, encoding: str = "", option: Callable[[str, str], str] = "{}={}".format
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield the line of each object, what to call it in messages, and the object, of JSON lines, an array or Parquet.

    Blank lines are skipped; the objects of an array and of a Parquet file (`.parquet`) are numbered as rows.

    Args:
        spec: the file.
        bad: collects the values that are no objects.
        encoding, option: of `numbered_lines`.

    Raises:
        InputError: as `numbered_lines` or, of an array, as `read_json_file`.
    """
    if spec.lower().endswith(parquet_files.SUFFIX):
        return bad.each(parquet_files.read_parquet(spec), lambda found: _of_array(spec, found.number, found.values))
    if not encoding and json_layout_of(spec) is JsonLayout.ARRAY:
        numbered = ((RowNumber(number), value) for number, value in enumerate(read_json_file(spec), 1))
        return bad.each(numbered, lambda found: _of_array(spec, *found))
    lines = (line for line in numbered_lines(spec, encoding=encoding, option=option) if line[1].strip())
    return bad.each(lines, lambda found: _of_line(spec, *found))


def _of_line(spec: str, number: int, line: str) -> tuple[int, str, dict[str, Any]]:
    where = place(spec, number)
    return number, where, parse_object(where, line)


def _of_array(spec: str, number: RowNumber, value: Any) -> tuple[int, str, dict[str, Any]]:
    where = place(spec, number)
    if not isinstance(value, dict):
        raise InvalidRow(f"{where}: expected a JSON object, found {type(value).__name__}", "broken JSON")
    return number, where, value


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
