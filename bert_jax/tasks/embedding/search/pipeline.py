"""Search: find the texts of a corpus that are most similar to a query, by embeddings of any kind."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.conversion.text_settings import CORPUS_PROMPTS, QUERY_PROMPTS
from bert_jax.errors import InputError
from bert_jax.inference.base import as_texts
from bert_jax.inference.similarity import comparable, compare, max_similarities, pair_similarities
from bert_jax.tasks.embedding.dense.index import DenseIndex, write_dense_index
from bert_jax.tasks.embedding.dense.pipeline import SentenceEmbedding
from bert_jax.tasks.embedding.index_files import IndexFiles, IndexWriter
from bert_jax.tasks.embedding.multi_vector.index import MultiVectorIndex, write_multi_vector_index
from bert_jax.tasks.embedding.multi_vector.pipeline import MultiVectorEmbedding
from bert_jax.tasks.embedding.search.corpus_search import CorpusSearch
from bert_jax.tasks.embedding.sparse.index import SparseIndex, write_sparse_index
from bert_jax.tasks.embedding.sparse.pipeline import SparseEmbedding


class Search(CorpusSearch, SentenceEmbedding):  # type: ignore[misc]
    """Exact semantic search: find the texts of a corpus that are most similar to a query.

    The similarity is the cosine, or the one that the model's files name.
    """

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
        size = self._vector_size(truncate_dim, None)
        first = self._vectors(as_texts(queries), self._prompt("query", prompt_name, prompt), size, "query")
        behind = self._prompt("document", corpus_prompt_name, corpus_prompt)
        second = self._vectors(as_texts(texts), behind, size, "document")
        return pair_similarities(self.model.settings.similarity, first, second)

    def _vectors(self, texts: list[str], prompt: str, size: int | None, task: str) -> Any:
        return comparable(self.model.settings.similarity, self._embed(texts, prompt, truncate_dim=size))

    def _compare(self, queries: Any, documents: Any) -> np.ndarray:
        return compare(self.model.settings.similarity, queries, documents)

    def _write(self, files: IndexWriter, chunks: Iterator[Any], precision: str, centroids: int | None) -> Any:
        _check_plain(precision, centroids)
        return write_dense_index(files, chunks)

    def _open(self, files: IndexFiles) -> DenseIndex:
        return DenseIndex(files, self._width, self.model.settings.similarity)

    def _vector_size(self, truncate_dim: int | None, max_active_dims: int | None) -> int | None:
        _refuse("max_active_dims", max_active_dims, "sparse embeddings")
        return self.model.settings.dimension(truncate_dim)

    def _prompt(self, task: str, name: str | None, text: str | None) -> str:
        return self.model.settings.prompt_for(QUERY_PROMPTS if task == "query" else CORPUS_PROMPTS, name, text)


class SparseSearch(CorpusSearch, SparseEmbedding):  # type: ignore[misc]
    """Exact search by sparse embeddings; the similarity is the dot product, or the one that the model's files name."""

    def _vectors(self, texts: list[str], prompt: str, size: int | None, task: str) -> Any:
        vectors = self._sparse(texts, prompt, max_active_dims=size)
        return comparable(self.model.settings.similarity, vectors)

    def _compare(self, queries: Any, documents: Any) -> np.ndarray:
        return compare(self.model.settings.similarity, queries, documents)

    def _write(self, files: IndexWriter, chunks: Iterator[Any], precision: str, centroids: int | None) -> Any:
        _check_plain(precision, centroids)
        return write_sparse_index(files, chunks, self.model.settings.similarity)

    def _open(self, files: IndexFiles) -> SparseIndex:
        return SparseIndex(files, self._width)

    @property
    def _width(self) -> int:
        return self.model.config.vocab_size

    def _vector_size(self, truncate_dim: int | None, max_active_dims: int | None) -> int | None:
        _refuse("truncate_dim", truncate_dim, "sentence embeddings")
        return max_active_dims


class MultiVectorSearch(CorpusSearch, MultiVectorEmbedding):  # type: ignore[misc]
    """Exact search by late interaction: every token of a query is compared with every token of every text."""

    def _vectors(self, texts: list[str], prompt: str, size: int | None, task: str) -> Any:
        return self._token_vectors(texts, prompt, task)

    def _compare(self, queries: Any, documents: Any) -> np.ndarray:
        return max_similarities(self.model.settings.similarity, queries, documents)

    def _write(self, files: IndexWriter, chunks: Iterator[Any], precision: str, centroids: int | None) -> Any:
        return write_multi_vector_index(files, chunks, precision, centroids)

    def _open(self, files: IndexFiles) -> MultiVectorIndex:
        return MultiVectorIndex(files, self._width, self.model.settings.similarity)

    def _vector_size(self, truncate_dim: int | None, max_active_dims: int | None) -> int | None:
        _refuse("truncate_dim", truncate_dim, "sentence embeddings")
        _refuse("max_active_dims", max_active_dims, "sparse embeddings")
        return None


def _check_plain(precision: str, centroids: int | None) -> None:
    _refuse("precision", None if precision == "float32" else precision, "a vector for each token")
    _refuse("centroids", centroids, "a vector for each token")


def _refuse(option: str, value: Any, kind: str) -> None:
    if value is not None:
        raise InputError(f"{option}: expected a model of {kind}, found another one")
