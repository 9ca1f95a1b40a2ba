"""The families of encoders: the `BertConfig` switches of each, and the keys of its Hugging Face `config.json`.

A family is a choice of `BertConfig`'s switches. The encoder depends on the switches only, never on the family. The
tensor names of families are in `bert_jax.conversion.names`.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax.errors import InputError, printable

Json = dict[str, Any]

_SHARED = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
    "hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size",
    "initializer_range", "layer_norm_eps", "pad_token_id", "classifier_dropout", "tie_word_embeddings", "problem_type",
)  # fmt: skip


def _keys(*more: str, without: tuple[str, ...] = (), **other_names: str) -> dict[str, str]:
    """Return field -> key of `config.json`: shared fields and `more`; `other_names` has keys that differ."""
    return {field: other_names.get(field, field) for field in (*_SHARED, *more) if field not in without}


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of encoders.

    Attributes:
        fixed: fields of `BertConfig` with the same value in all models of the family.
        sizes: named size -> (layers, hidden size, heads, feed-forward size), for sizes that differ from BERT's.
        keys: field -> key of `config.json`, for fields that correspond to one key.
        older_keys: field -> key in older files.
        defaults: values of missing keys of `config.json` that differ from `BertConfig`'s defaults.
        fresh: keys of the `config.json` of a new model that differ from `defaults`.
        classes: prefix of the names of Hugging Face classes.
        required: fields that `config.json` must have, since neither the weights nor a default of the family imply them.
        reads: function from a `config.json` with defaults to further fields.
        writes: function from the fields of a config to further keys.
        position_offset: function from a `config.json` to the number of rows in max_position_embeddings that are not
            positions.
    """

    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    sizes: Mapping[str, tuple[int, int, int, int]] = dataclasses.field(default_factory=dict)
    keys: Mapping[str, str] = dataclasses.field(default_factory=_keys)
    older_keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    defaults: Json = dataclasses.field(default_factory=dict)
    fresh: Json = dataclasses.field(default_factory=dict)
    classes: str = ""
    required: tuple[str, ...] = ("num_attention_heads", "hidden_act")
    reads: Callable[[Json], Json] = lambda hf: {}
    writes: Callable[[Json], Json] = lambda fields: {}
    position_offset: Callable[[Json], int] = lambda hf: 0


def number(hf: Json, key: str) -> Any:
    """Return the number under a key of a `config.json`. Raises InputError when it is no number."""
    value: Any = hf.get(key)
    if type(value) not in (int, float) or not abs(value) < _LARGEST:  # nor NaN
        raise InputError(f"{key} must be a number, found {_shown(value)}")
    return value


def whole_number(hf: Json, key: str, least: int = 0) -> int:
    """Return the integer under a key. Raises InputError when it is no integer, or below `least`."""
    value = hf.get(key)
    if type(value) is not int or not least <= value < _LARGEST:
        what = "positive" if least else "non-negative"
        raise InputError(f"{key} must be a {what} integer, found {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    return printable(repr(value), _MOST_SHOWN)


_LARGEST = 2**31
_MOST_SHOWN = 80  # most characters of a value in a message


def architectures_of(hf: Json, where: object) -> tuple[str, ...]:
    """Return the Hugging Face classes in a `config.json`. Raises InputError when they are no list of names."""
    classes = hf.get("architectures")
    if classes is None:
        return ()
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise InputError(f"{where}: architectures: expected a list of class names, found {_shown(classes)}")
    return tuple(
        re.sub("^(TF|Flax)(?=[A-Z])", "", name) for name in classes
    )  # BertModel, TFBertModel and FlaxBertModel are the same


def family_of(hf: Json, where: object = "config.json") -> str:
    """Return the family of a `config.json`, by model_type, or else by architectures.

    Raises:
        InputError: the family is not known or not given, or model_type and architectures contradict each other.
    """
    stated, classes = hf.get("model_type"), architectures_of(hf, where)
    if stated is not None and (not isinstance(stated, str) or stated not in FAMILIES):
        known = ", ".join(FAMILIES)
        raise InputError(f"{where}: expected model_type to be one of {known}, found {_shown(stated)}")
    of_classes = [family for name in classes for family in FAMILIES if _is_class_of(name, family)]
    if stated is None and not of_classes:
        raise InputError(
            f"{where}: expected a model_type, found none, and architectures {_shown(list(classes))} do not say it"
        )
    if stated is None:
        return of_classes[0]
    # XLM-R is RoBERTa with another vocabulary.
    same = {"roberta", "xlm-roberta"} if stated in ("roberta", "xlm-roberta") else {stated}
    if of_classes and not same & set(of_classes):
        raise InputError(f"{where}: model_type is {stated!r}, but architectures are {_shown(list(classes))}")
    return stated


def _is_class_of(name: str, family: str) -> bool:
    """Return whether a class, such as BertForMaskedLM, belongs to a family."""
    return re.fullmatch(f"{FAMILIES[family].classes}(Model|For[A-Z].*|LMHeadModel)", name) is not None


_ROBERTA_HEADS = {"classifier_summary": "tanh", "drop_before_summary": True, "head_act": "gelu"}
_ROBERTA = Family(
    fixed=_ROBERTA_HEADS,
    classes="Roberta",
    # Its authors' epsilon is 1e-5, and that of transformers where the key is missing 1e-12.
    required=("num_attention_heads", "hidden_act", "layer_norm_eps"),
    defaults={"vocab_size": 50265, "pad_token_id": 1, "max_position_embeddings": 514, "layer_norm_eps": 1e-5},
    position_offset=lambda hf: whole_number(hf, "pad_token_id") + 1,
)

# --- NomicBERT: the original files use GPT-2's keys; transformers 5 has its own keys.

_NOMIC_OLD = {
    "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
    "intermediate_size": "n_inner", "max_position_embeddings": "n_positions", "layer_norm_eps": "layer_norm_epsilon",
    "hidden_dropout_prob": "resid_pdrop", "attention_probs_dropout_prob": "attn_pdrop",
}  # fmt: skip


def _read_nomic(hf: Json) -> Json:
    for field in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
        other = _NOMIC_OLD[field]
        if other in hf and field in hf and hf[other] != hf[field]:
            raise InputError(f"{other}: expected that of {field}, {_shown(hf[field])}, found {_shown(hf[other])}")
    if "n_embd" not in hf:
        return {"rope_theta": _theta(hf, ("rope_parameters",), 1000.0)}
    fields = {field: hf[key] for field, key in _NOMIC_OLD.items() if key in hf}
    return fields | {"hidden_act": "silu", "rope_theta": hf.get("rotary_emb_base", 10000.0)}


def _theta(hf: Json, path: tuple[str, ...], default: Any) -> Any:
    """Return the base of rotary positions at a path of keys. Raises InputError for scaled rotary positions."""
    parameters: Any = hf
    for key in path:
        parameters = parameters.get(key) or {}
        if not isinstance(parameters, dict):
            raise InputError(f"{'.'.join(path)}: expected an object, found {_shown(parameters)}")
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind != "default":
        raise InputError(f"rope_type: expected 'default', found {_shown(kind)}")
    for key in parameters.keys() - {"rope_type", "type", "rope_theta"}:
        if parameters[key] not in (None, 1, 1.0):
            raise InputError(f"{'.'.join(path)}: {key}: expected none, found {_shown(parameters[key])}")
    return number(parameters, "rope_theta") if parameters.get("rope_theta") is not None else default


# --- ModernBERT

_KINDS = ["full_attention", "sliding_attention"]


def _read_modernbert(hf: Json) -> Json:
    layers = whole_number(hf, "num_hidden_layers", 1)
    every = whole_number({"global_attn_every_n_layers": 3} | hf, "global_attn_every_n_layers", 1)
    kinds = hf.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise InputError(f"layer_types: expected a list of {layers} (num_hidden_layers), found {_shown(kinds)}")
        if kinds != _kinds(layers, every):
            every = next((n for n in range(1, layers) if kinds[n] == _KINDS[0]), layers)
        if kinds != _kinds(layers, every):
            raise InputError(
                f"layer_types: expected every n-th layer, from the first, to be {_KINDS[0]}, found {_shown(kinds)}"
            )
    if number(hf, "embedding_dropout") != hf["mlp_dropout"]:
        raise InputError(f"embedding_dropout: expected that of mlp_dropout, {hf['mlp_dropout']}, "
                         f"found {hf['embedding_dropout']}")  # fmt: skip
    return {
        "global_every": every,
        "local_window": whole_number(hf, "local_attention", 2) // 2,
        "rope_theta": _theta(hf, ("rope_parameters", _KINDS[0]), hf.get("global_rope_theta", 160_000.0)),
        "local_rope_theta": _theta(hf, ("rope_parameters", _KINDS[1]), hf.get("local_rope_theta", 10_000.0)),
    }


def _write_modernbert(fields: Json) -> Json:
    thetas = dict(zip(_KINDS, (fields["rope_theta"], fields["local_rope_theta"]), strict=True))
    return {
        "layer_types": _kinds(fields["num_hidden_layers"], fields["global_every"]),
        "global_attn_every_n_layers": fields["global_every"],
        "local_attention": 2 * fields["local_window"],
        "embedding_dropout": fields["hidden_dropout_prob"],
        "global_rope_theta": thetas[_KINDS[0]],
        "local_rope_theta": thetas[_KINDS[1]],
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()},
    }


def _kinds(layers: int, every: int) -> list[str]:
    return [_KINDS[i % every > 0] for i in range(layers)]


def _read_distilbert(hf: Json) -> Json:
    """Check that BERT's keys agree with DistilBERT's, which transformers reads as aliases; return no fields."""
    names = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
    for other, own in names.items():
        if other in hf and hf[other] != hf.get(own):
            raise InputError(f"{other}: expected that of {own}, {_shown(hf.get(own))}, found {_shown(hf[other])}")
    return {}


def _read_ernie(hf: Json) -> Json:
    """Return the number of task ids, which counts only if `use_task_id` is set."""
    use = hf.get("use_task_id", False)
    if not isinstance(use, bool):
        raise InputError(f"use_task_id must be true or false, found {_shown(use)}")
    rows = whole_number({"task_type_vocab_size": 3} | hf, "task_type_vocab_size", 1)
    return {"task_type_vocab_size": rows if use else 0}


def _write_ernie(fields: Json) -> Json:
    rows = fields["task_type_vocab_size"]
    return {"use_task_id": rows > 0} | ({"task_type_vocab_size": rows} if rows else {})


def _read_albert(hf: Json) -> Json:
    """Return the number of layers: a config.json counts the uses of groups."""
    return {"num_hidden_layers": whole_number(hf, "num_hidden_layers", 1) * whole_number(hf, "inner_group_num", 1)}


# --- DeBERTa


def _read_deberta(hf: Json) -> Json:
    types = hf.get("pos_att_type") or []
    types = types.lower().split("|") if isinstance(types, str) else types
    if not isinstance(types, list) or not all(isinstance(name, str) for name in types):
        raise InputError(f"pos_att_type: expected names joined by | or in a list, found {_shown(types)}")
    relative, biased = (_boolean({key: default} | hf, key) for key, default in _DEBERTA_SWITCHES.items())
    if relative != bool(types):
        raise InputError(f"relative_attention: expected {str(bool(types)).lower()} with pos_att_type {_shown(types)}, "
                         f"found {str(relative).lower()}")  # fmt: skip
    buckets, longest = (hf.get(key, -1) for key in ("position_buckets", "max_relative_positions"))
    for key, value in (("position_buckets", buckets), ("max_relative_positions", longest)):
        if type(value) is not int or value >= _LARGEST:
            raise InputError(f"{key} must be an integer, found {_shown(value)}")
    norm = hf.get("norm_rel_ebd", "none")
    if norm not in ("none", "layer_norm"):
        raise InputError(f"norm_rel_ebd: expected none or layer_norm, found {_shown(norm)}")
    activation, width = hf.get("pooler_hidden_act", "gelu"), hf.get("pooler_hidden_size", hf["hidden_size"])
    if activation not in _POOLER_ACTIVATIONS:
        raise InputError(
            f"pooler_hidden_act: expected one of {', '.join(_POOLER_ACTIVATIONS)}, found {_shown(activation)}"
        )
    if width != hf["hidden_size"]:
        raise InputError(
            f"pooler_hidden_size: expected that of hidden_size, {hf['hidden_size']}, found {_shown(width)}"
        )
    return {
        "position_embedding_type": "absolute" if biased else "none",
        "pos_att_type": tuple(name.strip() for name in types),
        "position_buckets": max(buckets, 0),
        "max_relative_positions": max(longest, 0),
        "norm_rel_ebd": relative and norm == "layer_norm",
        "classifier_summary": activation,
        "choice_summary": activation,
    }


def _write_deberta(fields: Json) -> Json:
    return {
        "relative_attention": bool(fields["pos_att_type"]),
        "pos_att_type": list(fields["pos_att_type"]) or None,
        "position_biased_input": fields["position_embedding_type"] == "absolute",
        "position_buckets": fields["position_buckets"] or -1,
        "max_relative_positions": fields["max_relative_positions"] or -1,
        "norm_rel_ebd": "layer_norm" if fields["norm_rel_ebd"] else "none",
        "pooler_hidden_act": fields["classifier_summary"],
        "pooler_hidden_size": fields["hidden_size"],
    }


def _boolean(hf: Json, key: str) -> bool:
    if not isinstance(hf[key], bool):
        raise InputError(f"{key} must be true or false, found {_shown(hf[key])}")
    return hf[key]


_DEBERTA_SWITCHES = {"relative_attention": False, "position_biased_input": True}
_POOLER_ACTIVATIONS = ("tanh", "relu", "gelu")  # those of `BertConfig.classifier_summary`

_PRE = {"norm_placement": "pre", "embedding_norm": False}  # each LayerNorm is before a block or after the last layer

FAMILIES: dict[str, Family] = {
    "bert": Family(classes="Bert", keys=_keys("position_embedding_type")),
    "distilbert": Family(
        classes="DistilBert",
        fixed={"type_vocab_size": 0, "pooler": False, "classifier_summary": "relu", "choice_summary": "relu"},
        keys=_keys(
            "qa_dropout", without=("type_vocab_size", "layer_norm_eps"),
            hidden_size="dim", num_hidden_layers="n_layers", num_attention_heads="n_heads",
            intermediate_size="hidden_dim", hidden_act="activation", hidden_dropout_prob="dropout",
            attention_probs_dropout_prob="attention_dropout", classifier_dropout="seq_classif_dropout",
        ),
        reads=_read_distilbert,
        defaults={"n_layers": 6, "seq_classif_dropout": 0.2, "qa_dropout": 0.1},
    ),
    "roberta": _ROBERTA,
    "xlm-roberta": dataclasses.replace(
        _ROBERTA, classes="XLMRoberta", defaults=_ROBERTA.defaults | {"vocab_size": 250002}
    ),
    "camembert": dataclasses.replace(
        _ROBERTA, classes="Camembert", defaults=_ROBERTA.defaults | {"vocab_size": 32005}
    ),
    "data2vec-text": dataclasses.replace(_ROBERTA, classes="Data2VecText"),
    "roberta-prelayernorm": dataclasses.replace(
        _ROBERTA, classes="RobertaPreLayerNorm", fixed=_ROBERTA_HEADS | {"norm_placement": "pre"}
    ),
    "xlm-roberta-xl": dataclasses.replace(
        _ROBERTA,
        classes="XLMRobertaXL",
        fixed=_ROBERTA_HEADS | _PRE,
        defaults=_ROBERTA.defaults | {"vocab_size": 250880},
    ),
    "ernie": Family(classes="Ernie", reads=_read_ernie, writes=_write_ernie),
    "megatron-bert": Family(
        classes="MegatronBert",
        fixed=_PRE,
        keys=_keys(without=("classifier_dropout",)),
        defaults={"vocab_size": 29056},
    ),
    "albert": Family(
        classes="Albert",
        fixed={"embedding_projection": True},
        sizes={"base": (12, 768, 12, 3072), "large": (24, 1024, 16, 4096), "xlarge": (24, 2048, 16, 8192),
               "xxlarge": (12, 4096, 64, 16384)},
        keys=_keys("embedding_size", "num_hidden_groups", "inner_group_num",
                   classifier_dropout="classifier_dropout_prob"),
        required=("num_attention_heads", "hidden_act", "num_hidden_layers"),
        defaults={"vocab_size": 30000, "embedding_size": 128, "num_hidden_layers": 12, "num_hidden_groups": 1,
                  "inner_group_num": 1, "hidden_act": "gelu_new", "hidden_dropout_prob": 0.0,
                  "attention_probs_dropout_prob": 0.0, "classifier_dropout_prob": 0.1},
        reads=_read_albert,
        writes=lambda fields: {"num_hidden_layers": fields["num_hidden_layers"] // fields["inner_group_num"]},
    ),
    "electra": Family(
        classes="Electra",
        fixed={"pooler": False, "classifier_summary": "gelu", "choice_summary": "gelu", "drop_before_summary": True,
               "head_act": "gelu"},
        sizes={"small": (12, 256, 4, 1024)},
        keys=_keys("embedding_size"),
        defaults={"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
    ),
    "mpnet": Family(
        classes="MPNet",
        required=_ROBERTA.required,
        fixed=_ROBERTA_HEADS | {"type_vocab_size": 0, "relative_attention_buckets": 32},
        keys=_keys(without=("type_vocab_size", "classifier_dropout")),
        defaults={"vocab_size": 30527, "pad_token_id": 1, "max_position_embeddings": 514},
        position_offset=lambda hf: 2,  # whatever the padding's id is
    ),
    "nomic_bert": Family(
        classes="NomicBert",
        older_keys=_NOMIC_OLD,
        required=("num_attention_heads",),
        fixed={"position_embedding_type": "rotary", "gated": True, "attention_bias": False, "mlp_bias": False},
        defaults={"vocab_size": 30528, "hidden_act": "silu", "max_position_embeddings": 2048,
                  "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        reads=_read_nomic,
        writes=lambda fields: {"rope_parameters": {"rope_type": "default", "rope_theta": fields["rope_theta"]}},
    ),
    "modernbert": Family(
        classes="ModernBert",
        fixed={"position_embedding_type": "rotary", "norm_placement": "pre", "first_layer_norm": False, "gated": True,
               "type_vocab_size": 0, "pooler": False, "classifier_summary": "transform",
               "choice_summary": "transform"},
        sizes={"base": (22, 768, 12, 1152), "large": (28, 1024, 16, 2624)},
        keys=_keys(
            "norm_bias", "attention_bias", "mlp_bias", "head_act", "head_bias", "decoder_bias", "classifier_pooling",
            without=("type_vocab_size",), hidden_act="hidden_activation", hidden_dropout_prob="mlp_dropout",
            attention_probs_dropout_prob="attention_dropout", layer_norm_eps="norm_eps",
            head_act="classifier_activation", head_bias="classifier_bias",
        ),
        defaults={
            "vocab_size": 50368, "num_hidden_layers": 22, "intermediate_size": 1152, "pad_token_id": 50283,
            "max_position_embeddings": 8192, "norm_eps": 1e-5, "norm_bias": False, "attention_bias": False,
            "mlp_bias": False, "classifier_bias": False, "classifier_activation": "gelu", "local_attention": 128,
            "embedding_dropout": 0.0, "mlp_dropout": 0.0, "attention_dropout": 0.0, "classifier_dropout": 0.0,
        },
        reads=_read_modernbert,
        writes=_write_modernbert,
    ),
    "deberta-v2": Family(
        classes="DebertaV2",
        fixed={"pooler": False, "norm_after_projection": True},
        sizes={"xsmall": (12, 384, 6, 1536), "small": (6, 768, 12, 3072), "xlarge": (24, 1536, 24, 6144)},
        keys=_keys(
            "embedding_size", "share_att_key", "conv_kernel_size", "conv_act", "pooler_dropout", "legacy",
            classifier_dropout="cls_dropout",
        ),
        defaults={"vocab_size": 128100, "hidden_size": 1536, "num_hidden_layers": 24, "num_attention_heads": 24,
                  "intermediate_size": 6144, "type_vocab_size": 0, "layer_norm_eps": 1e-7},
        fresh={"relative_attention": True, "pos_att_type": "p2c|c2p", "position_buckets": 256, "share_att_key": True,
               "norm_rel_ebd": "layer_norm", "position_biased_input": False, "legacy": False},
        reads=_read_deberta,
        writes=_write_deberta,
    ),
}  # fmt: skip
