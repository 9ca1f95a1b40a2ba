"""Read rows of Parquet files batch by batch; needs pyarrow."""

import contextlib
import importlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from bert_jax import storage
from bert_jax.data.invalid_rows import RowNumber, place
from bert_jax.data.lines import MAX_ROW_BYTES
from bert_jax.errors import InputError, did_you_mean
from bert_jax.storage import PathLike

_ROWS = 256  # rows in memory at a time
_BATCH_BYTES = MAX_ROW_BYTES  # bytes of text in memory at a time, unless a single row has more
_LISTS = ("list", "large_list", "fixed_size_list", "list_view", "large_list_view")
_UNCHECKED_BYTES = 64 << 20  # decompressed bytes of a row group from which on the ratio is checked


class ParquetRow(NamedTuple):
    """The number of a row, from 1, its values by column, and the share of the file's rows read so far."""

    number: RowNumber
    values: dict[str, Any]
    share: float


class ParquetTable:
    """An open Parquet file.

    Texts are read dictionary-encoded, so a value that a file stores once for many rows is in memory only once. Rows are
    decoded a few at a time.

    Attributes:
        columns: their names.
    """

    def __init__(self, file: Any, spec: PathLike):
        self._file, self._spec = file, spec
        self.columns: list[str] = file.schema_arrow.names
        self._classes = _class_names(file.schema_arrow.metadata, self.columns)

    def rows(self, columns: Sequence[str] = (), start: int = 0, stop: int | None = None) -> Iterator[ParquetRow]:
        """Yield the rows in order, with the values of `columns` (all columns when empty).

        The numbers in a column that `datasets` wrote as a ClassLabel, or as lists of ClassLabels, become class names.

        Args:
            columns: the columns.
            start: the byte of the file at or after which the row groups to read begin.
            stop: the byte before which they begin; None = the end of the file.
        """
        metadata = self._file.metadata
        number, total, columns = 0, metadata.num_rows, columns or self.columns
        for group in range(metadata.num_row_groups):
            if not start <= _first_byte(metadata.row_group(group)) < (math.inf if stop is None else stop):
                number += metadata.row_group(group).num_rows
                continue
            _check_compression(self._spec, metadata.row_group(group), columns)
            for batch in self._file.iter_batches(_ROWS, [group], columns=list(columns)):
                for values in objects_of(self._spec, batch, number):
                    number += 1
                    for name in self._classes.keys() & values.keys():
                        values[name] = _named(values[name], self._classes[name])
                    yield ParquetRow(RowNumber(number), values, number / total)


def objects_of(spec: PathLike, batch: Any, number: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of an Arrow batch as objects; at most some megabytes of objects are in memory at a time.

    Args:
        spec: the file.
        batch: the batch.
        number: the number of rows that come before it.

    Raises:
        InputError: a row has more than `MAX_ROW_BYTES`.
    """
    size = sum(map(_num_bytes, batch.columns))
    if size > _BATCH_BYTES and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from objects_of(spec, batch.slice(0, half), number)
        yield from objects_of(spec, batch.slice(half), number + half)
        return
    if size > MAX_ROW_BYTES:
        where = place(str(spec), RowNumber(number + 1))
        raise InputError(f"{where}: expected a row of at most {MAX_ROW_BYTES:,} bytes, found {size:,}")
    columns = [_decoded(column).to_pylist() for column in batch.columns]
    yield from (dict(zip(batch.schema.names, values, strict=True)) for values in zip(*columns, strict=True))


@contextlib.contextmanager
def open_parquet(spec: PathLike) -> Iterator[ParquetTable]:
    """Open a Parquet file.

    Raises:
        InputError: pyarrow is not installed, the file is missing, or it is not a Parquet file; errors while reading in
            the `with` block become InputErrors too.
    """
    with open_arrow(spec, "a Parquet file") as file:
        parquet = importlib.import_module("pyarrow.parquet")
        schema = parquet.ParquetFile(file).schema
        leaves = (schema.column(i) for i in range(len(schema)))
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        yield ParquetTable(parquet.ParquetFile(file, read_dictionary=texts), spec)


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
        start: the byte of the file at or after which the row groups to read begin.
        stop: the byte before which they begin; None = the end of the file.

    Raises:
        InputError: as `open_parquet`, or a column is missing.
    """
    with open_parquet(spec) as table:
        for column in columns:
            if column not in table.columns:
                raise InputError(f"{spec}: expected a column {column!r}{did_you_mean(column, table.columns)}")
        yield from table.rows(columns, start, stop)


def _check_compression(spec: PathLike, group: Any, columns: Sequence[str]) -> None:
    """Raise InputError for a row group whose columns expand to over `MAX_COMPRESSION` times their size."""
    every = map(group.column, range(group.num_columns))
    leaves = [leaf for leaf in every if any(f"{leaf.path_in_schema}.".startswith(f"{name}.") for name in columns)]
    packed = sum(leaf.total_compressed_size for leaf in leaves)
    size = sum(leaf.total_uncompressed_size for leaf in leaves)
    if size > _UNCHECKED_BYTES and size > storage.MAX_COMPRESSION * packed:
        grows = f"one that grows to over {storage.MAX_COMPRESSION} times its size"
        raise InputError(f"{spec}: expected a Parquet file of text, found {grows}")


def _is_text(kind: Any, types: Any) -> bool:
    """Return whether a type is a dictionary of texts or bytes."""
    return types.is_dictionary(kind) and any(
        check(kind.value_type)
        for check in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


def _num_bytes(array: Any) -> int:
    """Return the size of an array in bytes when dictionary values are copied into each row."""
    types = importlib.import_module("pyarrow").types
    if _is_text(array.type, types):
        compute = importlib.import_module("pyarrow.compute")
        return compute.sum(compute.binary_length(array.dictionary).take(array.indices)).as_py() or 0
    if types.is_struct(array.type):
        return sum(map(_num_bytes, array.flatten()))
    if types.is_map(array.type):
        start, stop = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return sum(_num_bytes(part.slice(start, stop - start)) for part in (array.keys, array.items))
    if any(getattr(types, f"is_{kind}")(array.type) for kind in _LISTS):
        return _num_bytes(array.flatten())
    return array.nbytes


def _decoded(array: Any) -> Any:
    """Decode a dictionary array, which makes its conversion to objects faster; return other arrays unchanged."""
    return array.dictionary_decode() if _is_text(array.type, importlib.import_module("pyarrow").types) else array


def _first_byte(group: Any) -> int:
    """Return the offset of the first byte of a row group."""
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
    class_names = {}
    for column in columns:
        feature = features.get(column) if isinstance(features, dict) else None
        while isinstance(feature, list | dict) and feature and "names" not in feature:
            feature = feature[0] if isinstance(feature, list) else feature.get("feature")  # the type of its items
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and isinstance(feature["names"], list):
            class_names[column] = list(map(str, feature["names"]))
    return class_names


def _named(value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else value
