"""The formats of tables: the suffix of a file's name -> the function that reads its rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from bert_jax.data.invalid_rows import RowNumber
from bert_jax.errors import InputError
from bert_jax.registry import Registry
from bert_jax.storage import without_compression

_FINETUNING = "bert_jax.data.finetuning"
_PARQUET = ".parquet"  # a Parquet file compresses its columns itself
# Our readers take (file, columns, invalid rows); registered ones take the file.
_OURS = {
    ".tsv": f"{_FINETUNING}.delimited.read_delimited",
    ".csv": f"{_FINETUNING}.delimited.read_delimited",
    ".jsonl": f"{_FINETUNING}.records.json_rows",
    ".json": f"{_FINETUNING}.records.json_rows",
    ".ndjson": f"{_FINETUNING}.records.json_rows",
    _PARQUET: f"{_FINETUNING}.records.parquet_rows",
}
READERS: Registry[Callable[..., Iterable[Any]]] = Registry("bert_jax.data.register_reader", _OURS)


def register_reader(suffix: str, function: Callable[[str], Iterable[Mapping[str, Any]]]) -> None:
    """Add a table format of your own, which training, evaluation, prediction and the command line then read.

    Args:
        suffix: the end of the names of such files, in lower case, such as `.xyz`; a reader that was registered for it
            before is replaced. No plugin is imported for a file with a suffix of bert_jax's own formats.
        function: a function of a file's name, as the user wrote it, that yields rows: dicts of column -> text, number
            or list. It is called again for each pass over the file, and must yield the same rows in the same order.

    Raises:
        InputError: the suffix is that of a format of this package, or does not begin with a dot.
    """
    if not isinstance(suffix, str) or not suffix.startswith(".") or suffix != suffix.lower():
        raise InputError(f"{READERS.register}: expected a suffix such as '.xyz' in lower case, found {suffix!r}")
    READERS.add(suffix, function)


def format_of(spec: str) -> str:
    """Return the longest suffix in `READERS` of a file's name, or ""; ours may precede `.gz` or another compression."""
    name, plain = spec.lower(), without_compression(spec).lower()
    ours = [suffix for suffix in _OURS if (name if suffix == _PARQUET else plain).endswith(suffix)]
    registered = [suffix for suffix in READERS.registered_names(plugins=not ours) if name.endswith(suffix)]
    return max(ours + registered, key=len, default="")


def has_registered_format(spec: str) -> bool:
    """Return whether a file's format was registered and is not one of this package."""
    return READERS.is_registered(format_of(spec))


def registered_rows(spec: str) -> Iterator[tuple[RowNumber, dict[str, Any]]]:
    """Yield the number and the columns of each row of a file whose format is registered.

    Raises:
        InputError: its reader raises an error, or yields anything but dicts.
    """
    suffix = format_of(spec)
    try:
        for number, row in enumerate(READERS[suffix](spec), 1):
            if not isinstance(row, Mapping):
                raise InputError(f"{spec}: row {number}: expected a dict from the reader of {suffix}, found "
                                 f"{type(row).__name__}")  # fmt: skip
            yield RowNumber(number), dict(row)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{spec}: the reader of {suffix}: {type(error).__name__}: {error}") from error
