"""ModernBERT's tensor names (Warner et al. 2024, arXiv:2412.13663)."""

from bert_jax.conversion.names.bert import LAYERS_PATH
from bert_jax.conversion.names.table import (
    Entry,
    Names,
    architectures,
    dense,
    dense_parts,
    embedding,
    norm,
)

_LAYER = "model.layers.{layer}"


def _classifier(ours: str) -> tuple[Entry, ...]:
    return (*dense("head.dense", "summary/dense"), *norm("head.norm", "summary/layer_norm"), *dense("classifier", ours))


NAMES = Names(
    prefix="model.",
    encoder=(
        embedding("model.embeddings.tok_embeddings", "embeddings/word_embeddings"),
        *norm("model.embeddings.norm", "embeddings/layer_norm"),
        *norm(f"{_LAYER}.attn_norm", f"{LAYERS_PATH}/attention/layer_norm", first_layer=1),
        *dense_parts(f"{_LAYER}.attn.Wqkv", *(f"{LAYERS_PATH}/attention/{part}" for part in ("query", "key", "value"))),
        *dense(f"{_LAYER}.attn.Wo", f"{LAYERS_PATH}/attention/output"),
        *norm(f"{_LAYER}.mlp_norm", f"{LAYERS_PATH}/mlp/layer_norm"),
        *dense_parts(f"{_LAYER}.mlp.Wi", f"{LAYERS_PATH}/mlp/gate", f"{LAYERS_PATH}/mlp/up"),
        *dense(f"{_LAYER}.mlp.Wo", f"{LAYERS_PATH}/mlp/down"),
        *norm("model.final_norm", "encoder/layer_norm"),
    ),
    heads={
        "masked_lm": (
            *dense("head.dense", "mlm/dense"),
            *norm("head.norm", "mlm/layer_norm"),
            Entry("decoder.bias", "mlm/bias"),
            embedding("decoder", "mlm/decoder"),
        ),
        "sequence_classification": _classifier("classifier"),
        "token_classification": _classifier("classifier"),
        "multiple_choice": _classifier("classifier"),
        "question_answering": _classifier("qa_outputs"),
    },
    architectures=architectures("ModernBert"),
    tied=(("decoder.weight", "model.embeddings.tok_embeddings.weight"),),
)
