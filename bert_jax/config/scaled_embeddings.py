"""Embeddings whose word embeddings are scaled."""

import dataclasses

from bert_jax.config.embeddings import EmbeddingsConfig
from bert_jax.config.fields import setting


@dataclasses.dataclass(frozen=True)
class ScaledConfig(EmbeddingsConfig):
    """Embeddings with optional scaling of those of words."""

    rescale_embeddings: bool = setting(False, "whether word embeddings are scaled by the square root of hidden_size")

    def builds(self) -> str:
        return "bert_jax.modeling.scaled_embeddings.ScaledEmbeddings" if self.rescale_embeddings else super().builds()
