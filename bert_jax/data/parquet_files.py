"""Read rows of Parquet files batch by batch; needs pyarrow."""

import contextlib
import importlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from bert_jax import storage
from bert_jax.data.invalid_rows import RowNumber
from bert_jax.errors import InputError, did_you_mean
from bert_jax.storage import PathLike

SUFFIX = ".parquet"
_ROWS = 1024  # rows in memory at a time


class ParquetRow(NamedTuple):
    """The number of a row, from 1, its values by column, and the share of the file that has been read with it."""

    number: RowNumber
    values: dict[str, Any]
    share: float


class ParquetTable:
    """An open Parquet file.

    Attributes:
        columns: their names.
    """

    def __init__(self, file: Any):
        self._file = file
        self.columns: list[str] = file.schema_arrow.names
        self._classes = _class_names(file.schema_arrow.metadata, self.columns)

    def rows(self, columns: Sequence[str] = (), start: int = 0, stop: int | None = None) -> Iterator[ParquetRow]:
        """Yield the rows in order, with the values of `columns` (all columns when empty).

        The numbers in a column that `datasets` wrote as a ClassLabel, or as lists of ClassLabels, become class names.

        Args:
            columns: the columns.
            start: the byte of the file from which on the groups of rows begin.
            stop: the byte before which they begin; None = the end of the file.
        """
        metadata = self._file.metadata
        number, total = 0, metadata.num_rows
        for group in range(metadata.num_row_groups):
            if not start <= _first_byte(metadata.row_group(group)) < (math.inf if stop is None else stop):
                number += metadata.row_group(group).num_rows
                continue
            for batch in self._file.iter_batches(_ROWS, [group], columns=list(columns) or None):
                for values in batch.to_pylist():
                    number += 1
                    for name in self._classes.keys() & values.keys():
                        values[name] = _named(values[name], self._classes[name])
                    yield ParquetRow(RowNumber(number), values, number / total)


@contextlib.contextmanager
def open_parquet(spec: PathLike) -> Iterator[ParquetTable]:
    """Open a Parquet file.

    Raises:
        InputError: pyarrow is not installed, the file is missing, or it is not a Parquet file; errors while reading in
            the `with` block are converted too.
    """
    with open_arrow(spec, "a Parquet file") as file:
        yield ParquetTable(importlib.import_module("pyarrow.parquet").ParquetFile(file))


@contextlib.contextmanager
def open_arrow(spec: PathLike, kind: str) -> Iterator[IO[bytes]]:
    """Open a file for pyarrow, whose errors in the `with` block become InputErrors that name the expected kind."""
    pyarrow = import_pyarrow(spec)
    with storage.existing(spec).open("rb") as file:
        try:
            yield file
        except (pyarrow.ArrowException, OSError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(f"{spec}: expected {kind}, found: {reason}") from None


def read_parquet(
    spec: PathLike, columns: Sequence[str] = (), start: int = 0, stop: int | None = None
) -> Iterator[ParquetRow]:
    """Yield the rows of a Parquet file in order.

    Args:
        spec: the file.
        columns: the columns to read; () = all.
        start: the byte of the file from which on the groups of rows begin.
        stop: the byte before which they begin; None = the end of the file.

    Raises:
        InputError: as `open_parquet`, or a column is missing.
    """
    with open_parquet(spec) as table:
        for column in columns:
            if column not in table.columns:
                raise InputError(f"{spec}: expected a column {column!r}{did_you_mean(column, table.columns)}")
        yield from table.rows(columns, start, stop)


def _first_byte(group: Any) -> int:
    """Return the offset of the first byte of a group of rows."""
    columns = map(group.column, range(group.num_columns))
    return min((column.dictionary_page_offset or column.data_page_offset for column in columns), default=0)


def import_pyarrow(spec: object) -> Any:
    """Return the module pyarrow. Raises InputError where it is not installed."""
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        raise InputError(f"{spec}: expected pyarrow, which reads and writes Parquet: pip install pyarrow") from None


def _class_names(metadata: Mapping[bytes, bytes] | None, columns: Sequence[str]) -> dict[str, list[str]]:
    """Return column -> class names for the ClassLabel columns of a Parquet file that `datasets` wrote."""
    try:
        features = json.loads((metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    found = {}
    for column in columns:
        feature = features.get(column) if isinstance(features, dict) else None
        while isinstance(feature, list | dict) and feature and "names" not in feature:
            feature = feature[0] if isinstance(feature, list) else feature.get("feature")  # the element of a list
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and isinstance(feature["names"], list):
            found[column] = list(map(str, feature["names"]))
    return found


def _named(value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else value
