"""An index of sentence embeddings on disk, for exact or, with a graph, approximate search."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from bert_jax.inference.similarity import compare
from bert_jax.tasks.embedding.dense.graph import Graph, GraphWriter
from bert_jax.tasks.embedding.index_files import IndexFiles, IndexWriter
from bert_jax.tasks.embedding.search_index import SearchIndex, best_texts

_BLOCK = 1 << 16  # texts that are compared with a query at a time


class DenseIndex(SearchIndex):
    """Vectors of texts on disk; search compares a query with all of them, or with those that a graph finds."""

    options = ("approximate",)

    def __init__(self, files: IndexFiles, width: int, similarity: str):
        super().__init__(files, width, similarity)
        self._vectors = files.array("vectors", np.float32, (files.count, min(width, files.size or width)))
        self._graph = Graph(files) if "graph_crc32c" in files.about else None

    @classmethod
    def write(
        cls, files: IndexWriter, chunks: Iterable[np.ndarray], similarity: str, *, approximate: bool = False,
        **options: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """Write an index of vectors `[n, D]`, with a graph of them if `approximate` is set.

        Raises:
            InputError: a graph does not support the similarity, or usearch is not installed.
        """
        graph, count = GraphWriter(similarity) if approximate else None, 0
        for chunk in chunks:
            vectors = chunk.astype(np.float32, copy=False)
            files.append("vectors", vectors)
            count += len(vectors)
            if graph is not None:
                graph.add(vectors)
        return {"texts": count} | (graph.save(files) if graph is not None else {})

    def _best(self, query: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        if self._graph is not None and 2 * top_k < len(self._vectors):
            numbers = self._graph.nearest(query[0], 2 * top_k)  # twice as many, as the graph rounds vectors
            if len(numbers) >= top_k:
                scores, best = best_texts(compare(self._similarity, query, self._vectors[numbers])[0], top_k)
                return scores, numbers[best]
        starts = range(0, len(self._vectors), _BLOCK)
        parts = [compare(self._similarity, query, self._vectors[start : start + _BLOCK])[0] for start in starts]
        return best_texts(np.concatenate(parts), top_k)
