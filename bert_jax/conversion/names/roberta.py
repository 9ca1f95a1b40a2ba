"""Tensor names of RoBERTa (Liu et al. 2019, arXiv:1907.11692) and of the families with its heads.

XLM-R: Conneau et al. 2019, arXiv:1911.02116. CamemBERT: Martin et al. 2020, arXiv:1911.03894. data2vec: Baevski et al.
2022, arXiv:2202.03555. RoBERTa-PreLayerNorm: Wettig et al. 2022, arXiv:2202.08005. XLM-R XL: Goyal et al. 2021,
arXiv:2105.00572.
"""

from bert_jax.conversion.names import bert
from bert_jax.conversion.names.table import Entry, Names, architectures, classifiers, dense, embedding, norm

MASKED_LM = (
    *dense("lm_head.dense", "mlm/dense"),
    *norm("lm_head.layer_norm", "mlm/layer_norm"),
    Entry("lm_head.bias", "mlm/bias"),
    embedding("lm_head.decoder", "mlm/decoder"),
)
CLASSIFIER = (*dense("classifier.dense", "summary/dense"), *dense("classifier.out_proj", "classifier"))


def tied_lm_head(prefix: str) -> tuple[tuple[str, str], ...]:
    """Return the tied tensors of RoBERTa's masked-LM head: (second name, original name)."""
    return (
        ("lm_head.decoder.weight", f"{prefix}embeddings.word_embeddings.weight"),
        ("lm_head.decoder.bias", "lm_head.bias"),
    )


def _names(family: str, prefix: str, entries: tuple[Entry, ...]) -> Names:
    """Return the names of a family with RoBERTa's heads: prefix of its classes and tensors, entries of its encoder."""
    return Names(
        prefix=prefix,
        encoder=entries,
        heads=classifiers(masked_lm=MASKED_LM, sequence_classification=CLASSIFIER),
        architectures=architectures(family),
        other_architectures={f"{family}ForCausalLM": "masked_lm"},
        tied=tied_lm_head(prefix),
    )


def _with_decoder(family: str) -> Names:
    names = _names(family, "roberta.", bert.encoder("roberta."))
    return bert.with_decoder_names(names, MASKED_LM, f"{family}ForCausalLM")


NAMES = _with_decoder("Roberta")
XLM_NAMES = _with_decoder("XLMRoberta")
CAMEMBERT_NAMES = _with_decoder("Camembert")
DATA2VEC_NAMES = _names("Data2VecText", "data2vec_text.", bert.encoder("data2vec_text."))
PRE_LAYER_NORM_NAMES = _names(
    "RobertaPreLayerNorm",
    "roberta_prelayernorm.",
    (
        *bert.encoder("roberta_prelayernorm.", "attention.LayerNorm", "intermediate.LayerNorm"),
        *norm("roberta_prelayernorm.LayerNorm", "encoder/layer_norm"),
    ),
)
XLM_XL_NAMES = _names(
    "XLMRobertaXL",
    "roberta.",
    (
        *bert.encoder("roberta.", "attention.self_attn_layer_norm", "LayerNorm"),
        *norm("roberta.encoder.LayerNorm", "encoder/layer_norm"),
    ),
)
