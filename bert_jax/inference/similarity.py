"""Similarities of dense, sparse and token vectors, for all pipelines, CLI verbs and metrics."""

from collections.abc import Sequence
from typing import Any

import numpy as np

EMPTY_SCORE = -1e9  # score of a document without tokens, as in sentence-transformers
_TOKENS_COMPARED = 1 << 16  # number of document tokens multiplied with a query at once


def normalize_vectors(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors `[..., D]` to unit length; a zero vector stays zero."""
    unit: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return unit


def similarities(name: str, first: Any, second: Any) -> np.ndarray:
    """Return the similarities `[N, M]` of vectors `[N, D]` and `[M, D]`, dense or both sparse; higher is more similar.

    Args:
        name: one of `bert_jax.conversion.text_settings.SIMILARITIES`; distances are negated.
        first: the vectors `[N, D]`; or a list, as for `max_similarities`.
        second: the vectors `[M, D]`, or a list.
    """
    return compare(name, comparable(name, first), comparable(name, second))


def without_single_axes(scores: np.ndarray, first: Any, second: Any) -> Any:
    """Drop from scores `[N, M]` the axis of each argument that is one text, not a list; two texts give a float."""
    if isinstance(first, str):
        return float(scores[0, 0]) if isinstance(second, str) else scores[0]
    return scores[:, 0] if isinstance(second, str) else scores


def _is_sparse(vectors: Any) -> bool:
    return hasattr(vectors, "tocsr")  # only SciPy's sparse arrays have it; SciPy is slow to import


def comparable(name: str, vectors: Any) -> Any:
    """Prepare vectors `[..., D]` for repeated calls of `compare`: for cosines, scale them to length 1."""
    if name == "cosine" and _is_sparse(vectors):
        lengths = np.sqrt(vectors.multiply(vectors).sum(axis=1))
        return vectors.multiply(1 / np.maximum(lengths, 1e-12)[:, None]).tocsr()
    return normalize_vectors(vectors) if name == "cosine" and not isinstance(vectors, list) else vectors


def compare(name: str, first: Any, second: Any) -> np.ndarray:
    """Return the similarities `[N, M]` of `comparable` vectors; see `similarities`."""
    scores: np.ndarray
    if isinstance(first, list):
        return max_similarities(name, first, second)
    if _is_sparse(first):
        if name in ("cosine", "dot"):
            scores = (first @ second.T).toarray()
            return scores
        first, second = first.toarray(), second.toarray()
    match name:
        case "cosine" | "dot":
            scores = first @ second.T
        case "euclidean":  # in float64, as the distance of similar vectors is a difference of large numbers
            a, b = first.astype(np.float64), second.astype(np.float64)
            squares = np.square(a).sum(-1)[:, None] + np.square(b).sum(-1) - 2 * a @ b.T
            scores = -np.sqrt(np.maximum(squares, 0)).astype(np.float32)
        case _:
            rows = [-np.abs(second - vector).sum(-1) for vector in first]
            scores = np.stack(rows) if rows else np.zeros((0, len(second)), np.float32)
    return scores


def pair_similarities(name: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the similarities `[N]`, float64, of the i-th vectors of `first` and `second`, `[N, D]` each."""
    first, second = first.astype(np.float64), second.astype(np.float64)
    scores: np.ndarray
    match name:
        case "cosine":
            scores = (normalize_vectors(first) * normalize_vectors(second)).sum(-1)
        case "dot":
            scores = (first * second).sum(-1)
        case "euclidean":
            scores = -np.linalg.norm(first - second, axis=-1)
        case _:
            scores = -np.abs(first - second).sum(-1)
    return scores


def max_similarities(name: str, queries: Sequence[np.ndarray], documents: Sequence[np.ndarray]) -> np.ndarray:
    """Return MaxSim, float32 `[N, M]`: the sum over a query's tokens of the largest product with a document's token.

    Args:
        name: one of `MULTI_VECTOR_SIMILARITIES`; `meanmaxsim` divides by the number of tokens of the query.
        queries: N arrays `[T, D]`.
        documents: M arrays `[T, D]`; a document without tokens has a score of -1e9.
    """
    scores = np.full((len(queries), len(documents)), EMPTY_SCORE, np.float32)
    lengths = np.array([len(document) for document in documents], int)
    filled = np.flatnonzero(lengths)
    parts = np.cumsum(lengths[filled]) // _TOKENS_COMPARED
    for part in np.unique(parts):
        numbers = filled[parts == part]
        tokens = np.concatenate([documents[i] for i in numbers])
        starts = np.cumsum([0, *lengths[numbers][:-1]])
        for row, query in enumerate(queries):
            best = np.maximum.reduceat(query @ tokens.T, starts, axis=1)
            scores[row, numbers] = best.sum(axis=0, dtype=np.float32)
    if name == "meanmaxsim":
        scores /= np.maximum([len(query) for query in queries], 1)[:, None].astype(np.float32)
    return scores
