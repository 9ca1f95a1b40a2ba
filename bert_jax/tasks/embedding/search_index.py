"""`SearchIndex`, the base class of the indexes of all kinds of embeddings."""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from bert_jax.tasks.embedding.index_files import IndexFiles, IndexWriter


class SearchIndex(abc.ABC):
    """The vectors of a corpus on disk, mapped into memory, and search for the best texts for queries.

    Attributes:
        options: the names of further options of `write`.
        live: bool `[texts]`, False for a deleted text; None = no text is deleted.
        live_count: number of texts that are not deleted.
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
        self.live: np.ndarray | None = None
        self.live_count = files.count

    def hide_deleted(self, live: np.ndarray) -> None:
        """Leave deleted texts out of answers; `live` is bool `[texts]`, False for a deleted text."""
        self.live = None if live.all() else live
        self.live_count = int(live.sum())

    @classmethod
    @abc.abstractmethod
    def write(cls, files: IndexWriter, chunks: Any, similarity: str, **options: Any) -> dict[str, Any]:
        """Write an index of chunks of vectors, one in memory at a time; return the entries for `index.json`."""

    @classmethod
    @abc.abstractmethod
    def merge(cls, files: IndexWriter, parts: Sequence[Any]) -> dict[str, Any]:
        """Write an index of the texts of others of this class that are not deleted, in their order.

        Args:
            files: the files of the new index.
            parts: the other indexes, written with the same options.

        Returns:
            The entries for `index.json`, without the number of texts.
        """

    @property
    def write_options(self) -> dict[str, Any]:
        """Return the options of `write` with which an index of further texts fits this one."""
        return {}

    @property
    def live_numbers(self) -> np.ndarray:
        """Return the numbers of the texts that are not deleted, in ascending order."""
        return np.arange(self._files.count) if self.live is None else np.flatnonzero(self.live)

    @property
    def rescores(self) -> bool:
        """Return whether the best texts are candidates, to be scored again by `rescore`."""
        return False

    def rescore(self, query: Any, numbers: np.ndarray) -> np.ndarray:
        """Return the scores of texts for one query by their vectors in a higher precision, float32."""
        raise NotImplementedError

    def best_chunks(self, query: Any, numbers: Sequence[int]) -> list[tuple[int, int]] | None:
        """Return for each text the range of characters of its best chunk for one query; None = no text has chunks."""
        return None

    def nearest(self, queries: Any, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores and the numbers of the best texts for N queries, both `[N, min(top_k, texts)]`.

        Args:
            queries: their vectors, comparable by the similarity: an array `[N, D]`, a CSR array `[N, V]`, or a list of
                arrays `[T, D]`.
            top_k: number of texts per query.
        """
        count = len(queries) if isinstance(queries, list) else queries.shape[0]
        shape = (count, min(top_k, self.live_count))
        scores, numbers = np.zeros(shape, np.float32), np.zeros(shape, np.int64)
        for row in range(count):
            scores[row], numbers[row] = self._best(queries[row : row + 1], shape[1])
        return scores, numbers

    @abc.abstractmethod
    def _best(self, query: Any, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores and the numbers of the best texts for one query, a row of `queries`."""


def best_texts(scores: np.ndarray, top_k: int, live: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the `top_k` greatest of scores `[N]` and their numbers, in descending order; ties are in text order.

    Only texts of `live`, bool `[N]`, are returned; None = all.
    """
    if live is not None:
        kept = np.flatnonzero(live)
        scores, best = best_texts(scores[kept], top_k)
        return scores, kept[best]
    numbers = np.arange(len(scores))
    if top_k < len(scores):
        least = np.partition(scores, len(scores) - top_k)[len(scores) - top_k]
        numbers = np.flatnonzero(scores >= least)
    numbers = numbers[np.argsort(-scores[numbers], kind="stable")][:top_k]
    return scores[numbers], numbers


def rows_of_texts(starts: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return the numbers of the rows of texts that have several rows each, in the order of the texts.

    Args:
        starts: the first row of each text, then the number of rows, int64 `[N + 1]`.
        numbers: the numbers of the texts.
    """
    counts = starts[numbers + 1] - starts[numbers]
    begins = np.cumsum(counts) - counts
    rows: np.ndarray = np.arange(counts.sum()) + np.repeat(starts[numbers] - begins, counts)
    return rows
