"""`SearchIndex`, the base class of the indexes of all kinds of embeddings."""

import abc
from typing import Any, ClassVar

import numpy as np

from bert_jax.tasks.embedding.index_files import IndexFiles, IndexWriter


class SearchIndex(abc.ABC):
    """The vectors of a corpus on disk, mapped into memory, and search for the best texts for queries.

    Attributes:
        options: the names of further options of `write`.
    """

    options: ClassVar[tuple[str, ...]] = ()

    def __init__(self, files: IndexFiles, width: int, similarity: str):
        """Open an index.

        Args:
            files: its files.
            width: number of dimensions of a vector before truncation.
            similarity: the similarity by which vectors are compared.
        """
        self._files, self._similarity = files, similarity

    @classmethod
    @abc.abstractmethod
    def write(cls, files: IndexWriter, chunks: Any, similarity: str, **options: Any) -> dict[str, Any]:
        """Write an index of chunks of vectors, one in memory at a time; return the entries for `index.json`."""

    def nearest(self, queries: Any, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores and the numbers of the best texts for N queries, both `[N, min(top_k, texts)]`.

        Args:
            queries: their vectors, comparable by the similarity: an array `[N, D]`, a CSR array `[N, V]`, or a list of
                arrays `[T, D]`.
            top_k: number of texts per query.
        """
        count = len(queries) if isinstance(queries, list) else queries.shape[0]
        shape = (count, min(top_k, self._files.count))
        scores, numbers = np.zeros(shape, np.float32), np.zeros(shape, np.int64)
        for row in range(count):
            scores[row], numbers[row] = self._best(queries[row : row + 1], shape[1])
        return scores, numbers

    @abc.abstractmethod
    def _best(self, query: Any, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores and the numbers of the best texts for one query, a row of `queries`."""


def best_texts(scores: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the `top_k` greatest of scores `[N]` and their numbers, in descending order; ties are in text order."""
    numbers = np.arange(len(scores))
    if top_k < len(scores):
        least = np.partition(scores, len(scores) - top_k)[len(scores) - top_k]
        numbers = np.flatnonzero(scores >= least)
    numbers = numbers[np.argsort(-scores[numbers], kind="stable")][:top_k]
    return scores[numbers], numbers
