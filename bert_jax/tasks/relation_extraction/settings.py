"""The record of relation extraction in `bert_jax.json`: how a model marks entities."""

from typing import Any

from bert_jax import storage
from bert_jax.errors import InputError
from bert_jax.tasks.relation_extraction.markers import MARKERS, RelationSettings


def relation_settings_of(value: Any, path: storage.Path) -> RelationSettings:
    """Parse the record `relations` of a file. Raises InputError when it is invalid."""
    fields = value if isinstance(value, dict) else {}
    markers, null = fields.get("markers"), fields.get("null_label", "")
    if markers not in MARKERS or not isinstance(null, str):
        raise InputError(
            f"{path}: relations: expected markers, one of {', '.join(MARKERS)}, and a null_label, found {value!r:.80}"
        )
    return RelationSettings(markers, null)
