"""An index of sentence embeddings on disk, for exact or, with a graph, approximate search."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bert_jax.tasks.embedding.dense.graph import Graph, GraphWriter
from bert_jax.tasks.embedding.dense.stored_vectors import (
    RESCORE_PRECISIONS,
    STORED_PRECISIONS,
    StoredVectors,
    VectorWriter,
    about_precision,
)
from bert_jax.tasks.embedding.index_files import IndexFiles, IndexWriter
from bert_jax.tasks.embedding.search_index import SearchIndex, best_texts, rows_of_texts


class DenseIndex(SearchIndex):
    """Vectors of texts on disk; search compares a query with all of them, or with those that a graph finds.

    A text may have several vectors, of its chunks; its score is that of its best one.
    """

    options = ("precision", "rescore_precision", "calibration", "approximate", "chunking")

    def __init__(self, files: IndexFiles, width: int, similarity: str):
        super().__init__(files, width, similarity)
        about, size = files.about, min(width, files.size or width)
        self._starts: np.ndarray | None = None  # the row of the first chunk of each text
        self._spans: np.ndarray | None = None  # the range of characters of each chunk
        count = files.count
        if "chunks" in about:
            counts = files.array("chunk_counts", np.int64, (files.count,))
            self._spans = files.array("chunk_spans", np.int64, (None, 2))
            count = len(self._spans)
            self._starts = files.starts(np.asarray(counts), count, "chunk_counts")
            if (np.asarray(counts) < 1).any():
                raise files.damaged("chunk_counts of at least 1")
        precision, rescore = about.get("precision", "float32"), about.get("rescore_precision")
        if precision not in STORED_PRECISIONS or rescore not in (None, *RESCORE_PRECISIONS):
            raise files.damaged(f"a precision of {', '.join(STORED_PRECISIONS)}")
        self._vectors = StoredVectors(files, "vectors", precision, count, size, similarity)
        self._exact = self._vectors if precision == "binary" else None
        if rescore is not None:
            self._exact = StoredVectors(files, "rescore_vectors", rescore, count, size, similarity)
        self._precisions = precision, rescore
        self._first_scores = self._vectors.bit_scores if precision == "binary" else self._vectors.scores
        self._graph = Graph(files, precision, self._vectors.ranges) if "graph_crc32c" in about else None

    @classmethod
    def write(
        cls, files: IndexWriter, chunks: Iterable[np.ndarray], similarity: str, *, precision: str = "float32",
        rescore_precision: str | None = None, calibration: Any = None, ranges: np.ndarray | None = None,
        approximate: bool = False, **options: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """Write an index of vectors `[n, D]`, with a graph of them if `approximate` is set.

        Args:
            files: the files of the index.
            chunks: the vectors.
            similarity: their similarity.
            precision: one of `STORED_PRECISIONS`.
            rescore_precision: precision of further vectors, by which candidates are scored again; None = none.
            calibration: vectors whose least and greatest values are the range of each dimension for int8; None = all.
            ranges: the ranges of int8 themselves, `[2, D]`.
            approximate: whether to write a graph.
            options: not used.

        Raises:
            InputError: the precision or a graph does not support the similarity, or usearch is not installed.
        """
        graph = GraphWriter(similarity, precision) if approximate else None
        writer, count = VectorWriter(files, similarity, precision, rescore_precision), 0
        for vectors in writer.calibrated(chunks, calibration, ranges):
            writer.append(vectors)
            count += len(vectors)
            if graph is not None:
                graph.add(vectors, writer.ranges if precision == "int8" else None)
        return {"texts": count} | writer.close() | (graph.save(files) if graph is not None else {})

    @property
    def write_options(self) -> dict[str, Any]:
        precision, rescore = self._precisions
        ranges = next((each.ranges for each in (self._vectors, self._exact) if each and each.ranges is not None), None)
        options = {"precision": precision, "rescore_precision": rescore, "ranges": ranges}
        return options | {"approximate": self._graph is not None}

    @property
    def rescores(self) -> bool:
        return self._exact is not None

    def rescore(self, query: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return self._of_texts(numbers, (self._exact or self._vectors).scores, query)

    def best_chunks(self, query: np.ndarray, numbers: Sequence[int]) -> list[tuple[int, int]] | None:
        if self._starts is None or self._spans is None:
            return None
        best = []
        for number in numbers:
            rows = np.arange(self._starts[number], self._starts[number + 1])
            start, end = self._spans[rows[(self._exact or self._vectors).scores(query, rows).argmax()]].tolist()
            best.append((start, end))
        return best

    def _of_texts(self, numbers: np.ndarray, scores_of: Any, query: np.ndarray) -> np.ndarray:
        """Return the score of each text of `numbers`: that of the best of its chunks."""
        if self._starts is None:
            scores: np.ndarray = scores_of(query, numbers)
            return scores
        counts = self._starts[numbers + 1] - self._starts[numbers]
        begins = np.cumsum(counts) - counts
        best: np.ndarray = np.maximum.reduceat(scores_of(query, rows_of_texts(self._starts, numbers)), begins)
        return best

    def _best(self, query: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        if self._graph is not None and (numbers := self._candidates(query, top_k)) is not None:
            scores, best = best_texts(self._of_texts(numbers, self._first_scores, query), top_k)
            return scores, numbers[best]
        scores = self._first_scores(query)
        if self._starts is not None:
            scores = np.maximum.reduceat(scores, self._starts[:-1])
        return best_texts(scores, top_k, self.live)

    def _candidates(self, query: np.ndarray, top_k: int) -> np.ndarray | None:
        """Return the numbers of at least `top_k` texts that the graph finds; None = it does not find as many."""
        count = 2 * top_k  # twice as many, as the graph rounds vectors
        while self._graph is not None and count < len(self._vectors):
            numbers = self._graph.nearest(query[0], count)
            if self._starts is not None:
                numbers = np.unique(np.searchsorted(self._starts, numbers, "right") - 1)
            if self.live is not None:
                numbers = numbers[self.live[numbers]]
            if len(numbers) >= top_k:
                return numbers
            count *= 4
        return None

    @classmethod
    def merge(cls, files: IndexWriter, parts: Sequence[Any]) -> dict[str, Any]:
        first: DenseIndex = parts[0]
        options = first.write_options
        precision, rescore, ranges = (options[name] for name in ("precision", "rescore_precision", "ranges"))
        graph = GraphWriter(first._similarity, precision) if options["approximate"] else None
        for part in parts:
            rows = part._live_rows()
            files.append_rows("vectors", part._vectors.array, rows)
            if rescore is not None:
                files.append_rows("rescore_vectors", part._exact.array, rows)
            if part._starts is not None:
                files.append_rows("chunk_counts", np.diff(part._starts), part.live_numbers)
                files.append_rows("chunk_spans", part._spans, rows)
            if graph is not None:
                for vectors in part._vectors.decoded(rows):
                    graph.add(vectors, ranges if precision == "int8" else None)
        if ranges is not None:
            files.append("ranges", ranges)
        return about_precision(precision, rescore) | (graph.save(files) if graph is not None else {})

    def _live_rows(self) -> np.ndarray:
        """Return the rows of the vectors of texts that are not deleted."""
        numbers = self.live_numbers
        return numbers if self._starts is None else rows_of_texts(self._starts, numbers)
