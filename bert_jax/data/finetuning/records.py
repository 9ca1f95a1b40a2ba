"""Read rows that are objects: JSON lines, Parquet files, TFDS data sets, DataFrames and lists of dicts."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.labels import label_text
from bert_jax.data.invalid_rows import IN_MEMORY, InvalidRow, InvalidRows, check_utf8, place
from bert_jax.errors import InputError, did_you_mean

_OTHER_KIND = "a field of another kind"  # reason why a row is invalid
_Numbered = Iterator[tuple[int, dict[str, Any]]]


def object_rows(rows: Iterable[tuple[int, str, Any]], columns: Columns, bad: InvalidRows) -> _Numbered:
    """Yield (number, wanted columns) of rows that are objects.

    Args:
        rows: (number, name in messages, object) of each row.
        columns, bad: arguments of `read_rows`.
    """

    def picked(row: tuple[int, str, Any]) -> tuple[int, dict[str, Any]]:
        number, where, record = row
        if not isinstance(record, Mapping):
            raise InvalidRow(f"{where}: expected a JSON object, found {type(record).__name__}", "broken JSON")
        return number, _values(where, record, columns)

    return bad.each(rows, picked)


def numbered_objects(spec: str, rows: Iterable[Any], start: int = 0) -> Iterator[tuple[int, str, Any]]:
    """Yield (number, name of the row in error messages, row) for each row."""
    return ((number, f"{spec}: row {number}", row) for number, row in enumerate(rows, start))


def _values(where: str, row: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in columns.wanted:
        if name not in row:
            if name == columns.label and columns.optional_label:
                values[name] = ""
                continue
            raise InvalidRow(f"{where}: expected a field {name!r}{columns.absent(name, list(row))}", "a missing field")
        values[name] = _value(where, name, row[name], columns)
    for name in columns.kept(row) if columns.keeps else ():
        if name not in row:
            raise InvalidRow(f"{where}: expected a field {name!r}{did_you_mean(name, row)}", "a missing field")
        if isinstance(row[name], str):
            check_utf8(where, row[name])
        values.setdefault(name, row[name])
    return {name: values[name] for name in dict.fromkeys((*row, *values)) if name in values}


def _value(where: str, name: str, value: Any, columns: Columns) -> Any:
    if name == columns.texts:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            message = f"{where}: expected a list of texts in {name!r}, found {_described(value)}"
            raise InvalidRow(message, _OTHER_KIND)
        check_utf8(where, *value)
        return value
    if name == columns.label and not isinstance(value, str) and _is_label(where, value, columns):
        value = label_text(value)
    if not isinstance(value, str):
        raise InvalidRow(f"{where}: expected text in {name!r}, found {type(value).__name__}", _OTHER_KIND)
    check_utf8(where, value)
    return value


def _is_label(where: str, value: Any, columns: Columns) -> bool:
    """Return whether a value is a label, or a list of only texts or only numbers.

    Raises:
        InvalidRow: the value is a list of both, where a row may have several labels.
    """
    if not isinstance(value, list):
        return isinstance(value, bool | int | float) or (value is None and columns.optional_label)
    if all(isinstance(item, str) for item in value) or all(isinstance(item, bool | int | float) for item in value):
        return True
    if columns.separator:
        odd = next(item for item in value if not isinstance(item, str))
        expected = f"labels that are texts without {columns.separator!r}, or numbers alone,"
        raise InvalidRow(f"{where}: expected {expected} in {columns.label!r}, found {odd!r}", _OTHER_KIND)
    return False


def _described(value: Any) -> str:
    others = [type(item).__name__ for item in value if not isinstance(item, str)] if isinstance(value, list) else []
    return f"one with {others[0]}" if others else type(value).__name__


def memory_rows(table: Any, columns: Columns, bad: InvalidRows) -> _Numbered:
    """Yield (number from 0, wanted columns) of each row of a DataFrame (pandas, Polars) or of a list of dicts.

    Raises:
        InputError: the table is neither, or a column is missing.
    """
    name = table_name(table)
    if hasattr(table, "columns"):
        header = [str(column) for column in table.columns]
        for column in columns.wanted:
            if column not in header:
                raise InputError(f"{name}: expected a column {column!r}{did_you_mean(column, header)}")
        needed = dict.fromkeys((*columns.wanted, *columns.kept(header)))
        values = {str(column): table[column] for column in table.columns if str(column) in needed}
        lists = [series.tolist() if hasattr(series, "tolist") else series.to_list() for series in values.values()]
        rows: Iterable[Any] = (dict(zip(values, map(_plain, row), strict=True)) for row in zip(*lists, strict=True))
    else:
        rows = table
    return object_rows(numbered_objects(name, rows), columns, bad)


def table_name(table: Any) -> str:
    """Return the name of a table in messages: its spec, or the kind of a table in memory.

    Raises:
        InputError: the object is not a table.
    """
    if isinstance(table, str):
        return table
    if hasattr(table, "columns") and hasattr(table, "__getitem__"):
        return IN_MEMORY[0]
    if isinstance(table, list | tuple):
        return IN_MEMORY[1]
    if hasattr(table, "__fspath__"):
        return str(table)
    raise InputError(f"expected the name of a file, a DataFrame or a list of dicts, found {type(table).__name__}")


def _plain(value: Any) -> Any:
    """Convert a value of a DataFrame to JSON's types; NaN and other missing values become None."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if value is None or isinstance(value, str | bool | int | float | list):
        return value
    return value.item() if hasattr(value, "item") else str(value) if str(value) != "<NA>" else None


def json_rows(spec: str, columns: Columns, bad: InvalidRows) -> _Numbered:
    """Yield (number, wanted columns) of each row of a JSON file, or of a file in a registered format."""
    from bert_jax.data.json_files import json_objects

    rows = json_objects(spec, bad, columns.encoding, columns.option)
    return object_rows(rows, columns, bad)


def parquet_rows(spec: str, columns: Columns, bad: InvalidRows) -> _Numbered:
    """Yield (number from 1, wanted columns) of each row of a Parquet file.

    Raises:
        InputError: pyarrow is not installed, the file is missing or damaged, or a column is missing.
    """
    from bert_jax.data.parquet_files import open_parquet

    with open_parquet(spec) as table:
        for name in columns.wanted:
            if name not in table.columns:
                raise InputError(f"{spec}: expected a column {name!r}{columns.absent(name, table.columns)}")
        needed = list(dict.fromkeys((*columns.wanted, *columns.kept(table.columns))))
        rows = ({name: _plain(value) for name, value in row.values.items()} for row in table.rows(needed))
        yield from object_rows(numbered_objects(spec, rows, 1), columns, bad)


def tfds_rows(spec: str, columns: Columns, bad: InvalidRows) -> _Numbered:
    """Yield the rows of a TFDS data set; integers of a ClassLabel become names."""
    from bert_jax.data.tfds_sets import open_tfds

    source, features = open_tfds(spec, columns.wanted)
    needed = dict.fromkeys((*columns.wanted, *columns.kept(features)))

    def read(index: int) -> tuple[int, dict[str, str]]:
        row = source[index]
        named = {name: plain_value(row[name], features[name]) for name in needed}
        return index, _values(place(spec, index), named, columns)

    yield from bad.each(range(len(source)), read)


def plain_value(value: Any, feature: Any) -> Any:
    """Convert a value of a TFDS row to text or a number, and a ClassLabel to its name."""
    if hasattr(feature, "int2str"):
        return feature.int2str(int(value)) if int(value) >= 0 else str(int(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")  # decoded as the lines of files are
    if isinstance(value, list) or getattr(value, "ndim", 0) == 1:  # lists and one-dimensional arrays
        return [plain_value(item, None) for item in value]
    return value.item() if hasattr(value, "item") else value
