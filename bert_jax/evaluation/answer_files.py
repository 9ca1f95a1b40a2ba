"""Write predictions row by row as JSON lines, TSV, CSV or Parquet; the file appears when it is complete."""

import contextlib
import csv
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bert_jax import storage
from bert_jax.errors import InputError, printable_json
from bert_jax.evaluation.table_cells import TableCells

Write = Callable[[list[Mapping[str, Any]], list[Sequence[Any]]], None]


@contextlib.contextmanager
def answer_file(out: storage.PathLike, header: Sequence[str]) -> Iterator[Write]:
    """Open an answer file, and yield a function that writes rows.

    The function takes the rows as JSON objects (for JSON lines) and as fields under `header` (for a table). JSON lines
    and Parquet have the exact text; in CSV and TSV, `TableCells` makes it safe for spreadsheets and terminals.

    Raises:
        InputError: the file is Parquet and pyarrow is not installed.
    """
    name = str(out).lower()
    if name.endswith(".parquet"):
        with _parquet(out, header) as write:
            yield write
        return
    with storage.open_atomically(out) as file:
        if name.endswith(".jsonl"):
            yield lambda objects, _: file.writelines(_json(described) + "\n" for described in objects)
        else:
            cells = TableCells()
            yield _csv(file, header, cells) if name.endswith(".csv") else _tsv(file, header, cells)
            cells.log_changes(out)


def _csv(file: Any, header: Sequence[str], cells: TableCells) -> Write:
    table = csv.writer(file, lineterminator="\n")
    table.writerow(map(cells.text, header))
    return lambda _, rows: table.writerows(map(cells.text, row) for row in rows)


def _tsv(file: Any, header: Sequence[str], cells: TableCells) -> Write:
    def line(fields: Sequence[Any]) -> str:
        return "\t".join(map(cells.one_line, fields)) + "\n"

    file.write(line(header))
    return lambda _, rows: file.writelines(map(line, rows))


def _json(described: Mapping[str, Any]) -> str:
    return printable_json(described, default=str)


@contextlib.contextmanager
def _parquet(out: storage.PathLike, header: Sequence[str]) -> Iterator[Write]:
    """Open a Parquet file; the types of its columns are those of the first rows written."""
    from bert_jax.data.parquet_files import import_pyarrow

    pyarrow, parquet = import_pyarrow(out), importlib.import_module("pyarrow.parquet")
    with storage.open_binary_atomically(out) as file:
        writer: Any = None

        def write(_: Sequence[Mapping[str, Any]], rows: Sequence[Sequence[Any]]) -> None:
            nonlocal writer
            columns = {name: [None if row[i] == "" else row[i] for row in rows] for i, name in enumerate(header)}
            try:
                table = pyarrow.table(columns, schema=writer.schema if writer else None)
            except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
                raise InputError(f"{out}: expected columns of one type each, found: {error}") from None
            if writer is None:
                fields = [f.with_type(pyarrow.string()) if pyarrow.types.is_null(f.type) else f for f in table.schema]
                table = table.cast(pyarrow.schema(fields))
                writer = parquet.ParquetWriter(file, table.schema)
            writer.write_table(table)

        try:
            yield write
        finally:
            if writer is not None:
                writer.close()
