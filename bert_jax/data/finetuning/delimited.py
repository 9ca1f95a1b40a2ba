"""Read rows of TSV and CSV files; find the delimiter and the wanted columns."""

import collections
import contextlib
import csv
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bert_jax import storage
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows, check_utf8, place
from bert_jax.data.lines import MAX_ROW_BYTES, numbered_lines
from bert_jax.errors import InputError, logger

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_SAMPLE = 50  # rows from which the delimiter of a table without header is detected
_EXCEL_DELIMITER = re.compile(r"sep=([^\r\n\"])\r?\n?", re.IGNORECASE)
_Numbered = Iterator[tuple[int, Any]]
_log = logger(__name__)


def read_delimited(spec: str, columns: Columns, bad: InvalidRows) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line and the wanted columns of each row of a `.tsv` or `.csv` file.

    Quotes are ordinary characters in a `.tsv` file, unless the user sets a delimiter other than the tab; a `.csv` file
    has quoted fields.

    Raises:
        InputError: as `numbered_lines`; a column is missing, two columns have the same name, or the delimiter is not a
            single character.
    """
    delimiter = _check_delimiter(columns)
    is_tsv = storage.without_compression(spec).lower().endswith(".tsv")
    lines = numbered_lines(spec, encoding=columns.encoding, option=columns.option)
    if is_tsv and delimiter in ("", "\t"):
        return _rows(spec, _tsv_lines(lines), _tsv_fields, columns, bad)
    return _rows(spec, _csv_rows(spec, lines, delimiter, columns), _csv_fields, columns, bad)


def _check_delimiter(columns: Columns) -> str:
    delimiter = {"tab": "\t", "\\t": "\t"}.get(columns.delimiter, columns.delimiter)
    if len(delimiter) > 1 or delimiter in ('"', "\n", "\r", "\0"):
        raise InputError(f"delimiter: expected one character, such as ';', or tab, found {columns.delimiter!r}")
    return delimiter


def _tsv_lines(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    blank: list[int] = []
    for number, line in lines:
        line = line.rstrip("\r\n")
        if not line:
            blank.append(number)  # a row with one empty column, unless only blank lines follow
            continue
        yield from ((earlier, "") for earlier in blank)
        blank.clear()
        yield number, line


def _tsv_fields(where: str, line: str, columns: Columns) -> list[str]:
    _check_text(where, columns, line)
    return line.split("\t")


def _csv_rows(
    spec: str, lines: Iterator[tuple[int, str]], delimiter: str, columns: Columns
) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Yield (number of the last line, fields) of each row; a csv.Error in place of the fields of a malformed row.

    A first line such as Excel's `sep=;` names the delimiter and is not a row.
    """
    first = next(lines)
    named = _EXCEL_DELIMITER.fullmatch(first[1])
    if named:
        delimiter = delimiter or named[1]
    else:
        lines = itertools.chain([first], lines)
    before = int(named is not None)  # lines before those that the reader sees
    if not delimiter:
        sample = list(itertools.islice(lines, 1 if columns.has_header else _SAMPLE))
        delimiter = _find_delimiter(spec, [line for _, line in sample], columns)
        lines = itertools.chain(sample, lines)
    size = 0

    def counted() -> Iterator[str]:
        nonlocal size
        for number, line in lines:
            size += len(line)
            if size > MAX_ROW_BYTES:
                where = place(spec, number)
                raise InputError(f"{where}: expected a row of at most {MAX_ROW_BYTES:,} characters, found a longer one")
            yield line

    reader = csv.reader(counted(), strict=True, delimiter=delimiter)
    while True:
        size = 0
        try:
            with _long_fields():
                fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "expected after" not in str(error):  # a quote that is never closed: the rest of the file is lost
                raise InputError(f"{spec}: line {before + reader.line_num}: expected CSV, found: {error}") from None
            yield before + reader.line_num, error
            continue
        if fields:
            yield before + reader.line_num, fields


@contextlib.contextmanager
def _long_fields() -> Iterator[None]:
    """Raise the csv module's process-wide limit of the field size to MAX_ROW_BYTES within the `with` block."""
    before = csv.field_size_limit(MAX_ROW_BYTES)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _find_delimiter(spec: str, lines: Sequence[str], columns: Columns) -> str:
    """Detect the delimiter: a comma if it yields the wanted columns; otherwise another that does, with a warning."""
    rows = {delimiter: _fields_by(delimiter, lines) for delimiter in DELIMITERS}
    fitting = [delimiter for delimiter, fields in rows.items() if _has_wanted(fields, columns)]
    if not fitting:  # the delimiter that yields the most columns, for the error message
        fitting = sorted(DELIMITERS, key=lambda delimiter: -len(rows[delimiter][0]) if rows[delimiter] else 0)
    if fitting[0] != ",":
        _log.warning("%s: columns are separated by %s", spec, DELIMITERS[fitting[0]])
    return fitting[0]


def _fields_by(delimiter: str, lines: Sequence[str]) -> list[list[str]]:
    try:
        with _long_fields():
            return [fields for fields in csv.reader(lines, delimiter=delimiter) if fields]
    except csv.Error:
        return []


def _has_wanted(rows: Sequence[Sequence[str]], columns: Columns) -> bool:
    if not rows:
        return False
    if columns.has_header:
        return set(columns.wanted) <= {name.strip() for name in rows[0]}
    widths = {len(row) for row in (rows[:-1] if len(rows) >= _SAMPLE else rows)}  # the last row may be incomplete
    numbers = [int(name) for name in columns.wanted if name.isascii() and name.isdigit()]
    return len(widths) == 1 and widths.pop() > max(numbers, default=0)


def _csv_fields(where: str, found: list[str] | csv.Error, columns: Columns) -> list[str]:
    if isinstance(found, csv.Error):
        raise InvalidRow(f"{where}: expected CSV, found: {found}", "broken CSV")
    _check_text(where, columns, *found)
    return found


def _check_text(where: str, columns: Columns, *texts: str) -> None:
    try:
        check_utf8(where, *texts)
    except InvalidRow as error:
        hint = columns.option("encoding", "cp1252")
        raise InvalidRow(f"{error} (if it is Windows-1252 or Latin-1, use {hint})", error.reason) from None


def _rows(
    spec: str,
    rows: _Numbered,
    fields_of: Callable[[str, Any, Columns], list[str]],
    columns: Columns,
    bad: InvalidRows,
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the wanted columns of each row; the first line determines their positions and the number of columns."""
    first = next(rows, None)
    if first is None:
        return
    fields = fields_of(place(spec, first[0]), first[1], columns)
    width = len(fields)
    places = _places(spec, first[0], fields, columns)

    def picked(row: tuple[int, Any]) -> tuple[int, dict[str, str]]:
        where = place(spec, row[0])
        fields = fields_of(where, row[1], columns)
        if len(fields) != width:
            message = f"{where}: expected {width} columns as in the first line, found {len(fields)}"
            raise InvalidRow(message, "a wrong number of columns")
        return row[0], {name: fields[at] for name, at in places.items()}

    yield from bad.each(rows if columns.has_header else itertools.chain([first], rows), picked)


def _places(spec: str, line: int, first: list[str], columns: Columns) -> dict[str, int]:
    """Return column -> index in a row, for the wanted columns."""
    where = place(spec, line)
    if columns.texts:
        raise InputError(f"{spec}: expected JSON lines or TFDS for a list of texts ({columns.texts!r}), found a table")
    if not columns.has_header:
        return {name: _number(spec, where, name, len(first)) for name in (*columns.wanted, *columns.keep)}
    header = [name.strip() for name in first]
    twice = [name for name, count in collections.Counter(header).items() if name and count > 1]
    if twice:
        numbers = " and ".join(str(i + 1) for i, name in enumerate(header) if name == twice[0])
        raise InputError(f"{where}: expected columns of different names, found {twice[0]!r} in columns {numbers}")
    for name in (*columns.wanted, *columns.keep):
        if name not in header:
            hint = _other_delimiter(header, columns) or columns.absent(name, header)
            raise InputError(f"{where}: expected a column {name!r}{hint}")
    needed = {*columns.wanted, *columns.kept(filter(None, header))}
    return {name: i for i, name in enumerate(header) if name in needed}


def _other_delimiter(header: Sequence[str], columns: Columns) -> str:
    """Return the hint for a table whose only column looks like several columns with another delimiter."""
    counts = {delimiter: header[0].count(delimiter) for delimiter in DELIMITERS} if len(header) == 1 else {}
    likeliest = max(counts, key=lambda delimiter: counts[delimiter], default="")
    if not counts or not counts[likeliest]:
        return ""
    option = columns.option("delimiter", likeliest)
    return f", found one column, which looks like several separated by {DELIMITERS[likeliest]}; use {option}"


def _number(spec: str, where: str, name: str, width: int) -> int:
    if not name.isascii() or not name.isdigit():
        raise InputError(f"{spec}: columns of a file without header are numbers from 0, found {name!r}")
    if int(name) >= width:
        raise InputError(f"{where}: expected a column {name}, found {width} columns (0 is the first)")
    return int(name)
