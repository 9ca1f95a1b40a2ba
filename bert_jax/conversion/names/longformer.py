"""Tensor names of Longformer (Beltagy et al. 2020, arXiv:2004.05150)."""

from bert_jax.conversion.names import bert, roberta
from bert_jax.conversion.names.bert import LAYERS_PATH
from bert_jax.conversion.names.table import Names, architectures, classifiers, dense

_ATTENTION = "longformer.encoder.layer.{layer}.attention.self"

NAMES = Names(
    prefix="longformer.",
    encoder=(
        *bert.encoder("longformer."),
        *dense(f"{_ATTENTION}.query_global", f"{LAYERS_PATH}/attention/global_query"),
        *dense(f"{_ATTENTION}.key_global", f"{LAYERS_PATH}/attention/global_key"),
        *dense(f"{_ATTENTION}.value_global", f"{LAYERS_PATH}/attention/global_value"),
    ),
    heads=classifiers(masked_lm=roberta.MASKED_LM, sequence_classification=roberta.CLASSIFIER),
    architectures=architectures("Longformer"),
    tied=roberta.tied_lm_head("longformer."),
)
