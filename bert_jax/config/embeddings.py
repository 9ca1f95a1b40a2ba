"""The embedding layer."""

import dataclasses
from typing import Any, Self

from bert_jax.config.fields import setting
from bert_jax.config.part import ModelPart


@dataclasses.dataclass(frozen=True)
class EmbeddingsConfig(ModelPart):
    """Embeddings of words, positions and token types, as wide as the hidden state."""

    embedding_norm: bool = setting(True, "whether a LayerNorm follows the sum of the embeddings")

    def builds(self) -> str:
        return "bert_jax.modeling.embeddings.Embeddings"

    def of_other_size(self) -> Self:
        """Return the part for a named size, such as "base", that the family itself does not define."""
        return self

    def width(self, hidden_size: int) -> int:
        """Return the width of the word embeddings."""
        return hidden_size

    def added_width(self, hidden_size: int) -> int:
        """Return the width of the embeddings of positions and token types."""
        return self.width(hidden_size)

    def norm_width(self, hidden_size: int) -> int:
        """Return the input width of the LayerNorm."""
        return self.added_width(hidden_size)


@dataclasses.dataclass(frozen=True)
class FactoredConfig(EmbeddingsConfig):
    """Embeddings of any width, projected to `hidden_size` by a dense layer (Lan et al. 2020, arXiv:1909.11942, 3.1)."""

    embedding_size: int | None = setting(None, "width of the embeddings; None = hidden_size", least=1, shapes=True)
    embedding_projection: bool = setting(False, "whether embeddings as wide as hidden_size are projected too")

    def builds(self) -> str:
        return "bert_jax.modeling.factored_embeddings.FactoredEmbeddings"

    def of_other_size(self) -> Self:
        return dataclasses.replace(self, embedding_size=None)

    def width(self, hidden_size: int) -> int:
        return self.embedding_size or hidden_size

    def projects(self, hidden_size: int) -> bool:
        """Return whether a dense layer projects the embeddings."""
        return self.width(hidden_size) != hidden_size or self.embedding_projection

    def canonical(self, config: Any) -> Self:
        same = self.embedding_size == config.hidden_size
        return dataclasses.replace(self, embedding_size=None) if same else self
