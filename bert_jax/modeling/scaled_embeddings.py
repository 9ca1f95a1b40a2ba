"""Embeddings whose word embeddings are scaled."""

import jax

from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.embeddings import Embeddings


class ScaledEmbeddings(Embeddings):
    """Embeddings whose word embeddings are multiplied by the square root of the hidden size."""

    def words(self, input_ids: jax.Array, mask: AttentionMask, compute: Compute) -> jax.Array:
        scale: float = self.config.hidden_size**0.5
        return super().words(input_ids, mask, compute) * scale
