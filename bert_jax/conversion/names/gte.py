"""GTE's tensor names (Zhang et al. 2024, arXiv:2407.19669): those of transformers, and of the original files."""

from bert_jax.conversion.names.bert import LAYERS_PATH
from bert_jax.conversion.names.table import (
    Entry,
    Names,
    Tensors,
    architectures,
    classifiers,
    dense,
    embedding,
    embeddings,
    norm,
    projections,
    rename_tensors,
    split_tensors,
)

_LAYER = "gte.layers.{layer}"
_ORIGINAL = (
    (r"^new\.", "gte."),
    (r"(^|\.)encoder\.layer\.", r"\1layers."),
    (r"\.attention\.(qkv|[qkvo])_proj\.", r".self_attn.\1_proj."),
    (r"\.attn_ln\.", ".post_attention_layernorm."),
    (r"\.mlp_ln\.", ".post_mlp_layernorm."),
    (r"^lm_head\.norm\.", "lm_head.layer_norm."),
)


def _older(tensors: Tensors) -> Tensors:
    renamed = split_tensors(rename_tensors(tensors, _ORIGINAL), "qkv_proj", ("q_proj", "k_proj", "v_proj"))
    return split_tensors(renamed, "up_gate_proj", ("up_proj", "gate_proj"))


NAMES = Names(
    prefix="gte.",
    encoder=(
        *embeddings("gte."),
        *projections(f"{_LAYER}.self_attn", f"{LAYERS_PATH}/attention"),
        *norm(f"{_LAYER}.post_attention_layernorm", f"{LAYERS_PATH}/attention/layer_norm"),
        *dense(f"{_LAYER}.mlp.gate_proj", f"{LAYERS_PATH}/mlp/gate"),
        *dense(f"{_LAYER}.mlp.up_proj", f"{LAYERS_PATH}/mlp/up"),
        *dense(f"{_LAYER}.mlp.down_proj", f"{LAYERS_PATH}/mlp/down"),
        *norm(f"{_LAYER}.post_mlp_layernorm", f"{LAYERS_PATH}/mlp/layer_norm"),
        *dense("gte.pooler.dense", "pooler/dense"),
    ),
    heads={
        "masked_lm": (
            *dense("lm_head.dense", "mlm/dense"),
            *norm("lm_head.layer_norm", "mlm/layer_norm"),
            Entry("lm_head.decoder.bias", "mlm/bias"),
            embedding("lm_head.decoder", "mlm/decoder"),
        ),
        **{head: classifiers()[head] for head in ("sequence_classification", "token_classification")},
    },
    architectures=architectures("Gte", without=("question_answering", "multiple_choice")),
    # Classes of the original code.
    other_architectures={
        "NewModel": "encoder",
        "NewForMaskedLM": "masked_lm",
        "NewForSequenceClassification": "sequence_classification",
        "NewForTokenClassification": "token_classification",
    },
    tied=(("lm_head.decoder.weight", "gte.embeddings.word_embeddings.weight"),),
    older=_older,
)
