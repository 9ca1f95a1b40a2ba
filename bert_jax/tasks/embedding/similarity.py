"""Pipelines that compute the similarity of texts, for each kind of embeddings."""

from collections.abc import Sequence
from typing import Any, ClassVar

from bert_jax.inference.base import as_texts
from bert_jax.inference.similarity import similarities, without_single_axes
from bert_jax.tasks.embedding.embedder import Embedder, SentenceEmbedding
from bert_jax.tasks.embedding.multi_vector.embedder import MultiVectorEmbedding
from bert_jax.tasks.embedding.sparse.embedder import SparseEmbedding


class TextSimilarity(Embedder):
    """Similarity of texts by their embeddings and the function in the model's files."""

    tasks: ClassVar[tuple[str | None, str | None]] = (None, None)  # option `task` for the first and second texts

    def __call__(  # type: ignore[override]
        self,
        first: str | Sequence[str],
        second: str | Sequence[str],
        truncation: bool = True,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
        max_active_dims: int | None = None,
    ) -> Any:
        """Return similarities: cosines from -1 to 1, or dot products or negative distances if the model's files say so.

        Args:
            first: one text, or a list of N texts; queries for late interaction.
            second: one text, or a list of M texts; documents for late interaction.
            truncation: as for `Embedder`.
            prompt_name: as for `Embedder`.
            prompt: as for `Embedder`.
            truncate_dim: as for `Embedder`.
            max_active_dims: as for `Embedder`.

        Returns:
            A float for two texts; float32 `[M]` for a text and a list, `[N]` for a list and a text, `[N, M]` for two
            lists (all pairs).

        Raises:
            InputError: as for `Embedder`.
        """
        settings = self.model.settings
        size = self._size(truncate_dim=truncate_dim, max_active_dims=max_active_dims)
        vectors = []
        for texts, task in zip((first, second), self.tasks, strict=True):
            text = settings.prompt_of_task(task, prompt_name, prompt)
            vectors.append(self._embed(as_texts(texts), text, size, task, truncation, False))
        return without_single_axes(similarities(settings.similarity, *vectors), first, second)


class Similarity(TextSimilarity, SentenceEmbedding):
    """Similarity of texts: the cosine of their embeddings, or the similarity that the model's files name."""


class SparseSimilarity(TextSimilarity, SparseEmbedding):
    """Similarity of texts: the dot product of their sparse embeddings, or the similarity that the files name."""


class MultiVectorSimilarity(TextSimilarity, MultiVectorEmbedding):
    """Similarity of queries and documents by late interaction."""

    tasks = ("query", "document")
