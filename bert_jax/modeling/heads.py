"""What stands on the encoder: pooler, masked-LM head, and the dense layers of the other heads."""

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.compute import Compute, matmul
from bert_jax.modeling.layers import ACTIVATIONS, Dense, LayerNorm
from bert_jax.modeling.losses import vocabulary_cross_entropy


class Pooler(nnx.Module):
    """`[..., D] -> [..., D]`: tanh of a dense layer over a [CLS] token."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.dense = Dense(config, config.hidden_size, config.hidden_size, rngs=rngs)

    def __call__(self, x: jax.Array, compute: Compute) -> jax.Array:
        return jnp.tanh(self.dense(x, compute))


class MaskedLMHead(nnx.Module):
    """`[..., D] -> [..., V]` float32 logits: dense, activation, LayerNorm, then the word embeddings transposed."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.activation = config.hidden_act
        self.dense = Dense(config, config.hidden_size, config.hidden_size, rngs=rngs)
        self.layer_norm = LayerNorm(config, config.hidden_size)
        self.bias = nnx.Param(jnp.zeros((config.vocab_size,), jnp.float32))

    def __call__(self, x: jax.Array, word_embeddings: jax.Array, compute: Compute) -> jax.Array:
        x = self._transform(x, compute)
        return matmul(x, word_embeddings, compute, transposed=True, dtype=jnp.float32) + self.bias[...]

    def losses(
        self, x: jax.Array, labels: jax.Array, word_embeddings: jax.Array, compute: Compute
    ) -> tuple[jax.Array, jax.Array]:
        """`vocabulary_cross_entropy` of `x [B, P, D]`: the logits are never there all at once."""
        return vocabulary_cross_entropy(self._transform(x, compute), labels, word_embeddings, self.bias[...], compute)

    def _transform(self, x: jax.Array, compute: Compute) -> jax.Array:
        return self.layer_norm(ACTIVATIONS[self.activation](self.dense(x, compute)))


def gather_positions(x: jax.Array, positions: jax.Array) -> jax.Array:
    """`x [B, S, D]` at `positions [B, P]` -> `[B, P, D]`."""
    return jnp.take_along_axis(x, positions[..., None], axis=1)


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
    else:
        pooled = jnp.where(mask, x, 0.0).sum(axis=1) / jnp.maximum(mask.sum(axis=1), 1)
    if normalize:
        pooled /= jnp.maximum(jnp.linalg.norm(pooled, axis=-1, keepdims=True), 1e-12)
    return pooled
