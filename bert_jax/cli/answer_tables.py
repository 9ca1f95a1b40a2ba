"""Write the answers of verbs as JSON lines, or as Parquet (with pyarrow), whose column types are fixed beforehand."""

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bert_jax.errors import printable_json

_ROWS = 4096  # rows per Parquet row group
# Column -> type: the name of an Arrow type, a dict of a struct's fields, or a list with the type of a list's items.
AnswerColumns = Mapping[str, Any]
_Write = Callable[[Mapping[str, Any]], object]

SCORED = {"score": "double"}
SPAN = {"start": "int64", "end": "int64"}


def is_parquet(path: object) -> bool:
    """Return whether a path has the suffix of a Parquet file."""
    return str(path).lower().endswith(".parquet")


@contextlib.contextmanager
def open_answers(path: Any, columns: AnswerColumns) -> Iterator[_Write]:
    """Open a file of answers, Parquet or JSON lines, and yield a function that writes one answer.

    The file appears when the block ends, or not at all.

    Raises:
        InputError: the file is Parquet and pyarrow is not installed.
    """
    from bert_jax import storage

    if is_parquet(path):
        with _open_parquet(path, columns) as write:
            yield write
        return
    with storage.open_atomically(path) as file:
        yield lambda answer: file.write(printable_json(answer) + "\n")


@contextlib.contextmanager
def _open_parquet(path: Any, columns: AnswerColumns) -> Iterator[_Write]:
    from bert_jax import storage
    from bert_jax.data.parquet_files import import_pyarrow

    pyarrow = import_pyarrow(path)
    schema = pyarrow.schema([(name, _arrow_type(kind, pyarrow)) for name, kind in columns.items()])
    rows: list[Mapping[str, Any]] = []
    with (
        storage.open_binary_atomically(path) as file,
        importlib.import_module("pyarrow.parquet").ParquetWriter(file, schema) as writer,
    ):

        def flush() -> None:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
            rows.clear()

        def write(answer: Mapping[str, Any]) -> None:
            rows.append(answer)
            if len(rows) == _ROWS:
                flush()

        yield write
        flush()


def _arrow_type(kind: Any, pyarrow: Any) -> Any:
    if isinstance(kind, dict):
        return pyarrow.struct([(name, _arrow_type(field, pyarrow)) for name, field in kind.items()])
    if isinstance(kind, list):  # the second item, if any, is the fixed size of a list
        return pyarrow.list_(_arrow_type(kind[0], pyarrow), *kind[1:])
    return pyarrow.type_for_alias(kind)
