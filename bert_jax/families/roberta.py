"""RoBERTa (Liu et al. 2019, arXiv:1907.11692), and families that differ in vocabulary or in the place of LayerNorm.

XLM-R: Conneau et al. 2019, arXiv:1911.02116. CamemBERT: Martin et al. 2020, arXiv:1911.03894. data2vec: Baevski et al.
2022, arXiv:2202.03555. RoBERTa-PreLayerNorm: Wettig et al. 2022, arXiv:2202.08005. XLM-R XL: Goyal et al. 2021,
arXiv:2105.00572.
"""

import dataclasses
from typing import Any

from bert_jax.families import bert
from bert_jax.families.base import PRE_NORM, TANH_SUMMARY, Family, after_padding
from bert_jax.families.names import (
    CLASSIFICATION_HEAD,
    LM_HEAD,
    Entry,
    Names,
    architectures,
    classifiers,
    norm,
    tied_lm_head,
)


def _names(family: str, prefix: str, entries: tuple[Entry, ...]) -> Names:
    """Return the names of a family with RoBERTa's heads; `family` and `prefix` begin class and tensor names."""
    return Names(
        prefix=prefix,
        encoder=entries,
        heads=classifiers(masked_lm=LM_HEAD, sequence_classification=CLASSIFICATION_HEAD),
        architectures=architectures(family),
        other_architectures={f"{family}ForCausalLM": "masked_lm"},
        tied=tied_lm_head(prefix),
    )


def _with_decoder(family: str) -> Names:
    names = _names(family, "roberta.", bert.encoder("roberta."))
    return bert.with_decoder_names(names, LM_HEAD, f"{family}ForCausalLM")


ROBERTA_FAMILY = Family(
    name="roberta",
    title="RoBERTa, XLM-R, XLM-R XL, CamemBERT, data2vec and RoBERTa-PreLayerNorm",
    names=_with_decoder("Roberta"),
    tokenizer_class="RobertaTokenizer",
    token_types=False,
    common_sign=r"^roberta\.|^lm_head\.",
    vocabulary_file="merges.txt",
    fixed=TANH_SUMMARY,
    classes="Roberta",
    required=("num_attention_heads", "hidden_act", "layer_norm_eps"),
    assumed={"hidden_act": "gelu", "layer_norm_eps": 1e-12},  # the authors' epsilon is 1e-5
    defaults={"vocab_size": 50265, "pad_token_id": 1, "max_position_embeddings": 514, "layer_norm_eps": 1e-5},
    position_offset=after_padding,
)


def _like_roberta(
    name: str,
    classes: str,
    names: Names,
    tokenizer_class: str = "RobertaTokenizer",
    vocab_size: int = 50265,
    **more: Any,
) -> Family:
    """Return RoBERTa with other classes, tensor names and vocabulary; `more` are further fields of the family."""
    same: dict[str, Any] = {"common_sign": "", "vocabulary_file": ""}
    defaults = ROBERTA_FAMILY.defaults | {"vocab_size": vocab_size}
    return dataclasses.replace(
        ROBERTA_FAMILY,
        name=name, classes=classes, names=names, tokenizer_class=tokenizer_class, defaults=defaults, **same | more,
    )  # fmt: skip


XLM_ROBERTA_FAMILY = _like_roberta(
    "xlm-roberta", "XLMRoberta", _with_decoder("XLMRoberta"), "XLMRobertaTokenizer", 250002,
    vocabulary_file="sentencepiece.bpe.model",
)  # fmt: skip
CAMEMBERT_FAMILY = _like_roberta("camembert", "Camembert", _with_decoder("Camembert"), "CamembertTokenizer", 32005)
DATA2VEC_TEXT_FAMILY = _like_roberta(
    "data2vec-text", "Data2VecText", _names("Data2VecText", "data2vec_text.", bert.encoder("data2vec_text.")),
    sign=r"^data2vec_text\.",
)  # fmt: skip
ROBERTA_PRELAYERNORM_FAMILY = _like_roberta(
    "roberta-prelayernorm",
    "RobertaPreLayerNorm",
    _names(
        "RobertaPreLayerNorm",
        "roberta_prelayernorm.",
        (
            *bert.encoder("roberta_prelayernorm.", "attention.LayerNorm", "intermediate.LayerNorm"),
            *norm("roberta_prelayernorm.LayerNorm", "encoder/layer_norm"),
        ),
    ),
    sign=r"(^|\.)layer\.\d+\.intermediate\.LayerNorm\.",
    fixed=TANH_SUMMARY | {"norm_placement": "pre"},
)
XLM_ROBERTA_XL_FAMILY = _like_roberta(
    "xlm-roberta-xl",
    "XLMRobertaXL",
    _names(
        "XLMRobertaXL",
        "roberta.",
        (
            *bert.encoder("roberta.", "attention.self_attn_layer_norm", "LayerNorm"),
            *norm("roberta.encoder.LayerNorm", "encoder/layer_norm"),
        ),
    ),
    "XLMRobertaTokenizer",
    250880,
    sign=r"(^|\.)layer\.\d+\.attention\.self_attn_layer_norm\.",
    assumed={"hidden_act": "gelu", "layer_norm_eps": 1e-5},
    fixed=TANH_SUMMARY | PRE_NORM,
)
