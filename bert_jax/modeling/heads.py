"""Heads: pooler, masked-LM head, and the dense layers of the other tasks."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig, EmbeddingLayer
from bert_jax.modeling.compute import Compute, matmul
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.layers import ACTIVATIONS, Dense, Embedding, LayerNorm
from bert_jax.modeling.losses import vocabulary_cross_entropy, vocabulary_cross_entropy_and_samples
from bert_jax.modeling.positions import gather_positions

HEADS = (
    "encoder",
    "pretraining",
    "masked_lm",
    "next_sentence",
    "sequence_classification",
    "token_classification",
    "question_answering",
    "multiple_choice",
    "replaced_token_detection",
    "sentence_embedding",
)
# The original's classes: these have no pooler whatever the config says.
WITHOUT_POOLER = ("masked_lm", "token_classification", "question_answering", "replaced_token_detection")
# Their output layer has one name, `classifier`, but what is trained for one of them means nothing to another.
CLASSIFIERS = ("sequence_classification", "token_classification", "multiple_choice")


def summary_of(config: BertConfig, head: str) -> str | None:
    """The layer between the encoder and a head: one of `bert_jax.config_values.SUMMARIES`, or None."""
    match head:
        case "pretraining" | "next_sentence":
            return "pooler"
        case "sequence_classification":
            return config.classifier_summary
        case "multiple_choice":
            return config.choice_summary
        case "token_classification" | "question_answering" if config.classifier_summary == "transform":
            return "transform"
    return None


class Pooler(nnx.Module):
    """`[..., D] -> [..., D]`: tanh of a dense layer over a [CLS] token."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.dense = Dense(config, config.hidden_size, config.hidden_size, rngs=rngs)

    def __call__(self, x: jax.Array, compute: Compute) -> jax.Array:
        return jnp.tanh(self.dense(x, compute))


class Transform(nnx.Module):
    """`[..., D] -> [..., E]`: dense, activation, LayerNorm; what stands before the vocabulary."""

    def __init__(self, config: BertConfig, features: int, *, rngs: nnx.Rngs):
        self.activation = config.head_act or config.hidden_act
        self.dense = Dense(config, config.hidden_size, features, use_bias=config.head_bias, rngs=rngs)
        self.layer_norm = LayerNorm(config, features)

    def __call__(self, x: jax.Array, compute: Compute) -> jax.Array:
        return self.layer_norm(ACTIVATIONS[self.activation](self.dense(x, compute)))


class MaskedLMHead(Transform):
    """The transformation, then the word embeddings transposed, and a bias: what a masked word is."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        super().__init__(config, config.embedding_width, rngs=rngs)
        if not config.tie_word_embeddings:
            self.decoder = Embedding(config, config.vocab_size, config.embedding_width, rngs=rngs)
        if config.decoder_bias:
            self.bias = nnx.Param(jnp.zeros((config.vocab_size,), jnp.float32))

    def logits(self, x: jax.Array, word_embeddings: jax.Array, compute: Compute) -> jax.Array:
        """`[..., D] -> [..., V]` float32."""
        table, bias = self._output(word_embeddings)
        return matmul(self(x, compute), table, compute, transposed=True, dtype=jnp.float32) + bias

    def losses(
        self, x: jax.Array, labels: jax.Array, word_embeddings: jax.Array, compute: Compute
    ) -> tuple[jax.Array, jax.Array]:
        """`vocabulary_cross_entropy` of `x [B, P, D]`: the logits are never there all at once."""
        table, bias = self._output(word_embeddings)
        return vocabulary_cross_entropy(self(x, compute), labels, table, bias, compute)

    def losses_and_samples(
        self, x: jax.Array, labels: jax.Array, word_embeddings: jax.Array, key: jax.Array, compute: Compute
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """`vocabulary_cross_entropy_and_samples` of `x [B, P, D]`."""
        table, bias = self._output(word_embeddings)
        return vocabulary_cross_entropy_and_samples(self(x, compute), labels, table, bias, key, compute)

    def _output(self, word_embeddings: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The output matrix `[V, E]` and bias `[V]`."""
        table = self.decoder.embedding[...] if hasattr(self, "decoder") else word_embeddings
        return table, self.bias[...] if hasattr(self, "bias") else jnp.zeros(table.shape[:1], jnp.float32)


class Summary(nnx.Module):
    """`[B, D] -> [B, D]`: a dense layer of a classifier's own, and an activation."""

    def __init__(self, config: BertConfig, activation: str, *, rngs: nnx.Rngs):
        self.activation = activation
        self.dense = Dense(config, config.hidden_size, config.hidden_size, rngs=rngs)

    def __call__(self, x: jax.Array, compute: Compute) -> jax.Array:
        return ACTIVATIONS[self.activation](self.dense(x, compute))


class Discriminator(nnx.Module):
    """`[..., D] -> [...]` logits of a token having been replaced (Clark et al. 2020, arXiv:2003.10555)."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.activation = config.hidden_act
        self.dense = Dense(config, config.hidden_size, config.hidden_size, rngs=rngs)
        self.output = Dense(config, config.hidden_size, 1, rngs=rngs)

    def __call__(self, x: jax.Array, compute: Compute) -> jax.Array:
        x = ACTIVATIONS[self.activation](self.dense(x, compute)).astype(jnp.float32)
        return self.output(x, Compute(platform=compute.platform))[..., 0]


_LAYER_ACTIVATIONS = ACTIVATIONS | {
    "identity": lambda x: x,
    "elu": jax.nn.elu,
    "softplus": jax.nn.softplus,
}


class _Projection(nnx.Module):
    """`[..., inputs] -> [..., features]`: one of `config.embedding_layers` that has parameters."""

    def __init__(self, config: BertConfig, layer: EmbeddingLayer, *, rngs: nnx.Rngs):
        if layer.kind == "layer_norm":  # PyTorch's, whatever the encoder's is
            plain = config.replace(norm="layer_norm", norm_bias=True, layer_norm_eps=1e-5)
            self.layer_norm = LayerNorm(plain, layer.features)
            return
        self.dense = Dense(config, layer.inputs, layer.features, use_bias=layer.bias, rngs=rngs)
        if layer.residual and layer.inputs != layer.features:
            self.residual = Dense(config, layer.inputs, layer.features, use_bias=False, rngs=rngs)


class EmbeddingLayers(nnx.Module):
    """`[..., pooled] -> [..., D]` in float32: what a sentence embedding goes through behind its pooling."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        for number, layer in enumerate(config.embedding_layers):
            if layer.kind in ("dense", "layer_norm"):
                setattr(self, f"layer_{number}", _Projection(config, layer, rngs=rngs))

    def __call__(self, x: jax.Array, config: BertConfig, compute: Compute, key: jax.Array | None) -> jax.Array:
        # In float32, as all heads are: these products are small.
        exact = Compute(platform=compute.platform)
        for number, layer in enumerate(config.embedding_layers):
            part: Any = getattr(self, f"layer_{number}", None)
            match layer.kind:
                case "dense":
                    y = _LAYER_ACTIVATIONS[layer.activation](part.dense(x, exact))
                    if layer.residual:
                        y = y + (part.residual(x, exact) if hasattr(part, "residual") else x)
                    x = y
                case "layer_norm":
                    x = part.layer_norm(x)
                case "normalize":
                    x = l2_normalize(x)
                case "dropout":
                    x = dropout(x, layer.rate, None if key is None else jax.random.fold_in(key, number))
        return x


def pool_tokens(x: jax.Array, attention_mask: jax.Array, poolings: Sequence[str], skip: int = 0) -> jax.Array:
    """A sentence embedding `[B, D * poolings]` in float32 from token vectors `[B, S, D]` and their mask `[B, S]`.

    Reimers and Gurevych 2019 (arXiv:1908.10084), section 3; `weightedmean`: Muennighoff 2022 (arXiv:2202.08904),
    section 3.2.

    Args:
        poolings: of `bert_jax.config_values.POOLINGS`.
        skip: leading tokens of each row that are left out; `lasttoken` is the last in any case.
    """
    members = (attention_mask > 0)[:, None]
    if skip:
        members &= jnp.arange(x.shape[1]) >= skip
    first = members.argmax(-1)
    return _pooled(x.astype(jnp.float32), members, poolings, first, jnp.zeros_like(first))[:, 0]


def pool_segments(x: jax.Array, segment_ids: jax.Array, cls_positions: jax.Array, poolings: Sequence[str]) -> jax.Array:
    """As `pool_tokens`, of each example of rows of several: `[B, M, D]`, 0 where a row has fewer than M.

    Args:
        x: `[B, S, D]`.
        segment_ids: `[B, S]`, from 1.
        cls_positions: `[B, M]`, where the examples begin.
        poolings: as there.
    """
    members = segment_members(segment_ids, cls_positions.shape[1])
    return _pooled(x.astype(jnp.float32), members, poolings, cls_positions, cls_positions)


def _pooled(
    x: jax.Array, members: jax.Array, poolings: Sequence[str], first: jax.Array, origin: jax.Array
) -> jax.Array:
    """`[B, S, D]`, and which tokens are of each vector `[B, M, S]`, to `[B, M, D * poolings]`; 0 for no tokens.

    Args:
        first: `[B, M]`, the position of the first token of each.
        origin: `[B, M]`, the position from which the weights of `weightedmean` are counted.
    """
    found = members.any(-1, keepdims=True)
    vectors = []
    for pooling in poolings:
        match pooling:
            case "cls":
                pooled = gather_positions(x, first)
            case "lasttoken":
                pooled = gather_positions(x, members.shape[-1] - 1 - members[..., ::-1].argmax(-1))
            case "max":
                lowest = jnp.finfo(jnp.float32).min
                pooled = jnp.where(members[..., None], x[:, None], lowest).max(axis=2)
            case _:
                weights = members.astype(jnp.float32)
                if pooling == "weightedmean":
                    weights = weights * (jnp.arange(1, x.shape[1] + 1) - origin[..., None])
                total = weights.sum(-1, keepdims=True)
                scale = jnp.sqrt(total) if pooling == "mean_sqrt_len_tokens" else total
                pooled = _weighted_sum(x, weights) / jnp.where(found, scale, 1.0)
        vectors.append(jnp.where(found, pooled, 0.0))
    return vectors[0] if len(vectors) == 1 else jnp.concatenate(vectors, axis=-1)


def _weighted_sum(x: jax.Array, weights: jax.Array) -> jax.Array:
    """`[B, S, D]`, `[B, M, S]` -> `[B, M, D]`; a token of weight 0 does not matter, whatever it holds."""
    if weights.shape[1] == 1:
        return jnp.where(weights[:, 0, :, None] > 0, x * weights[:, 0, :, None], 0.0).sum(axis=1)[:, None]
    return jnp.einsum("bms,bsd->bmd", weights, x, precision=jax.lax.Precision.HIGHEST)


def segment_members(segment_ids: jax.Array, count: int) -> jax.Array:
    """bool `[B, count, S]`: which tokens `[B, S]` are of each segment, from 1."""
    return segment_ids[:, None] == jnp.arange(1, count + 1)[:, None]


def l2_normalize(x: jax.Array) -> jax.Array:
    """`x [..., D]` scaled to unit length; 0, which a row that only fills a batch may be, stays 0, with gradient 0."""
    return x / jnp.sqrt(jnp.maximum(jnp.square(x).sum(axis=-1, keepdims=True), 1e-24))
