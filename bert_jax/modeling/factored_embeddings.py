"""Embeddings whose width differs from the hidden state's (Lan et al. 2020, arXiv:1909.11942, section 3.1)."""

import jax
from flax import nnx

from bert_jax.config.embeddings import FactoredConfig
from bert_jax.config.part import expect
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.embeddings import Embeddings
from bert_jax.modeling.layers import Dense
from bert_jax.sharding import constrain


class FactoredEmbeddings(Embeddings):
    """Embeddings `[B, S, E]` that a dense layer projects to `[B, S, D]` after LayerNorm and dropout."""

    projection_bias = True

    def add_modules(self, rngs: nnx.Rngs) -> None:
        size = self.config.hidden_size
        if expect(self.config.embeddings, FactoredConfig).projects(size):
            self.projection = Dense(self.config, self.read_width, size, use_bias=self.projection_bias, rngs=rngs)

    @property
    def read_width(self) -> int:
        """Return the input width of the dense layer."""
        return self.config.embedding_width

    def projected(self, x: jax.Array, compute: Compute) -> jax.Array:
        """Project `[B, S, E] -> [B, S, D]` if E is not D, or the config says so."""
        if not hasattr(self, "projection"):
            return x
        return constrain(self.projection(x, compute), "batch", "length", "embed")

    def after_dropout(self, x: jax.Array, compute: Compute) -> jax.Array:
        return self.projected(x, compute)
