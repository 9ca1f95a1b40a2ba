"""Read labelled texts from tables: TSV, CSV, JSON and Parquet files, TFDS data sets, tables in memory.

`read_examples` yields them one at a time, so that a file larger than memory can be predicted. Every error is an
InputError that names the file and the line.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_jax import storage
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.records import json_rows, memory_rows, table_name, tfds_rows
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.data.table_formats import READERS, format_of
from bert_jax.errors import InputError


class Example(NamedTuple):
    """One row: its 1-based line, or its index in a data set, and its columns; None for a column that is not read."""

    line: int
    text: str
    pair: str | None
    label: str | None


def read_examples(spec: Any, columns: Columns, bad: InvalidRows | None = None) -> Iterator[Example]:
    """Yield the rows of a table in order.

    Args:
        spec: a `.tsv`, `.csv`, `.jsonl` or `.json` file, possibly compressed (`storage.COMPRESSED`), a `.parquet` file,
            a file in a registered format (`table_formats`), `tfds:NAME[:SPLIT]` (split `train` by default), a DataFrame
            or a list of dicts.
            TSV is read as GLUE writes it: without quoting, so that `"` is an ordinary character. CSV has quoted fields,
            which may hold newlines. A line of JSON lines is an object; a `.json` file may also be an array of objects.
            A label that is a boolean, a number or a list becomes its JSON text.
        columns: the columns to read.
        bad: counts invalid rows; the caller passes the yielded rows through `bad.fitting`. None: invalid rows are an
            error.

    Raises:
        InputError: the file is missing, empty, cut short or not of its format, or a column is missing; or rows are
            invalid: not UTF-8, not of the format, or with another number of columns than the first line. As reading is
            lazy, the error is raised during iteration.
    """
    own = bad or InvalidRows(table_name(spec))
    rows = own.each(_rows(spec, columns, own), lambda row: example_of(row, columns))
    return rows if bad else own.fitting(rows)


def example_of(row: tuple[int, dict[str, Any]], columns: Columns) -> Example:
    """Convert a row of `read_rows` to one of `read_examples`."""
    line, values = row
    return Example(line, values[columns.text], values.get(columns.pair), values.get(columns.label))


def texts_of(row: Example, columns: Columns) -> dict[str, str]:
    """Return the texts of a row: column -> text."""
    return {columns.text: row.text} | ({} if row.pair is None else {columns.pair: row.pair})


def read_rows(spec: Any, columns: Columns, bad: InvalidRows | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of `read_examples` as (line, column -> text or list of texts), with every wanted column."""
    own = bad or InvalidRows(table_name(spec))
    rows = _rows(spec, columns, own)
    return rows if bad else own.fitting(rows)


def _rows(spec: Any, columns: Columns, bad: InvalidRows) -> Iterator[tuple[int, dict[str, Any]]]:
    if not isinstance(spec, str):
        return memory_rows(spec, columns, bad)
    if spec.startswith("tfds:"):
        return tfds_rows(spec, columns, bad)
    if suffix := format_of(spec):
        read: Any = json_rows if READERS.is_registered(suffix) else READERS[suffix]
        rows: Iterator[tuple[int, dict[str, Any]]] = read(spec, columns, bad)
        return rows
    raise InputError(
        f"{spec}: expected a file named {', '.join(READERS)} (optionally with {', '.join(storage.COMPRESSED)}), "
        "or tfds:NAME:SPLIT"
    )
