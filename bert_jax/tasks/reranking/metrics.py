"""Metrics of rankings: passages of known relevance, sorted by predicted scores."""

import numpy as np

RANKING = ("mrr", "ndcg", "map")


def rankings(relevance: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """Return the means over queries of the metrics `RANKING`, without a cutoff.

    A passage is relevant if its relevance is above 0. Queries without a relevant passage are left out; if no query
    is left, the metrics are 0. Of passages with equal scores, the least relevant ranks first.

    Args:
        relevance: `[n, K]`, -inf where a query has fewer than K passages.
        scores: `[n, K]`.
    """
    by_query = [
        _of_query(row[row > -np.inf], query_scores[row > -np.inf])
        for row, query_scores in zip(relevance, scores, strict=True)
    ]
    kept = [values for values in by_query if values is not None]
    return {name: float(np.mean([values[i] for values in kept])) if kept else 0.0 for i, name in enumerate(RANKING)}


def average_precision(relevant: np.ndarray, scores: np.ndarray) -> float:
    """Return the average precision of scores [n], where `relevant` is bool [n]; 0 without a relevant row.

    Rows with equal scores share a rank, as in scikit-learn.
    """
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.diff(scores[order]) != 0, True)  # True for the last of rows with equal scores
    hits = np.cumsum(relevant[order])[last]
    if not len(hits) or not hits[-1]:
        return 0.0
    precision, recall = hits / (np.flatnonzero(last) + 1), hits / hits[-1]
    return float((np.diff(recall, prepend=0) * precision).sum())


def _of_query(relevance: np.ndarray, scores: np.ndarray) -> tuple[float, ...] | None:
    """Return the reciprocal rank, NDCG with exponential gains, and average precision of a ranking."""
    relevant = relevance[np.lexsort((relevance, -scores))]
    hits = np.flatnonzero(relevant > 0)
    if not len(hits):
        return None
    discounts = 1 / np.log2(np.arange(2, len(relevant) + 2))
    gains, ideal = (np.exp2(np.maximum(values, 0)) - 1 for values in (relevant, np.sort(relevant)[::-1]))
    precisions = np.arange(1, len(hits) + 1) / (hits + 1)
    return 1 / (hits[0] + 1), float((gains * discounts).sum() / (ideal * discounts).sum()), float(precisions.mean())
