"""Tensor names of DeBERTa, and of DeBERTa-v2 and v3 (He et al. 2020, arXiv:2006.03654; 2021, arXiv:2111.09543)."""

import dataclasses

from bert_jax.conversion.names import bert
from bert_jax.conversion.names.bert import LAYERS_PATH
from bert_jax.conversion.names.table import (
    Entry,
    Names,
    architectures,
    classifiers,
    dense,
    embedding,
    embeddings,
    norm,
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
    """Return the names of a family: its Hugging Face classes, and entries of queries, keys, values and positions."""
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


# transformers has no class for the discriminator of the pretraining; its Auto classes read the encoder.
NAMES = _names(
    architectures("DebertaV2", replaced_token_detection="ForPreTraining"),
    (
        *dense(f"{_SELF}.query_proj", f"{_ATTENTION}/query"),
        *dense(f"{_SELF}.key_proj", f"{_ATTENTION}/key"),
        *dense(f"{_SELF}.value_proj", f"{_ATTENTION}/value"),
        *dense(f"{_SELF}.pos_query_proj", f"{_ATTENTION}/position_query"),
        *dense(f"{_SELF}.pos_key_proj", f"{_ATTENTION}/position_key"),
    ),
)
V1_NAMES = _names(
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
