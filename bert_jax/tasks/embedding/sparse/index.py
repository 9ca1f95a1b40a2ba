"""An inverted index of sparse embeddings: for each token of the vocabulary, the texts with a weight of it."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from bert_jax.errors import InputError
from bert_jax.tasks.embedding.index_files import IndexFiles, IndexWriter, best_numbers

INVERTED_SIMILARITIES = ("dot", "cosine")


class SparseIndex:
    """An inverted index on disk, mapped into memory. Search is exact, and reads only the tokens of the query."""

    def __init__(self, files: IndexFiles, width: int):
        self._files, self._count = files, files.count
        self._texts = files.array("token_texts", np.int32, (None,))
        self._weights = files.array("token_weights", np.float32, (len(self._texts),))
        starts = files.array("token_starts", np.int64, (width + 1,))
        self._starts = files.starts(np.diff(starts), len(self._texts), "token_starts")

    def nearest(self, vectors: Any, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores of the best texts for queries and their numbers, `[N, min(top_k, texts)]`.

        Args:
            vectors: sparse vectors of N queries, a CSR array `[N, V]`, scaled to unit length for cosines.
            top_k: number of texts per query.
        """
        shape = (vectors.shape[0], min(top_k, self._count))
        found = np.zeros(shape, np.float32), np.zeros(shape, np.int64)
        for row in range(len(found[0])):
            own = slice(vectors.indptr[row], vectors.indptr[row + 1])
            scores = np.zeros(self._count, np.float32)
            for token, weight in zip(vectors.indices[own], vectors.data[own], strict=True):
                place = slice(self._starts[token], self._starts[token + 1])
                texts = self._texts[place]
                if len(texts) and not 0 <= texts.min() <= texts.max() < self._count:
                    raise self._files.damaged(f"token_texts of numbers below {self._count:,}")
                scores[texts] += weight * self._weights[place]  # a text has a token once
            numbers = best_numbers(scores, top_k)
            found[0][row], found[1][row] = scores[numbers], numbers
        return found


def write_sparse_index(files: IndexWriter, chunks: Iterable[Any], similarity: str) -> dict[str, Any]:
    """Write an inverted index of sparse vectors, CSR arrays `[n, V]`, in the memory of one chunk.

    Raises:
        InputError: the similarity is no dot product or cosine.
    """
    if similarity not in INVERTED_SIMILARITIES:
        expected = " or ".join(INVERTED_SIMILARITIES)
        raise InputError(f"index: expected a model of similarity {expected}, found {similarity}")
    counts, lengths = np.zeros(0, np.int64), []
    for chunk in chunks:
        if not len(counts):
            counts = np.zeros(chunk.shape[1], np.int64)
        counts += np.bincount(chunk.indices, minlength=len(counts))
        files.append("given_tokens", chunk.indices.astype(np.int32))
        files.append("given_weights", chunk.data.astype(np.float32))
        lengths.append(np.diff(chunk.indptr))
    starts = np.concatenate([[0], np.cumsum(counts)])
    files.append("token_starts", starts)
    texts = files.create("token_texts", np.int32, (int(starts[-1]),))
    weights = files.create("token_weights", np.float32, (int(starts[-1]),))
    _invert(files.read("given_tokens"), files.read("given_weights"), lengths, starts[:-1].copy(), texts, weights)
    for name in ("given_tokens", "given_weights"):
        files.drop(name)
    return {"texts": int(sum(map(len, lengths))), "weights": int(starts[-1])}


def _invert(
    tokens: np.ndarray,
    given: np.ndarray,
    lengths: list[np.ndarray],
    ends: np.ndarray,
    texts: np.ndarray,
    weights: np.ndarray,
) -> None:
    """Sort weights by token, chunk by chunk; `ends` has where the next weight of each token goes."""
    start = first = 0
    for rows in lengths:
        stop = start + int(rows.sum())
        own = tokens[start:stop]
        order = np.argsort(own, kind="stable")
        ordered = own[order]
        found, begins, counts = np.unique(ordered, return_index=True, return_counts=True)
        places = np.repeat(ends[found] - begins, counts) + np.arange(len(ordered))
        texts[places] = np.repeat(np.arange(first, first + len(rows)), rows)[order]
        weights[places] = given[start:stop][order]
        ends[found] += counts
        start, first = stop, first + len(rows)
