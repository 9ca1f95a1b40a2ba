"""RoBERTa, and the families that differ from it in vocabulary or in the place of LayerNorm."""

import dataclasses

from bert_jax.families.base import PRE_NORM, Family, Json, whole_number

ROBERTA_HEADS = {"classifier_summary": "tanh", "drop_before_summary": True, "head_act": "gelu"}
ROBERTA_FAMILY = Family(
    fixed=ROBERTA_HEADS,
    classes="Roberta",
    required=("num_attention_heads", "hidden_act", "layer_norm_eps"),
    assumed={"hidden_act": "gelu", "layer_norm_eps": 1e-12},  # its authors' epsilon is 1e-5
    defaults={"vocab_size": 50265, "pad_token_id": 1, "max_position_embeddings": 514, "layer_norm_eps": 1e-5},
    position_offset=lambda hf: whole_number(hf, "pad_token_id") + 1,
)


def _like_roberta(classes: str, vocab_size: int = 50265, fixed: Json | None = None) -> Family:
    """Return RoBERTa with other classes, another vocabulary size and more fixed fields."""
    defaults = ROBERTA_FAMILY.defaults | {"vocab_size": vocab_size}
    return dataclasses.replace(ROBERTA_FAMILY, classes=classes, defaults=defaults, fixed=ROBERTA_HEADS | (fixed or {}))


XLM_ROBERTA_FAMILY = _like_roberta("XLMRoberta", 250002)
CAMEMBERT_FAMILY = _like_roberta("Camembert", 32005)
DATA2VEC_TEXT_FAMILY = _like_roberta("Data2VecText")
ROBERTA_PRELAYERNORM_FAMILY = _like_roberta("RobertaPreLayerNorm", fixed={"norm_placement": "pre"})
XLM_ROBERTA_XL_FAMILY = dataclasses.replace(
    _like_roberta("XLMRobertaXL", 250880, PRE_NORM), assumed={"hidden_act": "gelu", "layer_norm_eps": 1e-5}
)
