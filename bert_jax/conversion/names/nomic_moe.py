"""Tensor names of Nomic Embed v2 (Nussbaum and Duderstadt 2025, arXiv:2502.07972), those of its authors."""

from bert_jax.conversion.names.bert import LAYERS_PATH
from bert_jax.conversion.names.table import (
    EXPERT_LAYERS,
    Entry,
    Names,
    architectures,
    dense,
    dense_parts,
    embedding,
    norm,
)

_LAYER = "bert.encoder.layers.{layer}"
_EXPERTS = EXPERT_LAYERS.rstrip("/")


def _attention(layers: str) -> tuple[Entry, ...]:
    """Return the entries of attention and LayerNorms in a stack of layers."""
    return (
        *dense_parts(f"{_LAYER}.attn.Wqkv", *(f"{layers}/attention/{part}" for part in ("query", "key", "value"))),
        *dense(f"{_LAYER}.attn.out_proj", f"{layers}/attention/output"),
        *norm(f"{_LAYER}.norm1", f"{layers}/attention/layer_norm"),
        *norm(f"{_LAYER}.norm2", f"{layers}/mlp/layer_norm"),
    )


NAMES = Names(
    prefix="bert.",
    encoder=(
        embedding("bert.embeddings.word_embeddings", "embeddings/word_embeddings"),
        embedding("bert.embeddings.token_type_embeddings", "embeddings/token_type_embeddings"),
        *norm("bert.emb_ln", "embeddings/layer_norm"),
        *_attention(LAYERS_PATH),
        *dense(f"{_LAYER}.mlp.fc1", f"{LAYERS_PATH}/mlp/up"),
        *dense(f"{_LAYER}.mlp.fc2", f"{LAYERS_PATH}/mlp/down"),
        *_attention(_EXPERTS),
        Entry(f"{_LAYER}.mlp.router.layer.weight", f"{_EXPERTS}/mlp/router/kernel", transpose=True),
        Entry(f"{_LAYER}.mlp.experts.mlp.w1", f"{_EXPERTS}/mlp/experts/up"),
        Entry(f"{_LAYER}.mlp.experts.mlp.w2", f"{_EXPERTS}/mlp/experts/down"),
        Entry(f"{_LAYER}.mlp.experts.bias", f"{_EXPERTS}/mlp/experts/bias"),
        *dense("bert.pooler.dense", "pooler/dense"),
    ),
    heads={
        "masked_lm": (
            *dense("cls.predictions.transform.dense", "mlm/dense"),
            *norm("cls.predictions.transform.layer_norm", "mlm/layer_norm"),
            Entry("cls.predictions.decoder.bias", "mlm/bias"),
            embedding("cls.predictions.decoder", "mlm/decoder"),
        ),
        "sequence_classification": dense("classifier", "classifier"),
        "token_classification": dense("classifier", "classifier"),
    },
    architectures=architectures(
        "NomicBert", without=("question_answering", "multiple_choice"), masked_lm="ForPreTraining"
    ),
    other_architectures={"NomicBertForMaskedLM": "masked_lm"},
    tied=(("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),),
)
