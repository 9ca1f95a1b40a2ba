"""Approximate nearest-neighbour search in a graph of vectors (HNSW; Malkov and Yashunin 2018, arXiv:1603.09320), with
the package usearch."""

from typing import Any

import numpy as np

from bert_jax.conversion.formats.crc32c import masked_crc32c
from bert_jax.errors import InputError
from bert_jax.extras import import_extra
from bert_jax.tasks.embedding.dense.quantization import quantize_vectors
from bert_jax.tasks.embedding.index_files import IndexFiles, IndexWriter

# Similarity -> the metric of usearch that orders vectors in the same way.
_METRICS = {"cosine": "ip", "dot": "ip", "euclidean": "l2sq"}
_NEIGHBOURS = 16  # neighbours per vector
_CANDIDATES = 128  # candidates that are kept while a vector is added or searched for
# Precision of the index's vectors -> dtype of usearch for those of the graph; others are in float16.
_DTYPES = {"int8": "i8", "binary": "b1"}


class GraphWriter:
    """A graph under construction, in memory; it holds vectors in float16, in bytes or in bits.

    Args:
        similarity: the similarity of the vectors; for the cosine, all vectors must have length 1.
        precision: the precision of the index's vectors: `int8` for bytes, `binary` for bits.

    Raises:
        InputError: a graph does not support the similarity, or usearch is not installed.
    """

    def __init__(self, similarity: str, precision: str = "float32"):
        if similarity not in _METRICS:
            raise InputError(f"approximate: expected a model of similarity {', '.join(_METRICS)}, found {similarity}")
        self._index = import_extra("usearch.index", "usearch").Index
        self._similarity, self._precision = similarity, precision
        self._graph: Any = None

    def add(self, vectors: np.ndarray, ranges: np.ndarray | None = None) -> None:
        """Add vectors `[n, D]`, which are numbered from 0 in the order of addition.

        Args:
            vectors: the vectors, float32.
            ranges: the ranges of int8, the same in every call; None for another precision.
        """
        vectors, dimensions = _of_graph(vectors, self._precision, _scale_of(ranges))
        if self._graph is None:
            metric = "hamming" if self._precision == "binary" else _METRICS[self._similarity]
            options = {"connectivity": _NEIGHBOURS, "expansion_add": _CANDIDATES, "metric": metric}
            self._graph = self._index(ndim=dimensions, dtype=_DTYPES.get(self._precision, "f16"), **options)
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
        precision: the precision of the index's vectors.
        ranges: the ranges of int8, or None.

    Raises:
        InputError: the graph is damaged, or usearch is not installed.
    """

    def __init__(self, files: IndexFiles, precision: str = "float32", ranges: np.ndarray | None = None):
        self._precision, self._scale = precision, _scale_of(ranges)
        index = import_extra("usearch.index", "usearch").Index
        self._bytes = files.array("graph", np.uint8, (None,))  # kept here, as usearch keeps no reference to it
        if masked_crc32c(self._bytes) != files.about.get("graph_crc32c"):  # usearch would follow damaged links
            raise files.damaged("a graph with the checksum of index.json")
        self._graph = index.restore(self._bytes, view=True)
        self._graph.expansion_search = _CANDIDATES

    def nearest(self, vector: np.ndarray, count: int) -> np.ndarray:
        """Return the numbers of up to `count` nearest vectors, int64, ascending."""
        (query,), _ = _of_graph(vector[None], self._precision, self._scale)
        return np.sort(self._graph.search(query, count).keys.astype(np.int64))


def _scale_of(ranges: np.ndarray | None) -> float:
    """Return the greatest magnitude in ranges."""
    return 1.0 if ranges is None else float(np.abs(ranges).max()) or 1.0


def _of_graph(vectors: np.ndarray, precision: str, scale: float) -> tuple[np.ndarray, int]:
    """Return vectors `[n, D]` as a graph holds them, and its number of dimensions.

    Bytes here are multiples of one step for all dimensions, so that the products of bytes are in the order of those of
    the vectors; a range of its own for each dimension, as the index has, would add another constant to each.
    """
    if precision == "binary":
        bits = quantize_vectors(vectors, "ubinary")
        return bits, bits.shape[1] * 8
    if precision == "int8":
        vectors = np.rint(np.clip(vectors / scale, -1, 1) * 127).astype(np.int8)
    return vectors, vectors.shape[1]
