"""`bert_jax.json`, which records the columns and classes of a fine-tuned model's training data.

It lies in a file of its own beside the weights, which transformers does not read. `evaluate` and `predict` take from it
the columns that the user does not name.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from bert_jax import storage
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.delimited import DELIMITERS
from bert_jax.errors import InputError
from bert_jax.model_files.keys import FileKey, check_keys, honoured

FILE = "bert_jax.json"
REMEMBERED_KEYS: tuple[FileKey, ...] = (
    honoured("columns", "columns of the training data, used where the user of `evaluate` or `predict` names none"),
    honoured("classes", "class -> number of rows in the training data"),
    honoured("missing_labels", "whether `evaluate` leaves out rows without a label, as training did"),
)
_TEXTS = ("text", "pair", "label", "texts", "separator", "delimiter")  # fields of Columns that are a text


@dataclasses.dataclass(frozen=True)
class Remembered:
    """What is remembered of a training table.

    Attributes:
        columns: where the texts and labels stood.
        classes: class -> number of rows.
        missing_labels: of `bert_jax.data.finetuning.labels.MISSING_RULES`.
    """

    columns: Columns = dataclasses.field(default_factory=Columns)
    classes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    missing_labels: str = "keep"


def write_remembered(directory: storage.PathLike, remembered: Remembered) -> None:
    """Write the file into a model directory."""
    columns = remembered.columns
    if columns.delimiter in DELIMITERS or columns.delimiter == "tab":  # which are found, also where others are used
        columns = dataclasses.replace(columns, delimiter="")
    described: dict[str, Any] = {name: value for name in _TEXTS if (value := getattr(columns, name))}
    described |= {"has_header": columns.has_header} | ({"more": list(columns.more)} if columns.more else {})
    content = {
        "columns": described,
        "classes": dict(remembered.classes),
        "missing_labels": remembered.missing_labels,
    }
    storage.write_atomically(
        storage.Path(directory) / FILE, json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"
    )


def read_remembered(model_dir: storage.PathLike) -> Remembered:
    """Return what a model directory remembers; nothing where it has no such file.

    Raises:
        InputError: the file is not as `write` leaves it.
    """
    path = storage.Path(model_dir) / FILE
    if not path.exists():
        return Remembered()
    content = storage.read_json(path)
    check_keys(content, REMEMBERED_KEYS, path)
    columns, classes = content.get("columns", {}), content.get("classes", {})
    if not isinstance(columns, dict) or not isinstance(classes, dict):
        raise InputError(f"{path}: expected objects as columns and classes, found other values")
    given: dict[str, Any] = {name: columns.get(name, "") for name in _TEXTS}
    more, has_header = columns.get("more", []), columns.get("has_header", True)
    texts_fit = all(isinstance(value, str) for value in given.values())
    if not texts_fit or not isinstance(has_header, bool) or not _are_texts(more):
        raise InputError(f"{path}: columns: expected names of columns, found another value")
    rule = "drop" if content.get("missing_labels") == "drop" else "keep"
    counts = {name: count for name, count in classes.items() if isinstance(count, int)}
    return Remembered(Columns(**given, has_header=has_header, more=tuple(more)), counts, rule)


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
