"""The pipeline of similarities of texts, by their embeddings."""

from collections.abc import Sequence
from typing import Any

from bert_jax.inference import similarity
from bert_jax.inference.base import as_texts
from bert_jax.tasks.embedding.dense.pipeline import SentenceEmbedding


class Similarity(SentenceEmbedding):
    """Similarity of texts: the cosine of their embeddings, or the similarity that the model's files name."""

    def __call__(  # type: ignore[override]
        self,
        first: str | Sequence[str],
        second: str | Sequence[str],
        truncation: bool = True,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
    ) -> Any:
        """Return similarities: cosines from -1 to 1, or dot products or negative distances if the model's files say so.

        Args:
            first: one text, or a list of N texts.
            second: one text, or a list of M texts.
            truncation: as for `SentenceEmbedding`.
            prompt_name: as for `SentenceEmbedding`.
            prompt: as for `SentenceEmbedding`.
            truncate_dim: as for `SentenceEmbedding`.

        Returns:
            A float for two texts; float32 `[M]` for a text and a list, `[N]` for a list and a text, `[N, M]` for two
            lists (all pairs).

        Raises:
            InputError: as for `SentenceEmbedding`.
        """
        settings = self.model.settings
        text = settings.prompt(prompt_name, prompt)
        vectors = [self._embed(as_texts(texts), text, truncation, truncate_dim) for texts in (first, second)]
        return similarity.without_single_axes(similarity.similarities(settings.similarity, *vectors), first, second)
