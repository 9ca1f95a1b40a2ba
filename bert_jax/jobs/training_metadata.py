"""`bert_jax.json`, which records the columns and classes of a fine-tuned model's training data.

The file is beside the weights; transformers ignores it. `evaluate` and `predict` read from it the columns that the user
does not name.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from bert_jax import storage
from bert_jax.conversion.file_names import RECORD
from bert_jax.conversion.record import read_records
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.delimited import DELIMITERS
from bert_jax.errors import InputError
from bert_jax.model_files.keys import FileKey, check_keys, honoured
from bert_jax.tasks import TASKS

_KEYS: tuple[FileKey, ...] = (
    honoured("columns", "columns of the training data, the defaults of `evaluate` and `predict`"),
    honoured("classes", "class -> number of rows in the training data"),
    honoured("missing_labels", "whether `evaluate` leaves out rows without a label, as training did"),
    honoured(
        "search_prompts",
        "whether `evaluate` and `predict` read pairs as a query and a document, with the prompts "
        "for them, as training did",
    ),
)
_TEXTS = ("text", "pair", "label", "texts", "separator", "delimiter")  # the string fields of Columns


@dataclasses.dataclass(frozen=True)
class TrainingMetadata:
    """The recorded properties of a training table.

    Attributes:
        columns: the columns of texts and labels.
        classes: class -> number of rows.
        missing_labels: one of `bert_jax.data.finetuning.labels.MISSING_RULES`.
        search_prompts: whether the texts of a pair are a query and a document, with prompts of their own.
        records: key -> what the model's task records under it (`bert_jax.tasks.Record`).
    """

    columns: Columns = dataclasses.field(default_factory=Columns)
    classes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    missing_labels: str = "keep"
    search_prompts: bool = False
    records: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def training_metadata_keys() -> tuple[FileKey, ...]:
    """Return the keys of the file, including those that tasks record."""
    records = (entry.record for entry in TASKS.values() if entry.record is not None)
    return (*_KEYS, *(honoured(record.name, record.meaning) for record in records))


def write_training_metadata(directory: storage.PathLike, metadata: TrainingMetadata) -> None:
    """Write the file into a model directory."""
    columns = metadata.columns
    if columns.delimiter in DELIMITERS or columns.delimiter == "tab":  # these are detected from the file anyway
        columns = dataclasses.replace(columns, delimiter="")
    described: dict[str, Any] = {name: value for name in _TEXTS if (value := getattr(columns, name))}
    described |= {"has_header": columns.has_header} | ({"more": list(columns.more)} if columns.more else {})
    content: dict[str, Any] = {
        "columns": described,
        "classes": dict(metadata.classes),
        "missing_labels": metadata.missing_labels,
    }
    if metadata.search_prompts:
        content["search_prompts"] = True
    content |= {name: dataclasses.asdict(record) for name, record in metadata.records.items()}
    storage.write_atomically(
        storage.Path(directory) / RECORD, json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"
    )


def read_training_metadata(model_dir: storage.PathLike) -> TrainingMetadata:
    """Read the file of a model directory, or return the defaults if it does not exist.

    Raises:
        InputError: the file is invalid.
    """
    path = storage.Path(model_dir) / RECORD
    if not path.exists():
        return TrainingMetadata()
    content = storage.read_json(path)
    check_keys(content, training_metadata_keys(), path)
    columns, classes = content.get("columns", {}), content.get("classes", {})
    if not isinstance(columns, dict) or not isinstance(classes, dict):
        raise InputError(
            f"{path}: expected columns and classes to be objects, found {type(columns).__name__} and "
            f"{type(classes).__name__}"
        )
    names: dict[str, Any] = {name: columns.get(name, "") for name in _TEXTS}
    more, has_header = columns.get("more", []), columns.get("has_header", True)
    texts_fit = all(isinstance(value, str) for value in names.values())
    if not texts_fit or not isinstance(has_header, bool) or not _are_texts(more):
        raise InputError(
            f"{path}: columns: expected names of columns (strings) and has_header true or false, found "
            f"{repr(columns)[:80]}"
        )
    rule = "drop" if content.get("missing_labels") == "drop" else "keep"
    counts = {name: count for name, count in classes.items() if isinstance(count, int)}
    named = Columns(**names, has_header=has_header, more=tuple(more))
    return TrainingMetadata(named, counts, rule, content.get("search_prompts") is True, read_records(model_dir))


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
