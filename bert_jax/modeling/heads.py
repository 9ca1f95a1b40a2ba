"""The modules of BERT's heads: pooler, transform, masked-LM head, and the summary of a classifier."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.lazy import LazyModule
from bert_jax.modeling.compute import Compute, matmul
from bert_jax.modeling.layers import ACTIVATIONS, Dense, Embedding, LayerNorm

if TYPE_CHECKING:
    from bert_jax.modeling import losses, sparse
else:  # used only by training and sparse embeddings
    losses = LazyModule("bert_jax.modeling.losses")
    sparse = LazyModule("bert_jax.modeling.sparse")


class Pooler(nnx.Module):
    """The pooler, `[..., D] -> [..., D]`: tanh of a dense layer on the [CLS] token."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.dense = Dense(config, config.hidden_size, config.hidden_size, rngs=rngs)

    def __call__(self, x: jax.Array, compute: Compute) -> jax.Array:
        return jnp.tanh(self.dense(x, compute))


def head_norm(config: BertConfig, features: int) -> LayerNorm:
    """Return the norm of a head: that of the encoder, but LayerNorm in place of `no_norm`."""
    return LayerNorm(config.replace(norm="layer_norm") if config.norms.norm == "no_norm" else config, features)


class Transform(nnx.Module):
    """The transform of the masked-LM head, `[..., D] -> [..., E]`: dense, activation, LayerNorm."""

    def __init__(self, config: BertConfig, features: int, *, rngs: nnx.Rngs):
        self.activation = config.heads.head_act or config.hidden_act
        self.dense = Dense(config, config.hidden_size, features, use_bias=config.heads.head_bias, rngs=rngs)
        self.layer_norm = head_norm(config, features)

    def __call__(self, x: jax.Array, compute: Compute) -> jax.Array:
        return self.layer_norm(ACTIVATIONS[self.activation](self.dense(x, compute)))


class VocabularyProjection(Transform):
    """The masked-LM head: transform (if `head_transform`), product with the (tied) word embedding, and a bias."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        if config.heads.head_transform:
            super().__init__(config, config.transform_width, rngs=rngs)
        self.add_decoder(config, rngs)
        if config.heads.decoder_bias:
            self.bias = nnx.Param(jnp.zeros((config.vocab_size,), jnp.float32))

    def add_decoder(self, config: BertConfig, rngs: nnx.Rngs) -> None:
        """Create the output matrix, if it is not the word embedding."""
        if not config.tie_word_embeddings:
            self.decoder = Embedding(config, config.vocab_size, config.embedding_width, rngs=rngs)

    def output_matrix(self, word_embeddings: jax.Array) -> jax.Array:
        """Return the output matrix `[V, E]`."""
        return self.decoder.table() if hasattr(self, "decoder") else word_embeddings

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
        return losses.vocabulary_cross_entropy(self(x, compute), labels, table, bias, compute)

    def losses_and_samples(
        self, x: jax.Array, labels: jax.Array, word_embeddings: jax.Array, key: jax.Array, compute: Compute
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return `vocabulary_cross_entropy_and_samples` of `x [B, P, D]`."""
        table, bias = self._output(word_embeddings)
        return losses.vocabulary_cross_entropy_and_samples(self(x, compute), labels, table, bias, key, compute)

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
        return sparse.splade(self(x, compute), attention_mask, *self._output(word_embeddings), pooling, compute)

    def _output(self, word_embeddings: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the output matrix and the bias `[V]`."""
        table = self.output_matrix(word_embeddings)
        return table, self.bias[...] if hasattr(self, "bias") else jnp.zeros(table.shape[:1], jnp.float32)


class Summary(nnx.Module):
    """A classifier's own dense layer with activation, `[B, D] -> [B, D]`, in place of the pooler."""

    def __init__(self, config: BertConfig, activation: str, *, rngs: nnx.Rngs):
        self.activation = config.hidden_act if activation == "hidden_act" else activation
        self.dense = Dense(config, config.hidden_size, config.hidden_size, rngs=rngs)

    def __call__(self, x: jax.Array, compute: Compute) -> jax.Array:
        return ACTIVATIONS[self.activation](self.dense(x, compute))
