"""Approximate nearest-neighbour search in a graph of vectors (HNSW; Malkov and Yashunin 2018, arXiv:1603.09320), with
the package usearch."""

from typing import Any

import numpy as np

from bert_jax.conversion.formats.crc32c import masked_crc32c
from bert_jax.errors import InputError
from bert_jax.extras import import_extra
from bert_jax.tasks.embedding.index_files import IndexFiles, IndexWriter

# Similarity -> the metric of usearch that orders vectors in the same way.
_METRICS = {"cosine": "ip", "dot": "ip", "euclidean": "l2sq"}
_NEIGHBOURS = 16  # neighbours per vector
_CANDIDATES = 128  # candidates that are kept while a vector is added or searched for


class GraphWriter:
    """A graph under construction, in memory; it holds vectors in float16.

    Args:
        similarity: the similarity of the vectors; for the cosine, all vectors must have length 1.

    Raises:
        InputError: a graph does not support the similarity, or usearch is not installed.
    """

    def __init__(self, similarity: str):
        if similarity not in _METRICS:
            raise InputError(f"approximate: expected a model of similarity {', '.join(_METRICS)}, found {similarity}")
        self._index, self._metric = import_extra("usearch.index", "usearch").Index, _METRICS[similarity]
        self._graph: Any = None

    def add(self, vectors: np.ndarray) -> None:
        """Add vectors `[n, D]`, which are numbered from 0 in the order of addition."""
        if self._graph is None:
            options = {"connectivity": _NEIGHBOURS, "expansion_add": _CANDIDATES}
            self._graph = self._index(ndim=vectors.shape[1], metric=self._metric, dtype="f16", **options)
        start = len(self._graph)
        self._graph.add(np.arange(start, start + len(vectors), dtype=np.uint64), vectors)

    def save(self, files: IndexWriter) -> dict[str, int]:
        """Write the graph as the array `graph` of bytes; return its checksum, for `index.json`."""
        content = np.frombuffer(self._graph.save(), np.uint8)
        files.append("graph", content)
        return {"graph_crc32c": masked_crc32c(content)}


class Graph:
    """The graph of an index, mapped into memory.

    Args:
        files: the files of the index.

    Raises:
        InputError: the graph is damaged, or usearch is not installed.
    """

    def __init__(self, files: IndexFiles):
        index = import_extra("usearch.index", "usearch").Index
        self._bytes = files.array("graph", np.uint8, (None,))  # kept here, as usearch keeps no reference to it
        if masked_crc32c(self._bytes) != files.about.get("graph_crc32c"):  # usearch would follow damaged links
            raise files.damaged("a graph with the checksum of index.json")
        self._graph = index.restore(self._bytes, view=True)
        self._graph.expansion_search = _CANDIDATES

    def nearest(self, vector: np.ndarray, count: int) -> np.ndarray:
        """Return the numbers of up to `count` nearest vectors, int64, ascending."""
        return np.sort(self._graph.search(vector, count).keys.astype(np.int64))
