"""Rows of Parquet files, a batch held at a time; needs pyarrow."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bert_jax import storage
from bert_jax.data.bad_rows import RowNumber
from bert_jax.errors import InputError, did_you_mean
from bert_jax.storage import PathLike

SUFFIX = ".parquet"
_ROWS = 1024  # that are held at a time


class ParquetRow(NamedTuple):
    """The number of a row, from 1, its values by column, and the share of the file that has been read with it."""

    number: RowNumber
    values: dict[str, Any]
    share: float


def read_parquet(spec: PathLike, columns: Sequence[str] = ()) -> Iterator[ParquetRow]:
    """Yield the rows of a Parquet file in order.

    Args:
        spec: the file.
        columns: those to read; () = all.

    Raises:
        InputError: pyarrow is not installed, the file is missing or none of Parquet, or a column is missing.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(f"{spec}: expected pyarrow, which reads Parquet: pip install pyarrow") from None
    with storage.existing(spec).open("rb") as file:
        try:
            parquet = pyarrow.parquet.ParquetFile(file)
            names = parquet.schema_arrow.names
            for column in columns:
                if column not in names:
                    raise InputError(f"{spec}: expected a column {column!r}{did_you_mean(column, names)}")
            number, rows = 0, parquet.metadata.num_rows
            for batch in parquet.iter_batches(_ROWS, columns=list(columns) or None):
                for values in batch.to_pylist():
                    number += 1
                    yield ParquetRow(RowNumber(number), values, number / rows)
        except (pyarrow.ArrowException, OSError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(f"{spec}: expected a Parquet file, found: {reason}") from None
