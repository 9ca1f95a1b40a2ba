"""`bert_jax.json` in a model directory: what no file of transformers or sentence-transformers has a place for."""

import dataclasses
import json
from typing import Any

from bert_jax import storage
from bert_jax.conversion.model_kinds import RECORD


def write_record(directory: storage.Path, **entries: Any) -> None:
    """Write the entries that are not None, each a dataclass; without entries, no file."""
    content = {name: dataclasses.asdict(entry) for name, entry in entries.items() if entry is not None}
    if content:
        storage.write_atomically(directory / RECORD, json.dumps(content, indent=2).encode() + b"\n")
