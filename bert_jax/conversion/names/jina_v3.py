"""Tensor names of Jina Embeddings v3 (Sturua et al. 2024, arXiv:2409.10173): transformers' and the authors'."""

from bert_jax.conversion.names.bert import LAYERS_PATH
from bert_jax.conversion.names.roberta import CLASSIFIER, MASKED_LM, tied_lm_head
from bert_jax.conversion.names.table import (
    Names,
    Tensors,
    architectures,
    classifiers,
    dense,
    embeddings,
    norm,
    projections,
    rename_tensors,
    split_tensors,
)

_LAYER = "roberta.layers.{layer}"
_ORIGINAL = (
    (r"(^|\.)emb_ln\.", r"\1embeddings.LayerNorm."),
    (r"(^|\.)encoder\.layers\.", r"\1layers."),
    (r"\.mixer\.out_proj\.", ".self_attn.o_proj."),
    (r"\.norm1\.", ".post_attention_layernorm."),
    (r"\.norm2\.", ".post_mlp_layernorm."),
)


def _older(tensors: Tensors) -> Tensors:
    parts = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    return split_tensors(rename_tensors(tensors, _ORIGINAL), "mixer.Wqkv", parts)


NAMES = Names(
    prefix="roberta.",
    encoder=(
        *embeddings("roberta."),
        *projections(f"{_LAYER}.self_attn", f"{LAYERS_PATH}/attention"),
        *norm(f"{_LAYER}.post_attention_layernorm", f"{LAYERS_PATH}/attention/layer_norm"),
        *dense(f"{_LAYER}.mlp.fc1", f"{LAYERS_PATH}/mlp/up"),
        *dense(f"{_LAYER}.mlp.fc2", f"{LAYERS_PATH}/mlp/down"),
        *norm(f"{_LAYER}.post_mlp_layernorm", f"{LAYERS_PATH}/mlp/layer_norm"),
        *dense("roberta.pooler.dense", "pooler/dense"),
    ),
    heads={
        head: entries
        for head, entries in classifiers(masked_lm=MASKED_LM, sequence_classification=CLASSIFIER).items()
        if head != "multiple_choice"
    },
    architectures=architectures("JinaEmbeddingsV3", without=("multiple_choice",)),
    # Classes of the authors' code.
    other_architectures={
        "XLMRobertaModel": "encoder",
        "XLMRobertaLoRA": "encoder",
        "XLMRobertaForMaskedLM": "masked_lm",
        "XLMRobertaForSequenceClassification": "sequence_classification",
    },
    tied=tied_lm_head("roberta."),
    older=_older,
)
