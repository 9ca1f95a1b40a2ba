"""Heads: pooler, masked-LM head, and the dense layers of the other tasks."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.config.values import EmbeddingLayer
from bert_jax.modeling.compute import Compute, matmul
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.layers import ACTIVATIONS, Dense, Embedding, LayerNorm
from bert_jax.modeling.losses import vocabulary_cross_entropy, vocabulary_cross_entropy_and_samples
from bert_jax.modeling.positions import gather_positions
from bert_jax.modeling.sparse import splade


class Pooler(nnx.Module):
    """The pooler, `[..., D] -> [..., D]`: tanh of a dense layer on the [CLS] token, or its state as it is."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        if config.pooler_dense:
            self.dense = Dense(config, config.hidden_size, config.hidden_size, rngs=rngs)

    def __call__(self, x: jax.Array, compute: Compute) -> jax.Array:
        return jnp.tanh(self.dense(x, compute)) if hasattr(self, "dense") else x


def head_norm(config: BertConfig, features: int) -> LayerNorm:
    """Return the LayerNorm of a head, which is plain where those of the encoder are `no_norm`."""
    return LayerNorm(config.replace(norm="layer_norm") if config.norm == "no_norm" else config, features)


class Transform(nnx.Module):
    """The transform of the masked-LM head, `[..., D] -> [..., E]`: dense, activation, LayerNorm."""

    def __init__(self, config: BertConfig, features: int, *, rngs: nnx.Rngs):
        self.activation = config.head_act or config.hidden_act
        self.dense = Dense(config, config.hidden_size, features, use_bias=config.head_bias, rngs=rngs)
        self.layer_norm = head_norm(config, features)

    def __call__(self, x: jax.Array, compute: Compute) -> jax.Array:
        return self.layer_norm(ACTIVATIONS[self.activation](self.dense(x, compute)))


class MaskedLMHead(Transform):
    """The masked-LM head: transform (if `head_transform`), product with the (tied) word embedding, and a bias.

    With `wide_decoder`, the output matrix is the word embedding beside further columns, which are never tied.
    """

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        if config.head_transform:
            super().__init__(config, config.transform_width, rngs=rngs)
        if not config.tie_word_embeddings:
            self.decoder = Embedding(config, config.vocab_size, config.embedding_width, rngs=rngs)
        if further := config.transform_width - config.embedding_width:
            self.further_decoder = Embedding(config, config.vocab_size, further, rngs=rngs)
        if config.decoder_bias:
            self.bias = nnx.Param(jnp.zeros((config.vocab_size,), jnp.float32))

    def __call__(self, x: jax.Array, compute: Compute) -> jax.Array:
        return super().__call__(x, compute) if hasattr(self, "dense") else x

    def logits(self, x: jax.Array, word_embeddings: jax.Array, compute: Compute) -> jax.Array:
        """Return float32 logits, `[..., D] -> [..., V]`."""
        table, bias = self._output(word_embeddings)
        return matmul(self(x, compute), table, compute, transposed=True, dtype=jnp.float32) + bias

    def losses(
        self, x: jax.Array, labels: jax.Array, word_embeddings: jax.Array, compute: Compute
    ) -> tuple[jax.Array, jax.Array]:
        """Return `vocabulary_cross_entropy` of `x [B, P, D]`, without ever holding all logits."""
        table, bias = self._output(word_embeddings)
        return vocabulary_cross_entropy(self(x, compute), labels, table, bias, compute)

    def losses_and_samples(
        self, x: jax.Array, labels: jax.Array, word_embeddings: jax.Array, key: jax.Array, compute: Compute
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return `vocabulary_cross_entropy_and_samples` of `x [B, P, D]`."""
        table, bias = self._output(word_embeddings)
        return vocabulary_cross_entropy_and_samples(self(x, compute), labels, table, bias, key, compute)

    def label_margins(self, x: jax.Array, labels: jax.Array, word_embeddings: jax.Array, compute: Compute) -> jax.Array:
        """Return by how much the logit of each label is above the mean logit, float32 `[B, P]`."""
        table, bias = self._output(word_embeddings)
        rows = table[labels] - table.mean(axis=0)
        margins = jnp.einsum("bpd,bpd->bp", self(x, compute).astype(jnp.float32), rows, precision="highest")
        return margins + bias[labels] - bias.mean()

    def sparse(
        self, x: jax.Array, attention_mask: jax.Array, word_embeddings: jax.Array, pooling: str, compute: Compute
    ) -> jax.Array:
        """Return the `splade` embeddings `[B, V]` of `x [B, S, D]`."""
        return splade(self(x, compute), attention_mask, *self._output(word_embeddings), pooling, compute)

    def _output(self, word_embeddings: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the output matrix `[V, E]`, `[V, D]` with further columns, and the bias `[V]`."""
        table = self.decoder.table() if hasattr(self, "decoder") else word_embeddings
        if hasattr(self, "further_decoder"):
            table = jnp.concatenate((table, self.further_decoder.table()), axis=1)
        return table, self.bias[...] if hasattr(self, "bias") else jnp.zeros(table.shape[:1], jnp.float32)


class Summary(nnx.Module):
    """A classifier's own dense layer with activation, `[B, D] -> [B, D]`, in place of the pooler."""

    def __init__(self, config: BertConfig, activation: str, *, rngs: nnx.Rngs):
        self.activation = config.hidden_act if activation == "hidden_act" else activation
        self.dense = Dense(config, config.hidden_size, config.hidden_size, rngs=rngs)

    def __call__(self, x: jax.Array, compute: Compute) -> jax.Array:
        return ACTIVATIONS[self.activation](self.dense(x, compute))


class SpanFeedForward(nnx.Module):
    """The feed-forward block of BigBird's span head, `[..., D] -> [..., D]`: dropout before it, as after its layers."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.activation, self.rate = config.hidden_act, config.hidden_dropout_prob
        self.up = Dense(config, config.hidden_size, config.intermediate_size, rngs=rngs)
        self.down = Dense(config, config.intermediate_size, config.hidden_size, rngs=rngs)
        self.layer_norm = head_norm(config, config.hidden_size)

    def __call__(self, x: jax.Array, compute: Compute, dropout_key: jax.Array | None) -> jax.Array:
        keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        y = ACTIVATIONS[self.activation](self.up(dropout(x, self.rate, keys[0]), compute))
        return self.layer_norm(x + dropout(self.down(y, compute), self.rate, keys[1]))


class Discriminator(nnx.Module):
    """ELECTRA's discriminator head, `[B, S, D] -> [B, S]`: logits that a token was replaced (arXiv:2003.10555).

    With `config.discriminator_norm` it first adds the state of the example's first token to that of each token, and
    applies a LayerNorm, as in DeBERTa-v3 (github.com/microsoft/DeBERTa).
    """

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.activation = config.hidden_act
        if config.discriminator_norm:
            self.layer_norm = head_norm(config, config.hidden_size)
        self.dense = Dense(config, config.hidden_size, config.hidden_size, rngs=rngs)
        self.output = Dense(config, config.hidden_size, 1, rngs=rngs)

    def __call__(self, x: jax.Array, segment_ids: jax.Array | None, compute: Compute) -> jax.Array:
        if hasattr(self, "layer_norm"):
            first = x[:, :1] if segment_ids is None else gather_positions(x, segment_starts(segment_ids))
            x = self.layer_norm(x + first)
        x = ACTIVATIONS[self.activation](self.dense(x, compute)).astype(jnp.float32)
        return self.output(x, Compute(platform=compute.platform))[..., 0]


_LAYER_ACTIVATIONS = ACTIVATIONS | {
    "identity": lambda x: x,
    "elu": jax.nn.elu,
    "softplus": jax.nn.softplus,
}


class _Projection(nnx.Module):
    """The parameters of one of `config.embedding_layers`: a LayerNorm, or a dense layer with optional residual."""

    def __init__(self, config: BertConfig, layer: EmbeddingLayer, *, rngs: nnx.Rngs):
        if layer.kind == "layer_norm":  # with PyTorch's defaults, unlike the encoder's
            plain = config.replace(norm="layer_norm", norm_bias=True, layer_norm_eps=1e-5)
            self.layer_norm = LayerNorm(plain, layer.features)
            return
        self.dense = Dense(config, layer.inputs, layer.features, use_bias=layer.bias, rngs=rngs)
        if layer.residual and layer.inputs != layer.features:
            self.residual = Dense(config, layer.inputs, layer.features, use_bias=False, rngs=rngs)


class EmbeddingLayers(nnx.Module):
    """The layers after pooling in a sentence embedding model, `[..., pooled] -> [..., D]`, in float32."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        for number, layer in enumerate(config.embedding_layers):
            if layer.kind in ("dense", "layer_norm"):
                setattr(self, f"layer_{number}", _Projection(config, layer, rngs=rngs))

    def __call__(self, x: jax.Array, config: BertConfig, compute: Compute, key: jax.Array | None) -> jax.Array:
        # In float32, as in all heads, since these products are small.
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


def segment_starts(segment_ids: jax.Array) -> jax.Array:
    """Return for each token the first position of its example in packed rows, both `[B, S]`."""
    place = jnp.broadcast_to(jnp.arange(segment_ids.shape[1]), segment_ids.shape)
    is_start = jnp.diff(segment_ids, axis=1, prepend=segment_ids[:, :1] - 1) != 0
    return jax.lax.cummax(jnp.where(is_start, place, 0), axis=1)


def pool_tokens(x: jax.Array, attention_mask: jax.Array, poolings: Sequence[str], skip: int = 0) -> jax.Array:
    """Pool token vectors `[B, S, D]` to sentence embeddings `[B, D * len(poolings)]` in float32.

    Reimers and Gurevych 2019 (arXiv:1908.10084), section 3; `weightedmean`: Muennighoff 2022 (arXiv:2202.08904),
    section 3.2.

    Args:
        x: token vectors `[B, S, D]`.
        attention_mask: `[B, S]`, 1 for tokens, 0 for padding.
        poolings: names of `bert_jax.config.values.POOLINGS`, whose results are concatenated.
        skip: number of leading tokens to leave out of each row; no effect on `lasttoken`.
    """
    members = (attention_mask > 0)[:, None]
    if skip:
        members &= jnp.arange(x.shape[1]) >= skip
    first = members.argmax(-1)
    return _pooled(x.astype(jnp.float32), members, poolings, first, jnp.zeros_like(first))[:, 0]


def pool_segments(x: jax.Array, segment_ids: jax.Array, cls_positions: jax.Array, poolings: Sequence[str]) -> jax.Array:
    """Pool token vectors of packed rows to one embedding per example: `[B, M, D]`, 0 for missing examples.

    Args:
        x: token vectors `[B, S, D]`.
        segment_ids: `[B, S]`, the number of each token's example, from 1.
        cls_positions: `[B, M]`, the first position of each example.
        poolings: as for `pool_tokens`.
    """
    members = segment_members(segment_ids, cls_positions.shape[1])
    return _pooled(x.astype(jnp.float32), members, poolings, cls_positions, cls_positions)


def _pooled(
    x: jax.Array, members: jax.Array, poolings: Sequence[str], first: jax.Array, origin: jax.Array
) -> jax.Array:
    """Pool token vectors `[B, S, D]` to `[B, M, D * len(poolings)]`; 0 for a vector without tokens.

    Args:
        x: the token vectors.
        members: bool `[B, M, S]`, the tokens of each pooled vector.
        poolings: names of `bert_jax.config.values.POOLINGS`.
        first: `[B, M]`, position of the first token of each pooled vector.
        origin: `[B, M]`, position from which the weights of `weightedmean` count.
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
    """Sum `x [B, S, D]` with weights `[B, M, S]` to `[B, M, D]`; for M = 1, NaN at weight 0 is ignored."""
    if weights.shape[1] == 1:
        return jnp.where(weights[:, 0, :, None] > 0, x * weights[:, 0, :, None], 0.0).sum(axis=1)[:, None]
    return jnp.einsum("bms,bsd->bmd", weights, x, precision=jax.lax.Precision.HIGHEST)


def segment_members(segment_ids: jax.Array, count: int) -> jax.Array:
    """Return bool `[B, count, S]`: whether each token belongs to segment 1, 2, ..., count."""
    return segment_ids[:, None] == jnp.arange(1, count + 1)[:, None]


def l2_normalize(x: jax.Array) -> jax.Array:
    """Scale `x [..., D]` to unit length; a zero vector (of a padded row) stays zero, with gradient 0."""
    return x / jnp.sqrt(jnp.maximum(jnp.square(x).sum(axis=-1, keepdims=True), 1e-24))
