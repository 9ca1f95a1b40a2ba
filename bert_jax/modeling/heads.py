"""What stands on the encoder: pooler, masked-LM head, and the dense layers of the other heads."""

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.compute import Compute, matmul
from bert_jax.modeling.layers import ACTIVATIONS, Dense, Embedding, LayerNorm
from bert_jax.modeling.losses import vocabulary_cross_entropy, vocabulary_cross_entropy_and_samples
from bert_jax.modeling.positions import gather_positions


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


def pool_tokens(x: jax.Array, attention_mask: jax.Array, pooling: str, normalize: bool) -> jax.Array:
    """A sentence embedding `[B, D]` in float32 from token vectors `[B, S, D]` and their mask `[B, S]`.

    Reimers and Gurevych 2019 (arXiv:1908.10084), section 3.
    """
    x = x.astype(jnp.float32)
    mask = (attention_mask > 0)[..., None]
    if pooling == "cls":
        pooled = x[:, 0]
    elif pooling == "max":
        pooled = jnp.where(mask, x, jnp.finfo(jnp.float32).min).max(axis=1)
        pooled = jnp.where(mask.any(axis=1), pooled, 0.0)
    else:
        pooled = jnp.where(mask, x, 0.0).sum(axis=1) / jnp.maximum(mask.sum(axis=1), 1)
    if normalize:
        pooled = unit(pooled)
    return pooled


def pool_segments(
    x: jax.Array, segment_ids: jax.Array, cls_positions: jax.Array, pooling: str, normalize: bool
) -> jax.Array:
    """As `pool_tokens`, of each example of rows of several: `[B, M, D]`, 0 where a row has fewer than M.

    Args:
        x: `[B, S, D]`.
        segment_ids: `[B, S]`, from 1.
        cls_positions: `[B, M]`, where the examples begin.
        pooling, normalize: as there.
    """
    x = x.astype(jnp.float32)
    inside = segment_members(segment_ids, cls_positions.shape[1])
    if pooling == "cls":
        pooled = jnp.where(inside.any(-1, keepdims=True), gather_positions(x, cls_positions), 0.0)
    elif pooling == "max":
        pooled = jnp.where(inside[..., None], x[:, None], jnp.finfo(jnp.float32).min).max(axis=2)
        pooled = jnp.where(inside.any(-1, keepdims=True), pooled, 0.0)
    else:
        total = jnp.einsum("bms,bsd->bmd", inside.astype(jnp.float32), x, precision=jax.lax.Precision.HIGHEST)
        pooled = total / jnp.maximum(inside.sum(-1, keepdims=True), 1)
    return unit(pooled) if normalize else pooled


def segment_members(segment_ids: jax.Array, count: int) -> jax.Array:
    """bool `[B, count, S]`: which tokens `[B, S]` are of each segment, from 1."""
    return segment_ids[:, None] == jnp.arange(1, count + 1)[:, None]


def unit(x: jax.Array) -> jax.Array:
    """`x [..., D]` scaled to unit length; 0, which a row that only fills a batch may be, stays 0, with gradient 0."""
    return x / jnp.sqrt(jnp.maximum(jnp.square(x).sum(axis=-1, keepdims=True), 1e-24))
