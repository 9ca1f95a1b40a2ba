"""Write the predictions for the rows of a table, in constant memory."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from bert_jax import storage
from bert_jax.data.invalid_rows import InvalidRow
from bert_jax.errors import InputError
from bert_jax.evaluation.answer_files import Write, answer_file

_Row = TypeVar("_Row")
CHUNK = 8192  # rows in memory at a time: enough to find rows of similar length, few enough for memory


def write_answers(
    out: storage.PathLike,
    header: Sequence[str],
    rows: Iterator[_Row],
    answer: Callable[[list[_Row]], Iterable[tuple[dict[str, Any], Sequence[Any]]]],
    missing: Sequence[str],
    kept: Callable[[_Row], Mapping[str, Any]] = lambda row: {},
    open_file: Callable[[storage.PathLike, Sequence[str]], contextlib.AbstractContextManager[Write]] = answer_file,
) -> int:
    """Write an answer for every row, in the order of the rows; the file appears when it is complete.

    In a `.jsonl` file, an InvalidRow becomes an object whose answer is null and whose `error` is the message; in a
    table, it becomes empty fields. Columns copied from the data come first; a column with the name of a field of the
    answer is renamed `input_NAME`.

    Args:
        out: the file to write.
        header: the names of the answer's fields in a table.
        rows: the rows, each of which may be an InvalidRow.
        answer: rows -> (answer as a JSON object, answer as the fields of a table) for each.
        missing: the keys of an answer in a JSON object, which are null for an invalid row.
        kept: row -> the columns of the data to copy.
        open_file: opens the file, as `answer_file` does.

    Returns:
        The number of rows.
    """
    count = 0
    chunk = list(islice(rows, CHUNK))
    names = list(dict.fromkeys(name for row in chunk for name in _kept(row, kept)))
    with open_file(out, [*(f"input_{name}" if name in header else name for name in names), *header]) as write:
        while chunk:
            fitting = [row for row in chunk if not isinstance(row, InvalidRow)]
            answers = iter(answer(fitting) if fitting else ())
            objects: list[Mapping[str, Any]] = []
            table: list[Sequence[Any]] = []
            for row in chunk:
                if isinstance(row, InvalidRow):
                    described, fields = dict.fromkeys(missing) | {"error": str(row)}, [""] * len(header)
                else:
                    described, fields = next(answers)
                carried = _kept(row, kept)
                objects.append(_beside(carried, described))
                table.append([*(carried.get(name, "") for name in names), *fields])
            write(objects, table)
            count += len(chunk)
            chunk = list(islice(rows, CHUNK))
    return count


@contextlib.contextmanager
def attach_columns(kept: Mapping[str, Any]) -> Iterator[None]:
    """Attach the copied columns of a row to an InvalidRow that is raised in the block."""
    try:
        yield
    except InvalidRow as error:
        error.kept = kept
        raise


def _kept(row: Any, kept: Callable[[Any], Mapping[str, Any]]) -> Mapping[str, Any]:
    return row.kept if isinstance(row, InvalidRow) else kept(row)


def _beside(carried: Mapping[str, Any], described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns copied from the data, followed by the answer."""
    same = {name for name in carried if name in described and described[name] == carried[name]}
    named = {f"input_{name}" if name in described else name: carried[name] for name in carried if name not in same}
    return {**named, **described}


def check_format(out: storage.PathLike, formats: Sequence[str]) -> None:
    """Check the name of a file to write.

    Raises:
        InputError: the name does not end in one of `formats`, or it ends in `.parquet` and pyarrow is not installed.
    """
    if not str(out).lower().endswith(tuple(formats)):
        raise InputError(f"{out}: expected a file named {' or '.join(formats)} to write to")
    if str(out).lower().endswith(".parquet"):
        from bert_jax.data.parquet_files import import_pyarrow

        import_pyarrow(out)
