"""ALBERT's tensor names (Lan et al. 2020, arXiv:1909.11942); a row of our stacked layers is a layer of a group."""

from bert_jax.conversion.names.bert import LAYERS_PATH
from bert_jax.conversion.names.table import Entry, Names, architectures, classifiers, dense, embedding, embeddings, norm

_LAYER = "albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}"
_MASKED_LM = (
    *dense("predictions.dense", "mlm/dense"),
    *norm("predictions.LayerNorm", "mlm/layer_norm"),
    Entry("predictions.bias", "mlm/bias"),
    embedding("predictions.decoder", "mlm/decoder"),
)

NAMES = Names(
    prefix="albert.",
    encoder=(
        *embeddings("albert."),
        *dense("albert.encoder.embedding_hidden_mapping_in", "embeddings/projection"),
        *dense(f"{_LAYER}.attention.query", f"{LAYERS_PATH}/attention/query"),
        *dense(f"{_LAYER}.attention.key", f"{LAYERS_PATH}/attention/key"),
        *dense(f"{_LAYER}.attention.value", f"{LAYERS_PATH}/attention/value"),
        *dense(f"{_LAYER}.attention.dense", f"{LAYERS_PATH}/attention/output"),
        *norm(f"{_LAYER}.attention.LayerNorm", f"{LAYERS_PATH}/attention/layer_norm"),
        *dense(f"{_LAYER}.ffn", f"{LAYERS_PATH}/mlp/up"),
        *dense(f"{_LAYER}.ffn_output", f"{LAYERS_PATH}/mlp/down"),
        *norm(f"{_LAYER}.full_layer_layer_norm", f"{LAYERS_PATH}/mlp/layer_norm"),
        *dense("albert.pooler", "pooler/dense"),
    ),
    heads=classifiers(
        masked_lm=_MASKED_LM,
        pretraining=(*_MASKED_LM, *dense("sop_classifier.classifier", "nsp")),
    ),
    architectures=architectures("Albert", pretraining="ForPreTraining"),
    tied=(
        ("predictions.decoder.weight", "albert.embeddings.word_embeddings.weight"),
        ("predictions.decoder.bias", "predictions.bias"),
    ),
)
