"""Tensor names of RoBERTa (Liu et al. 2019, arXiv:1907.11692) and XLM-R (Conneau et al. 2019, arXiv:1911.02116)."""

import dataclasses

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


NAMES = Names(
    prefix="roberta.",
    encoder=bert.encoder("roberta."),
    heads=classifiers(masked_lm=MASKED_LM, sequence_classification=CLASSIFIER),
    architectures=architectures("Roberta"),
    other_architectures={"RobertaForCausalLM": "masked_lm"},
    tied=tied_lm_head("roberta."),
)
XLM_NAMES = dataclasses.replace(
    NAMES, architectures=architectures("XLMRoberta"), other_architectures={"XLMRobertaForCausalLM": "masked_lm"}
)
