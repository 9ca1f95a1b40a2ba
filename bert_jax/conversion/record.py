"""`bert_jax.json` in a model directory: what no file of transformers or sentence-transformers has a place for."""

import contextlib
import dataclasses
import json
from typing import Any

from bert_jax import storage
from bert_jax.conversion.checkpoint import Model
from bert_jax.conversion.file_names import RECORD
from bert_jax.conversion.generated import read_generated
from bert_jax.conversion.relation_settings import read_relation_settings


def write_record(directory: storage.Path, **entries: Any) -> None:
    """Write the entries that are not None, each a dataclass; without entries, no file."""
    content = {name: dataclasses.asdict(entry) for name, entry in entries.items() if entry is not None}
    if content:
        storage.write_atomically(directory / RECORD, json.dumps(content, indent=2).encode() + b"\n")


def add_settings(model: Model, stack: contextlib.ExitStack) -> Model:
    """Add what `bert_jax.json` records of a model with this head. Raises InputError when the file is invalid."""
    if model.head == "masked_lm":
        return model.with_settings(generated=read_generated(model.root))
    if model.head == model.saved_head == "sequence_classification":
        return model.with_settings(relations=read_relation_settings(model.root))
    return model
