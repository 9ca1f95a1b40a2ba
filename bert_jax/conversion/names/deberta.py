"""Tensor names of DeBERTa-v2 and v3 (He et al. 2020, arXiv:2006.03654; 2021, arXiv:2111.09543)."""

import dataclasses

from bert_jax.conversion.names import bert
from bert_jax.conversion.names.bert import LAYERS_PATH
from bert_jax.conversion.names.table import Entry, Names, architectures, classifiers, dense, embedding, embeddings, norm

_LAYER = "deberta.encoder.layer.{layer}"
_ATTENTION = f"{LAYERS_PATH}/attention"
_CLASSIFIER = (*dense("pooler.dense", "summary/dense"), *dense("classifier", "classifier"))
# The masked-LM head under its authors' names.
_LM_PREDICTIONS = (
    *dense("lm_predictions.lm_head.dense", "mlm/dense"),
    *norm("lm_predictions.lm_head.LayerNorm", "mlm/layer_norm"),
    Entry("lm_predictions.lm_head.bias", "mlm/bias"),
)

NAMES = Names(
    prefix="deberta.",
    encoder=(
        *embeddings("deberta."),
        *dense("deberta.embeddings.embed_proj", "embeddings/projection"),
        embedding("deberta.encoder.rel_embeddings", "encoder/relative_embeddings"),
        *norm("deberta.encoder.LayerNorm", "encoder/relative_embeddings/layer_norm"),
        *dense("deberta.encoder.conv.conv", "encoder/conv"),
        *norm("deberta.encoder.conv.LayerNorm", "encoder/conv/layer_norm"),
        *dense(f"{_LAYER}.attention.self.query_proj", f"{_ATTENTION}/query"),
        *dense(f"{_LAYER}.attention.self.key_proj", f"{_ATTENTION}/key"),
        *dense(f"{_LAYER}.attention.self.value_proj", f"{_ATTENTION}/value"),
        *dense(f"{_LAYER}.attention.self.pos_query_proj", f"{_ATTENTION}/position_query"),
        *dense(f"{_LAYER}.attention.self.pos_key_proj", f"{_ATTENTION}/position_key"),
        *dense(f"{_LAYER}.attention.output.dense", f"{_ATTENTION}/output"),
        *norm(f"{_LAYER}.attention.output.LayerNorm", f"{_ATTENTION}/layer_norm"),
        *bert.feed_forward(_LAYER),
    ),
    heads=classifiers(masked_lm=bert.masked_lm(), sequence_classification=_CLASSIFIER, multiple_choice=_CLASSIFIER),
    architectures=architectures("DebertaV2"),
    tied=bert.tied_predictions("deberta."),
)
NAMES = dataclasses.replace(
    NAMES, not_legacy=dataclasses.replace(NAMES, heads={**NAMES.heads, "masked_lm": _LM_PREDICTIONS}, tied=())
)
