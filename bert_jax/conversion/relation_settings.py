"""How a model of relation extraction marks entities, which `bert_jax.json` in its directory records."""

from bert_jax import storage
from bert_jax.conversion.file_names import RECORD
from bert_jax.data.finetuning.entity_markers import MARKERS, RelationSettings
from bert_jax.errors import InputError


def read_relation_settings(directory: storage.PathLike) -> RelationSettings | None:
    """Return the settings of a model of relation extraction; None for other models.

    Raises:
        InputError: the file is invalid.
    """
    path = storage.Path(directory) / RECORD
    content = storage.read_json(path) if path.exists() else {}
    found = content.get("relations") if isinstance(content, dict) else None
    if found is None:
        return None
    fields = found if isinstance(found, dict) else {}
    markers, null = fields.get("markers"), fields.get("null_label", "")
    if markers not in MARKERS or not isinstance(null, str):
        raise InputError(
            f"{path}: relations: expected markers, one of {', '.join(MARKERS)}, and a null_label, found {found!r:.80}"
        )
    return RelationSettings(markers, null)
