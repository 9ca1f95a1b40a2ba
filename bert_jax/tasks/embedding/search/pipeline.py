"""Search: find the texts of a corpus that are most similar to a query, by embeddings of any kind."""

from collections.abc import Sequence

import numpy as np

from bert_jax.conversion.text_settings import CORPUS_PROMPTS, QUERY_PROMPTS
from bert_jax.inference.base import as_texts
from bert_jax.inference.similarity import pair_similarities
from bert_jax.tasks.embedding.dense.index import DenseIndex
from bert_jax.tasks.embedding.embedder import SentenceEmbedding
from bert_jax.tasks.embedding.multi_vector.embedder import MultiVectorEmbedding
from bert_jax.tasks.embedding.multi_vector.index import MultiVectorIndex
from bert_jax.tasks.embedding.search.corpus_search import CorpusSearch
from bert_jax.tasks.embedding.sparse.embedder import SparseEmbedding
from bert_jax.tasks.embedding.sparse.index import SparseIndex


class Search(CorpusSearch, SentenceEmbedding):
    """Exact semantic search: find the texts of a corpus that are most similar to a query.

    The similarity is the cosine, or the one that the model's files name.
    """

    index_class = DenseIndex

    def pair_scores(
        self,
        queries: Sequence[str],
        texts: Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        corpus_prompt_name: str | None = None,
        corpus_prompt: str | None = None,
        truncate_dim: int | None = None,
    ) -> np.ndarray:
        """Return the score of the i-th text for the i-th query, float64 `[N]`.

        Args:
            queries: N texts.
            texts: N texts of a corpus.
            prompt_name, prompt, corpus_prompt_name, corpus_prompt, truncate_dim: as for a call.

        Raises:
            InputError: as a call.
        """
        size = self._size(truncate_dim=truncate_dim)
        first = self._vectors(as_texts(queries), self._prompt("query", prompt_name, prompt), size, "query")
        before = self._prompt("document", corpus_prompt_name, corpus_prompt)
        second = self._vectors(as_texts(texts), before, size, "document")
        return pair_similarities(self.model.settings.similarity, first, second)

    def _prompt(self, task: str, name: str | None, text: str | None) -> str:
        return self.model.settings.prompt_for(QUERY_PROMPTS if task == "query" else CORPUS_PROMPTS, name, text)


class SparseSearch(CorpusSearch, SparseEmbedding):
    """Exact search by sparse embeddings; the similarity is the dot product, or the one that the model's files name."""

    index_class = SparseIndex

    @property
    def _width(self) -> int:
        return self.model.config.vocab_size


class MultiVectorSearch(CorpusSearch, MultiVectorEmbedding):
    """Exact search by late interaction: every token of a query is compared with every token of every text."""

    index_class = MultiVectorIndex
