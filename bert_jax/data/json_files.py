"""Read rows of JSON files: JSON lines one at a time, or a single value such as an array of objects.

A file that is one value is read whole, so its size is bounded.
"""

import enum
import json
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax import storage
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows, RowNumber, place
from bert_jax.data.lines import numbered_lines, parse_object
from bert_jax.data.table_formats import has_registered_format, registered_rows
from bert_jax.errors import InputError

MAX_BYTES = 256 << 20  # maximum decompressed size of a file that is one value
MAX_VALUES = 12_000_000  # JSON values in such a file: each takes 50 bytes or more in Python
_LOOKED_AT = 1 << 20  # bytes read to detect the layout of a file
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class JsonLayout(enum.Enum):
    """The layout of a JSON file."""

    ARRAY = "one array"
    LINES = "JSON lines"
    VALUE = "one value"


def json_layout_of(spec: str) -> JsonLayout:
    """Detect the layout of a JSON file, possibly compressed, from its first megabyte.

    LINES: the first line that is not blank is a whole value, and more lines follow. ARRAY: the file begins with `[`.
    VALUE: anything else, such as one object on one or several lines.

    Raises:
        InputError: the file is missing, not a regular file, or damaged.
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
    """Return the value of a JSON file, possibly compressed; None when the file holds only whitespace.

    Texts may hold half a surrogate pair, which `check_utf8` reports by row.

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
    """Yield (line, name in messages, object) for each object of a file of JSON lines, a JSON array or a Parquet file.

    Blank lines are skipped; in an array, a Parquet file (`.parquet`) and a file in a registered format
    (`table_formats.register_reader`), the line is the row number.

    Args:
        spec: the file.
        bad: collects the values that are not objects.
        encoding, option: passed to `numbered_lines`.

    Raises:
        InputError: as `numbered_lines` or, for an array, as `read_json_file`.
    """
    if spec.lower().endswith(".parquet"):
        from bert_jax.data.parquet_files import read_parquet

        return bad.each(read_parquet(spec), lambda row: _of_array(spec, row.number, row.values))
    if has_registered_format(spec):
        return bad.each(registered_rows(spec), lambda row: _of_array(spec, *row))
    if not encoding and json_layout_of(spec) is JsonLayout.ARRAY:
        numbered = ((RowNumber(number), value) for number, value in enumerate(read_json_file(spec), 1))
        return bad.each(numbered, lambda row: _of_array(spec, *row))
    lines = (line for line in numbered_lines(spec, encoding=encoding, option=option) if line[1].strip())
    return bad.each(lines, lambda row: _of_line(spec, *row))


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
