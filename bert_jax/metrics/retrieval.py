"""Ranks of documents among all documents of a batch, and metrics of ranks."""

from collections.abc import Callable

import numpy as np

_ROWS = 1024  # queries that are compared with all documents at once


def retrieval_ranks(queries: np.ndarray, documents: np.ndarray, similarity: str = "cosine") -> np.ndarray:
    """Return the rank, from 1, of each query's own document among all documents; ties get their mean rank.

    Args:
        queries: `[n, D]`.
        documents: `[n, K, D]`; the first document of a row is the query's own, the others are negatives.
        similarity: as for `bert_jax.inference.similarity.similarities`.

    Returns:
        float64 `[n]`.
    """
    among = documents.swapaxes(0, 1).reshape(-1, documents.shape[-1])
    from bert_jax.inference.similarity import comparable, compare

    queries, among = (comparable(similarity, side.astype(np.float64)) for side in (queries, among))
    return ranks_among(lambda rows: compare(similarity, queries[rows], among), np.arange(len(queries)))


def ranks_among(compare: Callable[[slice], np.ndarray], relevant: np.ndarray, *, relative: bool = False) -> np.ndarray:
    """Return the rank, from 1, of each query's own document among all M documents; ties get their mean rank.

    Args:
        compare: function from a slice of the queries to their scores with all documents, `[rows, M]`.
        relevant: int `[n]`, the number of each query's own document.
        relative: whether the tolerance for ties, 1e-6, is multiplied by scores above 1.

    Returns:
        float64 `[n]`.
    """
    ranks = np.empty(len(relevant))
    for start in range(0, len(relevant), _ROWS):
        rows = slice(start, start + _ROWS)
        scores = compare(rows)
        of_relevant = scores[np.arange(len(scores)), relevant[rows]][:, None]
        # With this tolerance, equal texts tie even if they were computed in different batches.
        tolerance = 1e-6 * (np.maximum(np.abs(of_relevant), 1) if relative else 1)
        above, equal = scores > of_relevant + tolerance, np.abs(scores - of_relevant) <= tolerance
        ranks[rows] = 1 + above.sum(1) + (equal.sum(1) - 1) / 2
    return ranks


def retrieval_accuracy(ranks: np.ndarray) -> float:
    """Return the share of queries whose own document ranks first; `ranks` [n] begin at 1."""
    return float(np.mean(ranks == 1))


def mrr(ranks: np.ndarray) -> float:
    """Return the mean reciprocal rank; `ranks` [n] begin at 1."""
    return float(np.mean(1 / ranks))


def triplet_accuracy(matches: np.ndarray, others: np.ndarray) -> float:
    """Return the share of other texts that are less similar than the match; `matches` [n], `others` [n, K]."""
    return float(np.mean(matches[:, None] > others))
