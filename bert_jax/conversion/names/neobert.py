"""NeoBERT's tensor names (Le Breton et al. 2025, arXiv:2502.19587)."""

from bert_jax.conversion.names.bert import LAYERS_PATH
from bert_jax.conversion.names.table import Entry, Names, architectures, dense, dense_parts, embedding, norm

_LAYER = "model.transformer_encoder.{layer}"
_ATTENTION = f"{LAYERS_PATH}/attention"

NAMES = Names(
    prefix="model.",
    encoder=(
        embedding("model.encoder", "embeddings/word_embeddings"),
        *norm(f"{_LAYER}.attention_norm", f"{_ATTENTION}/layer_norm"),
        *dense_parts(f"{_LAYER}.qkv", *(f"{_ATTENTION}/{part}" for part in ("query", "key", "value")), by_head=True),
        *dense(f"{_LAYER}.wo", f"{_ATTENTION}/output"),
        *norm(f"{_LAYER}.ffn_norm", f"{LAYERS_PATH}/mlp/layer_norm"),
        *dense_parts(f"{_LAYER}.ffn.w12", f"{LAYERS_PATH}/mlp/gate", f"{LAYERS_PATH}/mlp/up"),
        *dense(f"{_LAYER}.ffn.w3", f"{LAYERS_PATH}/mlp/down"),
        *norm("model.layer_norm", "encoder/layer_norm"),
    ),
    heads={
        "masked_lm": (embedding("decoder", "mlm/decoder"), Entry("decoder.bias", "mlm/bias")),
        "sequence_classification": (*dense("dense", "summary/dense"), *dense("classifier", "classifier")),
    },
    architectures=architectures(
        "NeoBERT",
        without=("token_classification", "question_answering", "multiple_choice"),
        encoder="",
        masked_lm="LMHead",
    ),
    tied=(("decoder.weight", "model.encoder.weight"),),
)
