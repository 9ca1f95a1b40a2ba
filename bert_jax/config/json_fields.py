"""Convert `BertConfig` fields from and to keys of a Hugging Face `config.json`, by tables of `bert_jax.families`."""

from collections.abc import Mapping
from typing import Any

from bert_jax.config.fields import Setting
from bert_jax.errors import InputError
from bert_jax.families import FAMILIES
from bert_jax.families.base import Json, whole_number

# Other names of ACTIVATION_NAMES in Hugging Face files.
_ACTIVATION_ALIASES = {
    "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "gelu_accurate": "gelu_tanh", "gelu_python": "gelu", "swish": "silu",
}  # fmt: skip


def read_fields(hf: Json, family: str, declared: Mapping[str, Setting]) -> Json:
    """Return the fields that a `config.json` of a family sets, without classes and quantization.

    Args:
        hf: the file's content.
        family: the family.
        declared: field -> its declaration.

    Raises:
        InputError: a value has the wrong type or range or is not supported; the message names its key.
    """
    kind = FAMILIES[family]
    for field, key in (*kind.keys.items(), *kind.older_keys.items()):
        if key in hf and not (hf[key] is None and field == "pad_token_id"):  # null = not set
            declared[field].check(_activation(hf[key]) if field.endswith("_act") else hf[key], key)
    hf = kind.defaults | {key: value for key, value in hf.items() if value is not None or key in kind.nulls}
    ours = {field: hf[key] for field, key in kind.keys.items() if key in hf} | dict(kind.fixed) | kind.reads(hf)
    if "head_dim" in hf:
        declared["head_dim"].check(hf["head_dim"], "head_dim")
        ours["head_dim"] = hf["head_dim"]
    if offset := kind.position_offset(hf):
        rows = whole_number(hf, "max_position_embeddings")
        if rows <= offset:
            raise InputError(f"max_position_embeddings: expected more than {offset} in a {family}, found {rows}")
        ours |= {"max_position_embeddings": rows - offset, "position_offset": offset}
    return ours | {name: _activation(ours[name]) for name in ("hidden_act", "head_act") if name in ours}


def write_fields(fields: Json, architecture: str, carried: Json) -> Json:
    """Return the `config.json` of fields, without classes and quantization.

    Args:
        fields: every field of a `BertConfig`.
        architecture: the Hugging Face class; "" = that of the bare encoder.
        carried: keys and values of the file that was read; its name for an activation is kept.
    """
    kind = FAMILIES[fields["family"]]
    hf: Json = {
        "architectures": [architecture or f"{kind.classes}Model"],
        "model_type": kind.model_type or fields["family"],
    }
    hf |= {key: fields[field] for field, key in kind.keys.items() if field in fields}  # fields of its parts
    try:
        hf |= kind.writes(fields)
        if "embedding_size" in kind.keys:
            hf["embedding_size"] = fields["embedding_size"] or fields["hidden_size"]
    except KeyError as missing:  # a setting of a part that this config does not have
        raise InputError(
            f"model config: expected the setting {missing}, as in every {fields['family']} in the Hugging Face "
            "layout, found parts without it"
        ) from None
    if offset := kind.position_offset(fields):
        hf[kind.keys["max_position_embeddings"]] += offset
    for key in (kind.keys.get("hidden_act", ""), kind.keys.get("head_act", "")):
        if hf.get(key) == "gelu_tanh":
            hf[key] = "gelu_new"
        if key in carried and _activation(carried[key]) == _activation(hf.get(key)):
            hf[key] = carried[key]
    if fields["head_dim"]:
        hf["head_dim"] = fields["head_dim"]
    return hf


def check_round_trip(ours: Any, back: Any) -> None:
    """Raise InputError when a `BertConfig` does not survive a round trip through its `config.json`."""
    for place, part in ours.parts.items():
        if type(part) is not type(other := back.parts[place]):
            raise InputError(
                f"model config: {place}: expected {other}, as in every {ours.family} in the Hugging Face layout, found "
                f"{part}"
            )
    written, read, declared = ours.settings(), back.settings(), ours.declared
    for name, value in written.items():
        if value != read[name] and (name not in declared or declared[name].in_json):
            raise InputError(
                f"model config: {name}: expected {read[name]!r}, as in every {ours.family} in the Hugging Face "
                f"layout, found {value!r}"
            )


def _activation(name: Any) -> Any:
    return _ACTIVATION_ALIASES.get(name, name) if isinstance(name, str) else name
