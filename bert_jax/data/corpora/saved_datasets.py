"""Read the Arrow files of a data set that `datasets` saved with `save_to_disk`; needs pyarrow."""

import importlib
from collections.abc import Iterator
from typing import Any

from bert_jax import storage
from bert_jax.data.corpora.readers import Document, Invalid, row_documents, strict
from bert_jax.data.invalid_rows import RowNumber, place
from bert_jax.data.parquet_files import objects_of, open_arrow
from bert_jax.errors import InputError, did_you_mean

_STATE_FILE, _SPLITS_FILE = "state.json", "dataset_dict.json"
_ROWS = 1024  # rows converted to objects at a time


def saved_files(path: str) -> list[storage.Path]:
    """Return the Arrow files of a saved data set in the order of its rows.

    Raises:
        InputError: the folder holds no saved data set, or several splits of one.
    """
    folder = storage.Path(path)
    if (folder / _SPLITS_FILE).is_file():
        names = _names(folder / _SPLITS_FILE, lambda content: content["splits"])
        raise InputError(f"{path}: expected one split, found {len(names)}: {', '.join(f'{path}/{n}' for n in names)}")
    if not (folder / _STATE_FILE).is_file():
        raise InputError(f"{path}: expected a folder that `save_to_disk` of datasets wrote, found no {_STATE_FILE}")
    if storage.read_json(folder / _STATE_FILE).get("_indices_data_files"):
        raise InputError(
            f"{path}: expected all rows of its files, found a selection; save it again with a newer version of datasets"
        )
    names = _names(folder / _STATE_FILE, lambda content: [file["filename"] for file in content["_data_files"]])
    return [storage.existing(folder / name) for name in names]


def _names(path: storage.Path, get: Any) -> list[str]:
    try:
        names = get(storage.read_json(path))
        if names and all(isinstance(name, str) and name == storage.Path(name).name for name in names):
            return list(names)
    except (KeyError, TypeError):
        pass
    raise InputError(f"{path}: expected names as `save_to_disk` of datasets writes them, found others")


def read_arrow_documents(path: storage.PathLike, field: str, invalid: Invalid = strict) -> Iterator[Document]:
    """Yield a document for each row of an Arrow file, from the text in its column `field`.

    Raises:
        InputError: pyarrow is not installed, the file is not an Arrow stream, or there is no such column of texts.
    """
    done = 0
    with open_arrow(path, "an Arrow file") as file:
        table = importlib.import_module("pyarrow.ipc").open_stream(file)
        if field not in table.schema.names:
            raise InputError(f"{path}: expected a column {field!r}{did_you_mean(field, table.schema.names)}")
        for batch in table:
            texts = batch.select([field])
            for start in range(0, texts.num_rows, _ROWS):
                rows = objects_of(path, texts.slice(start, _ROWS), done + start)
                for number, row in enumerate(rows, done + start + 1):
                    where = place(str(path), RowNumber(number))
                    yield from row_documents(where, f"{path}:{number}", row, field, file.tell(), invalid)
            done += texts.num_rows
