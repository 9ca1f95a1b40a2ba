"""An index of sentence embeddings on disk, which a query is compared with in whole."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from bert_jax.inference.similarity import compare
from bert_jax.tasks.embedding.index_files import IndexFiles, IndexWriter, best_numbers

_BLOCK = 1 << 16  # texts that are compared with a query together


class DenseIndex:
    """Vectors of texts on disk, mapped into memory; search compares a query with all of them."""

    def __init__(self, files: IndexFiles, width: int, similarity: str):
        size = min(width, files.size or width)
        self._vectors, self._similarity = files.array("vectors", np.float32, (files.count, size)), similarity

    def nearest(self, vectors: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores of the best texts for queries `[N, D]` and their numbers, `[N, min(top_k, texts)]`."""
        shape = (len(vectors), min(top_k, len(self._vectors)))
        found = np.zeros(shape, np.float32), np.zeros(shape, np.int64)
        starts = range(0, len(self._vectors), _BLOCK)
        for row in range(len(vectors)):
            own = vectors[row : row + 1]
            parts = [compare(self._similarity, own, self._vectors[i : i + _BLOCK])[0] for i in starts]
            scores = np.concatenate(parts)
            numbers = best_numbers(scores, top_k)
            found[0][row], found[1][row] = scores[numbers], numbers
        return found


def write_dense_index(files: IndexWriter, chunks: Iterable[np.ndarray]) -> dict[str, Any]:
    """Write an index of vectors `[n, D]`, in the memory of one chunk."""
    count = 0
    for chunk in chunks:
        files.append("vectors", chunk.astype(np.float32, copy=False))
        count += len(chunk)
    return {"texts": count}
