"""DistilBERT's tensor names (Sanh et al. 2019, arXiv:1910.01108)."""

from bert_jax.conversion.names.bert import LAYERS_PATH
from bert_jax.conversion.names.table import Entry, Names, architectures, classifiers, dense, embedding, embeddings, norm

_LAYER = "distilbert.transformer.layer.{layer}"
_CLASSIFIER = (*dense("pre_classifier", "summary/dense"), *dense("classifier", "classifier"))

NAMES = Names(
    prefix="distilbert.",
    encoder=(
        *embeddings("distilbert."),
        *dense(f"{_LAYER}.attention.q_lin", f"{LAYERS_PATH}/attention/query"),
        *dense(f"{_LAYER}.attention.k_lin", f"{LAYERS_PATH}/attention/key"),
        *dense(f"{_LAYER}.attention.v_lin", f"{LAYERS_PATH}/attention/value"),
        *dense(f"{_LAYER}.attention.out_lin", f"{LAYERS_PATH}/attention/output"),
        *norm(f"{_LAYER}.sa_layer_norm", f"{LAYERS_PATH}/attention/layer_norm"),
        *dense(f"{_LAYER}.ffn.lin1", f"{LAYERS_PATH}/mlp/up"),
        *dense(f"{_LAYER}.ffn.lin2", f"{LAYERS_PATH}/mlp/down"),
        *norm(f"{_LAYER}.output_layer_norm", f"{LAYERS_PATH}/mlp/layer_norm"),
    ),
    heads=classifiers(
        masked_lm=(
            *dense("vocab_transform", "mlm/dense"),
            *norm("vocab_layer_norm", "mlm/layer_norm"),
            Entry("vocab_projector.bias", "mlm/bias"),
            embedding("vocab_projector", "mlm/decoder"),
        ),
        sequence_classification=_CLASSIFIER,
        multiple_choice=_CLASSIFIER,
    ),
    architectures=architectures("DistilBert"),
    tied=(("vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"),),
)
