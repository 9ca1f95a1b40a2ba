"""DeBERTa, and DeBERTa-v2 and v3 (He et al. 2020, arXiv:2006.03654; 2021, arXiv:2111.09543): disentangled attention."""

import dataclasses

from bert_jax.errors import InputError
from bert_jax.families import bert
from bert_jax.families.base import LARGEST, Family, Json, boolean, keys_with, shown, whole_number
from bert_jax.families.deberta.parts import DebertaHeadsConfig, DisentangledConfig, NormedLastConfig
from bert_jax.families.names import (
    LAYERS_PATH,
    Entry,
    Names,
    architectures,
    classifiers,
    dense,
    embedding,
    embeddings,
    norm,
)
from bert_jax.model_files.keys import FileKey, harmless, honoured, refused

_SHARED_KEYS: tuple[FileKey, ...] = (
    honoured("relative_attention", "whether attention is disentangled; must agree with pos_att_type"),
    honoured("pos_att_type", "terms of disentangled attention: c2p, p2c or both"),
    honoured("position_biased_input", "whether the embeddings have position embeddings"),
    honoured("max_relative_positions", "greatest relative position; -1 = max_position_embeddings"),
    honoured("pooler_hidden_act", "activation of the dense layer of a classifier"),
    honoured("pooler_hidden_size", "must equal hidden_size"),
)

_V1_KEYS: tuple[FileKey, ...] = (
    *_SHARED_KEYS,
    refused("talking_head", "attention heads that are mixed by a matrix are not supported", False),
    harmless("position_buckets", "DeBERTa has a row for each distance"),
    harmless("norm_rel_ebd", "DeBERTa has no LayerNorm of relative positions"),
    harmless("share_att_key", "DeBERTa projects positions by layers of their own"),
    harmless("attention_head_size", "hidden_size / num_attention_heads is used"),
)

_V2_KEYS: tuple[FileKey, ...] = (
    *_SHARED_KEYS,
    honoured("position_buckets", "buckets of relative positions; -1 = none"),
    honoured("norm_rel_ebd", "layer_norm: the embeddings of relative positions are normalised"),
    refused("conv_groups", "convolutions in groups are not supported", 1),
    honoured("attention_head_size", "width of an attention head"),
)

_LAYER = "deberta.encoder.layer.{layer}"
_SELF = f"{_LAYER}.attention.self"
_ATTENTION = f"{LAYERS_PATH}/attention"
_CLASSIFIER = (*dense("pooler.dense", "summary/dense"), *dense("classifier", "classifier"))
# The masked-LM head under its authors' names.
_LM_PREDICTIONS = (
    *dense("lm_predictions.lm_head.dense", "mlm/dense"),
    *norm("lm_predictions.lm_head.LayerNorm", "mlm/layer_norm"),
    Entry("lm_predictions.lm_head.bias", "mlm/bias"),
)


_HEADS = classifiers(
    masked_lm=bert.masked_lm(),
    sequence_classification=_CLASSIFIER,
    multiple_choice=_CLASSIFIER,
    replaced_token_detection=(
        *norm("mask_predictions.LayerNorm", "discriminator/layer_norm"),
        *dense("mask_predictions.dense", "discriminator/dense"),
        *dense("mask_predictions.classifier", "discriminator/output"),
    ),
)


def _names(classes: dict[str, str], attention: tuple[Entry, ...]) -> Names:
    """Return the names of a family; `attention` has the entries of queries, keys, values and their positions."""
    names = Names(
        prefix="deberta.",
        encoder=(
            *embeddings("deberta."),
            *dense("deberta.embeddings.embed_proj", "embeddings/projection"),
            embedding("deberta.encoder.rel_embeddings", "encoder/relative_embeddings"),
            *norm("deberta.encoder.LayerNorm", "encoder/relative_embeddings/layer_norm"),
            *dense("deberta.encoder.conv.conv", "encoder/conv"),
            *norm("deberta.encoder.conv.LayerNorm", "encoder/conv/layer_norm"),
            *attention,
            *dense(f"{_LAYER}.attention.output.dense", f"{_ATTENTION}/output"),
            *norm(f"{_LAYER}.attention.output.LayerNorm", f"{_ATTENTION}/layer_norm"),
            *bert.feed_forward(_LAYER),
        ),
        heads=_HEADS,
        architectures=classes,
        tied=bert.tied_predictions("deberta."),
    )
    not_legacy = dataclasses.replace(names, heads=_HEADS | {"masked_lm": _LM_PREDICTIONS}, tied=())
    return dataclasses.replace(names, not_legacy=not_legacy)


# transformers has no class for the pretraining discriminator; its Auto classes read only the encoder.
_V2_NAMES = _names(
    architectures("DebertaV2", replaced_token_detection="ForPreTraining"),
    (
        *dense(f"{_SELF}.query_proj", f"{_ATTENTION}/query"),
        *dense(f"{_SELF}.key_proj", f"{_ATTENTION}/key"),
        *dense(f"{_SELF}.value_proj", f"{_ATTENTION}/value"),
        *dense(f"{_SELF}.pos_query_proj", f"{_ATTENTION}/position_query"),
        *dense(f"{_SELF}.pos_key_proj", f"{_ATTENTION}/position_key"),
    ),
)
_V1_NAMES = _names(
    architectures("Deberta", without=("multiple_choice",)),
    (
        *(
            Entry(f"{_SELF}.in_proj.weight", f"{_ATTENTION}/{part}/kernel", True, (i, 3), by_head=True)
            for i, part in enumerate(("query", "key", "value"))
        ),
        Entry(f"{_SELF}.q_bias", f"{_ATTENTION}/query/bias"),
        Entry(f"{_SELF}.v_bias", f"{_ATTENTION}/value/bias"),
        *dense(f"{_SELF}.pos_q_proj", f"{_ATTENTION}/position_query"),
        *dense(f"{_SELF}.pos_proj", f"{_ATTENTION}/position_key"),
    ),
)

_DEBERTA_SWITCHES = {"relative_attention": False, "position_biased_input": True}
_POOLER_ACTIVATIONS = ("tanh", "relu", "gelu")  # those that `BertConfig.classifier_summary` supports


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
        raise InputError(f"pooler_hidden_size: expected hidden_size, {hf['hidden_size']}, found {shown(width)}")
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
    """Read the `config.json` of a first DeBERTa, and ignore the keys that v2 added."""
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
    name="deberta",
    title="DeBERTa",
    file_keys=_V1_KEYS,
    names=_V1_NAMES,
    tokenizer_class="DebertaTokenizer",
    sign=r"(^|\.)layer\.\d+\.attention\.self\.in_proj\.",
    classes="Deberta",
    fixed={"attention": DisentangledConfig(key_bias=False), "embeddings": NormedLastConfig(),
           "heads": DebertaHeadsConfig(), "pooler": False},
    keys=keys_with("embedding_size", "pooler_dropout", "legacy", classifier_dropout="cls_dropout"),
    defaults={"vocab_size": 50265, "hidden_size": 768, "type_vocab_size": 0, "layer_norm_eps": 1e-7},
    fresh={"relative_attention": True, "pos_att_type": "c2p|p2c", "position_biased_input": False, "legacy": False},
    reads=_read_v1,
    writes=_write_shared,
)  # fmt: skip


DEBERTA_V2_FAMILY = Family(
    name="deberta-v2",
    title="DeBERTa-v2 and v3",
    file_keys=_V2_KEYS,
    names=_V2_NAMES,
    tokenizer_class="DebertaV2Tokenizer",
    sign=r"(^|\.)layer\.\d+\.attention\.self\.query_proj\.",
    classes="DebertaV2",
    fixed={"attention": DisentangledConfig(), "embeddings": NormedLastConfig(),
           "heads": DebertaHeadsConfig(discriminator_norm=True), "pooler": False},
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
