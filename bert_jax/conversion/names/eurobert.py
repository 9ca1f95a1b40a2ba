"""EuroBERT's tensor names (Boizard et al. 2025, arXiv:2503.05500)."""

from bert_jax.conversion.names.bert import LAYERS_PATH
from bert_jax.conversion.names.table import Entry, Names, architectures, dense, embedding, norm, projections

_LAYER = "model.layers.{layer}"

NAMES = Names(
    prefix="model.",
    encoder=(
        embedding("model.embed_tokens", "embeddings/word_embeddings"),
        *norm(f"{_LAYER}.input_layernorm", f"{LAYERS_PATH}/attention/layer_norm"),
        *projections(f"{_LAYER}.self_attn", f"{LAYERS_PATH}/attention"),
        *norm(f"{_LAYER}.post_attention_layernorm", f"{LAYERS_PATH}/mlp/layer_norm"),
        *dense(f"{_LAYER}.mlp.gate_proj", f"{LAYERS_PATH}/mlp/gate"),
        *dense(f"{_LAYER}.mlp.up_proj", f"{LAYERS_PATH}/mlp/up"),
        *dense(f"{_LAYER}.mlp.down_proj", f"{LAYERS_PATH}/mlp/down"),
        *norm("model.norm", "encoder/layer_norm"),
    ),
    heads={
        "masked_lm": (embedding("lm_head", "mlm/decoder"), Entry("lm_head.bias", "mlm/bias")),
        "sequence_classification": (*dense("dense", "summary/dense"), *dense("classifier", "classifier")),
        "token_classification": dense("classifier", "classifier"),
    },
    architectures=architectures("EuroBert", without=("question_answering", "multiple_choice")),
    tied=(("lm_head.weight", "model.embed_tokens.weight"),),
)
