"""`Family`, the description of a family of encoders, and readers of values of `config.json`."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax.errors import InputError, printable
from bert_jax.families.names import Names
from bert_jax.model_files.keys import FileKey

Json = dict[str, Any]
LARGEST = 2**31
_MOST_SHOWN = 80  # longest value in a message, in characters

# LayerNorms before each block and after the last layer.
PRE_NORM = {"norm_placement": "pre", "embedding_norm": False}
# The sequence classifier has its own dense layer with tanh; the masked-LM head has gelu, whatever hidden_act is.
TANH_SUMMARY = {"classifier_summary": "tanh", "drop_before_summary": True, "head_act": "gelu"}

_SHARED = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
    "hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size",
    "initializer_range", "layer_norm_eps", "pad_token_id", "classifier_dropout", "tie_word_embeddings", "problem_type",
)  # fmt: skip


def keys_with(*more: str, without: tuple[str, ...] = (), **other_names: str) -> dict[str, str]:
    """Return field -> key of `config.json` for shared fields and `more`; keys named otherwise are in `other_names`."""
    return {field: other_names.get(field, field) for field in (*_SHARED, *more) if field not in without}


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of encoders: its files, and the fields of `BertConfig` that describe it.

    Attributes:
        name: the family's name, by default its model_type in `config.json`.
        names: its tensor names.
        file_keys: keys of its `config.json` other than those of fields (`keys`) and those that all families share.
        title: its name in the documentation.
        fixed: fields of `BertConfig` with the same value in all models of the family.
        sizes: named size -> (layers, hidden size, heads, feed-forward size), for sizes that differ from BERT's.
        keys: field -> key of `config.json`, for fields that correspond to one key.
        nulls: keys of `config.json` for which null is a value; for the others, null means that the key is missing.
        older_keys: field -> key in older files.
        defaults: values of missing keys of `config.json` that differ from `BertConfig`'s defaults.
        fresh: values in the `config.json` of a new model that differ from `defaults`.
        classes: prefix of the names of Hugging Face classes.
        required: fields that `config.json` must have, since neither the weights nor a default of the family imply them.
        assumed: required field -> the default of transformers, used if `config.json` lacks the key.
        reads: function from a `config.json`, with defaults filled in, to further fields.
        writes: function from the fields of a config to further keys.
        model_type: model_type of the `config.json` that is written; "" = the family's name.
        other_model_types: further values of model_type in `config.json` that may name the family.
        shows: function from a `config.json` with one of `other_model_types` to whether it describes the family.
        has_own_code: whether the authors' `config.json` names Python files (auto_map), which the family implements.
        has_task_adapters: whether a model may have adapters for tasks (`bert_jax.conversion.task_adapters`).
        not_carried: keys of the authors' `config.json` that a written one replaces by others.
        position_offset: function from a `config.json` to the number of rows in max_position_embeddings that are not
            positions.
        sign: pattern of tensor names that no later family has; "" = there is none.
        common_sign: pattern of tensor names that other families may have too; a matching `sign` takes precedence.
        vocabulary_file: tokenizer file that tells the family from others whose layers have the same tensor names.
        narrow_embeddings: whether narrow embeddings are a sign of the family where `config.json` has no model_type.
        tokenizer_class: default tokenizer class of transformers; "" = the files name it.
        token_types: whether its tokenizers return token types by default.
        either_padding: whether files may ask for padding on the left: only distances of tokens count, so that outputs
            are those of rows padded on the right.
    """

    name: str
    names: Names
    file_keys: tuple[FileKey, ...] = ()
    title: str = ""
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    sizes: Mapping[str, tuple[int, int, int, int]] = dataclasses.field(default_factory=dict)
    keys: Mapping[str, str] = dataclasses.field(default_factory=keys_with)
    nulls: tuple[str, ...] = ()
    older_keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    defaults: Json = dataclasses.field(default_factory=dict)
    fresh: Json = dataclasses.field(default_factory=dict)
    classes: str = ""
    required: tuple[str, ...] = ("num_attention_heads", "hidden_act")
    assumed: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"hidden_act": "gelu"})
    reads: Callable[[Json], Json] = lambda hf: {}
    writes: Callable[[Json], Json] = lambda fields: {}
    model_type: str = ""
    other_model_types: tuple[str, ...] = ()
    has_own_code: bool = False
    has_task_adapters: bool = False
    not_carried: tuple[str, ...] = ()
    shows: Callable[[Json], bool] = lambda hf: True
    position_offset: Callable[[Json], int] = lambda hf: 0
    sign: str = ""
    common_sign: str = ""
    vocabulary_file: str = ""
    narrow_embeddings: bool = False
    tokenizer_class: str = ""
    token_types: bool = True
    either_padding: bool = False


def number(hf: Json, key: str) -> Any:
    """Return the number under a key of a `config.json`. Raises InputError if it is not a number."""
    value: Any = hf.get(key)
    if type(value) not in (int, float) or not abs(value) < LARGEST:  # also true for NaN
        raise InputError(f"{key} must be a number, found {shown(value)}")
    return value


def whole_number(hf: Json, key: str, least: int = 0) -> int:
    """Return the integer under a key. Raises InputError if it is not an integer, or is below `least`."""
    value = hf.get(key)
    if type(value) is not int or not least <= value < LARGEST:
        what = "positive" if least else "non-negative"
        raise InputError(f"{key} must be a {what} integer, found {shown(value)}")
    return value


def shown(value: Any) -> str:
    """Return a value as it appears in a message."""
    return printable(repr(value), _MOST_SHOWN)


def rope_base(hf: Json, path: tuple[str, ...], default: Any) -> Any:
    """Return the base of rotary positions at a path of keys. Raises InputError for scaled rotary positions."""
    parameters: Any = hf
    for key in path:
        parameters = parameters.get(key) or {}
        if not isinstance(parameters, dict):
            raise InputError(f"{'.'.join(path)}: expected an object, found {shown(parameters)}")
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind != "default":
        raise InputError(f"rope_type: expected 'default', found {shown(kind)}")
    for key in parameters.keys() - {"rope_type", "type", "rope_theta"}:
        if parameters[key] not in (None, 1, 1.0):
            raise InputError(f"{'.'.join(path)}: {key}: expected none, found {shown(parameters[key])}")
    return number(parameters, "rope_theta") if parameters.get("rope_theta") is not None else default


def boolean(hf: Json, key: str) -> bool:
    """Return the boolean under a key. Raises InputError if it is not a boolean."""
    if not isinstance(hf[key], bool):
        raise InputError(f"{key} must be true or false, found {shown(hf[key])}")
    return hf[key]


def after_padding(hf: Json) -> int:
    """Return pad_token_id + 1, the number of rows of a position table before the first position."""
    return whole_number(hf, "pad_token_id") + 1
