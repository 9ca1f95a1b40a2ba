"""NomicBERT's tensor names (Nussbaum et al. 2024, arXiv:2402.01613), in its current and its older layout."""

from bert_jax.conversion.names import bert
from bert_jax.conversion.names.bert import LAYERS_PATH
from bert_jax.conversion.names.table import (
    Names,
    Tensors,
    architectures,
    dense,
    embeddings,
    norm,
    projections,
    rename_tensors,
    split_tensors,
)

_LAYER = "nomic_bert.layers.{layer}"
_OLDER = (
    (r"^bert\.", "nomic_bert."),
    (r"(^|\.)emb_ln\.", r"\1embeddings.LayerNorm."),
    (r"(^|\.)encoder\.layers\.", r"\1layers."),
    (r"\.attn\.out_proj\.", ".self_attn.o_proj."),
    (r"\.mlp\.fc11\.", ".mlp.up_proj."),
    (r"\.mlp\.fc12\.", ".mlp.gate_proj."),
    (r"\.mlp\.fc2\.", ".mlp.down_proj."),
    (r"\.norm1\.", ".post_attention_layernorm."),
    (r"\.norm2\.", ".post_mlp_layernorm."),
)


def _older(tensors: Tensors) -> Tensors:
    parts = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    return split_tensors(rename_tensors(tensors, _OLDER), "attn.Wqkv", parts)


NAMES = Names(
    prefix="nomic_bert.",
    encoder=(
        *embeddings("nomic_bert."),
        *projections(f"{_LAYER}.self_attn", f"{LAYERS_PATH}/attention"),
        *norm(f"{_LAYER}.post_attention_layernorm", f"{LAYERS_PATH}/attention/layer_norm"),
        *dense(f"{_LAYER}.mlp.gate_proj", f"{LAYERS_PATH}/mlp/gate"),
        *dense(f"{_LAYER}.mlp.up_proj", f"{LAYERS_PATH}/mlp/up"),
        *dense(f"{_LAYER}.mlp.down_proj", f"{LAYERS_PATH}/mlp/down"),
        *norm(f"{_LAYER}.post_mlp_layernorm", f"{LAYERS_PATH}/mlp/layer_norm"),
        *dense("nomic_bert.pooler.dense", "pooler/dense"),
    ),
    heads={
        "masked_lm": bert.masked_lm("layer_norm"),
        "sequence_classification": dense("classifier", "classifier"),
        "token_classification": dense("classifier", "classifier"),
    },
    architectures=architectures("NomicBert", without=("question_answering", "multiple_choice")),
    tied=bert.tied_predictions("nomic_bert."),
    older=_older,
)
