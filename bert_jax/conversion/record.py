"""`bert_jax.json` in a model directory: settings that no file of transformers or sentence-transformers has."""

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bert_jax import storage
from bert_jax.conversion.file_names import RECORD
from bert_jax.tasks import TASKS
from bert_jax.tasks.entry import TaskEntry, load_reference

if TYPE_CHECKING:
    from bert_jax.conversion.checkpoint import Model


def write_record(directory: storage.Path, records: Mapping[str, Any]) -> None:
    """Write the records of tasks, which are dataclasses; if there are none, no file is written."""
    content = {name: dataclasses.asdict(record) for name, record in records.items()}
    if content:
        storage.write_atomically(directory / RECORD, json.dumps(content, indent=2).encode() + b"\n")


def read_records(directory: storage.PathLike, head: str | None = None) -> dict[str, Any]:
    """Return the records of tasks in the file of a model directory, by key; {} if there is no such file.

    Args:
        directory: the model directory.
        head: the head of the models whose records are read; None = any.

    Raises:
        InputError: the file is invalid.
    """
    path = storage.Path(directory) / RECORD
    content = storage.read_json(path) if path.exists() else {}
    records = (entry.record for entry in TASKS.values() if entry.record is not None)
    return {
        record.name: load_reference(record.read)(content[record.name], path)
        for record in records
        if head in (None, record.head) and content.get(record.name) is not None
    }


def task_of_model(directory: storage.PathLike, head: str, field: str) -> TaskEntry | None:
    """Return the task of a model's head: the one whose record it has, else one without a record, else the first.

    Args:
        directory: the model directory.
        head: the head that the model was saved with.
        field: a field of `TaskEntry` whose keys are heads.

    Returns:
        The task; None if `field` lacks the head in the tasks whose record the model has, or in all if it has none.

    Raises:
        InputError: the file of records is invalid.
    """
    records, entries = read_records(directory, head), [*TASKS.values()]
    recorded = [entry for entry in entries if entry.record is not None and entry.record.name in records]
    entries = recorded or sorted(entries, key=lambda entry: entry.record is not None)
    return next((entry for entry in entries if head in getattr(entry, field)), None)


def add_settings(model: "Model", stack: contextlib.ExitStack) -> "Model":
    """Add the records in `bert_jax.json` to a model with its saved head. Raises InputError when the file is invalid."""
    if model.head != model.saved_head:
        return model
    return model.with_settings(records=read_records(model.root, model.head))
