"""DeBERTa, and DeBERTa-v2 and v3: disentangled attention."""

from bert_jax.errors import InputError
from bert_jax.families.base import LARGEST, Family, Json, boolean, keys_with, shown, whole_number

_DEBERTA_SWITCHES = {"relative_attention": False, "position_biased_input": True}
_POOLER_ACTIVATIONS = ("tanh", "relu", "gelu")  # those of `BertConfig.classifier_summary`


def _read_deberta(hf: Json) -> Json:
    types = hf.get("pos_att_type") or []
    types = types.lower().split("|") if isinstance(types, str) else types
    if not isinstance(types, list) or not all(isinstance(name, str) for name in types):
        raise InputError(f"pos_att_type: expected names joined by | or in a list, found {shown(types)}")
    relative, biased = (boolean({key: default} | hf, key) for key, default in _DEBERTA_SWITCHES.items())
    if relative != bool(types):
        raise InputError(f"relative_attention: expected {str(bool(types)).lower()} with pos_att_type {shown(types)}, "
                         f"found {str(relative).lower()}")  # fmt: skip
    buckets, longest = (hf.get(key, -1) for key in ("position_buckets", "max_relative_positions"))
    for key, value in (("position_buckets", buckets), ("max_relative_positions", longest)):
        if type(value) is not int or value >= LARGEST:
            raise InputError(f"{key} must be an integer, found {shown(value)}")
    norm = hf.get("norm_rel_ebd", "none")
    if norm not in ("none", "layer_norm"):
        raise InputError(f"norm_rel_ebd: expected none or layer_norm, found {shown(norm)}")
    activation, width = hf.get("pooler_hidden_act", "gelu"), hf.get("pooler_hidden_size", hf["hidden_size"])
    if activation not in _POOLER_ACTIVATIONS:
        raise InputError(
            f"pooler_hidden_act: expected one of {', '.join(_POOLER_ACTIVATIONS)}, found {shown(activation)}"
        )
    if width != hf["hidden_size"]:
        raise InputError(f"pooler_hidden_size: expected that of hidden_size, {hf['hidden_size']}, found {shown(width)}")
    heads = {"head_dim": whole_number(hf, "attention_head_size", 1)} if "attention_head_size" in hf else {}
    return heads | {
        "position_embedding_type": "absolute" if biased else "none",
        "pos_att_type": tuple(name.strip() for name in types),
        "position_buckets": max(buckets, 0),
        "max_relative_positions": max(longest, 0),
        "norm_rel_ebd": relative and norm == "layer_norm",
        "classifier_summary": activation,
        "choice_summary": activation,
    }


def _read_v1(hf: Json) -> Json:
    """Read the keys of the first DeBERTa, which ignores those that came with v2."""
    later = ("position_buckets", "norm_rel_ebd", "attention_head_size")
    return _read_deberta({key: value for key, value in hf.items() if key not in later})


def _write_deberta(fields: Json) -> Json:
    heads = {"attention_head_size": fields["head_dim"]} if fields["head_dim"] else {}
    return (
        heads
        | _write_shared(fields)
        | {
            "position_buckets": fields["position_buckets"] or -1,
            "norm_rel_ebd": "layer_norm" if fields["norm_rel_ebd"] else "none",
        }
    )


def _write_shared(fields: Json) -> Json:
    """Return the keys that both generations have."""
    return {
        "relative_attention": bool(fields["pos_att_type"]),
        "pos_att_type": list(fields["pos_att_type"]) or None,
        "position_biased_input": fields["position_embedding_type"] == "absolute",
        "max_relative_positions": fields["max_relative_positions"] or -1,
        "pooler_hidden_act": fields["classifier_summary"],
        "pooler_hidden_size": fields["hidden_size"],
    }


DEBERTA_FAMILY = Family(
    classes="Deberta",
    fixed={"pooler": False, "norm_after_projection": True, "key_bias": False},
    keys=keys_with("embedding_size", "pooler_dropout", "legacy", classifier_dropout="cls_dropout"),
    defaults={"vocab_size": 50265, "hidden_size": 768, "type_vocab_size": 0, "layer_norm_eps": 1e-7},
    fresh={"relative_attention": True, "pos_att_type": "c2p|p2c", "position_biased_input": False, "legacy": False},
    reads=_read_v1,
    writes=_write_shared,
)  # fmt: skip


DEBERTA_V2_FAMILY = Family(
    classes="DebertaV2",
    fixed={"pooler": False, "norm_after_projection": True, "discriminator_norm": True},
    sizes={"xsmall": (12, 384, 6, 1536), "small": (6, 768, 12, 3072), "xlarge": (24, 1536, 24, 6144)},
    keys=keys_with(
        "embedding_size", "share_att_key", "conv_kernel_size", "conv_act", "pooler_dropout", "legacy",
        classifier_dropout="cls_dropout",
    ),
    defaults={"vocab_size": 128100, "hidden_size": 1536, "num_hidden_layers": 24, "num_attention_heads": 24,
              "intermediate_size": 6144, "type_vocab_size": 0, "layer_norm_eps": 1e-7},
    fresh={"relative_attention": True, "pos_att_type": "p2c|c2p", "position_buckets": 256, "share_att_key": True,
           "norm_rel_ebd": "layer_norm", "position_biased_input": False, "legacy": False},
    reads=_read_deberta,
    writes=_write_deberta,
)  # fmt: skip
