"""DistilBERT (Sanh et al. 2019, arXiv:1910.01108): BERT without token types and pooler."""

from bert_jax.errors import InputError
from bert_jax.families.base import Family, Json, keys_with, shown
from bert_jax.families.names import (
    LAYERS_PATH,
    Entry,
    Names,
    architectures,
    classifiers,
    dense,
    embedding,
    embeddings,
    norm,
)

_LAYER = "distilbert.transformer.layer.{layer}"
_CLASSIFIER = (*dense("pre_classifier", "summary/dense"), *dense("classifier", "classifier"))

_NAMES = Names(
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


def _read_distilbert(hf: Json) -> Json:
    """Check that BERT's keys agree with DistilBERT's, which transformers reads as aliases; return no fields."""
    names = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
    for other, own in names.items():
        if other in hf and hf[other] != hf.get(own):
            raise InputError(f"{other}: expected {own}, {shown(hf.get(own))}, found {shown(hf[other])}")
    return {}


DISTILBERT_FAMILY = Family(
    name="distilbert",
    title="DistilBERT",
    names=_NAMES,
    tokenizer_class="DistilBertTokenizer",
    token_types=False,
    sign=r"(^|\.)transformer\.layer\.\d+\.",
    classes="DistilBert",
    fixed={"type_vocab_size": 0, "pooler": False, "classifier_summary": "relu", "choice_summary": "relu"},
    keys=keys_with(
        "qa_dropout", without=("type_vocab_size", "layer_norm_eps"),
        hidden_size="dim", num_hidden_layers="n_layers", num_attention_heads="n_heads",
        intermediate_size="hidden_dim", hidden_act="activation", hidden_dropout_prob="dropout",
        attention_probs_dropout_prob="attention_dropout", classifier_dropout="seq_classif_dropout",
    ),
    reads=_read_distilbert,
    defaults={"n_layers": 6, "seq_classif_dropout": 0.2, "qa_dropout": 0.1},
)  # fmt: skip
