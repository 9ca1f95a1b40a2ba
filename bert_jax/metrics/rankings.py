"""Metrics of rankings: passages of known relevance, sorted by predicted scores."""

from collections.abc import Sequence

import numpy as np

from bert_jax.errors import InputError, did_you_mean

RANKING = ("mrr", "ndcg", "map")


def rankings(relevance: np.ndarray, scores: np.ndarray, names: Sequence[str] = RANKING) -> dict[str, float]:
    """Return the means over queries of metrics of rankings.

    A passage is relevant if its relevance is above 0. Queries without a relevant passage are left out; if no query
    is left, the metrics are 0. Of passages with equal scores, the least relevant ranks first.

    Args:
        relevance: `[n, K]`, -inf where a query has fewer than K passages.
        scores: `[n, K]`.
        names: the metrics: those of `RANKING`, or with a cutoff, as `ndcg@10`.
    """
    by_query = [
        _of_query(row[row > -np.inf], query_scores[row > -np.inf], names)
        for row, query_scores in zip(relevance, scores, strict=True)
    ]
    kept = [values for values in by_query if values is not None]
    return {name: float(np.mean([values[i] for values in kept])) if kept else 0.0 for i, name in enumerate(names)}


def check_ranking_metric(name: str, where: str = "metrics") -> None:
    """Raise InputError unless `name` is a metric of rankings: one of `RANKING`, or one with a cutoff, as `ndcg@10`."""
    kind, at, cutoff = name.partition("@")
    if kind not in RANKING or (at and not (cutoff.isdecimal() and int(cutoff) > 0)):
        known = [*RANKING, *(f"{each}@10" for each in RANKING)]
        raise InputError(f"{where}: {name!r} is not a metric of rankings{did_you_mean(name, known)}")


def _of_query(relevance: np.ndarray, scores: np.ndarray, names: Sequence[str]) -> list[float] | None:
    """Return metrics of a ranking; None without a relevant passage."""
    relevant = relevance[np.lexsort((relevance, -scores))]
    if not (relevant > 0).any():
        return None
    values = []
    for name in names:
        kind, _, cutoff = name.partition("@")
        values.append(_METRICS[kind](relevant, int(cutoff) if cutoff else len(relevant)))
    return values


def _reciprocal_rank(relevant: np.ndarray, cutoff: int) -> float:
    hits = np.flatnonzero(relevant[:cutoff] > 0)
    return float(1 / (hits[0] + 1)) if len(hits) else 0.0


def _ndcg(relevant: np.ndarray, cutoff: int) -> float:
    """Return the NDCG, with gains of 2 ** relevance - 1."""
    gains, ideal = (np.exp2(np.maximum(values[:cutoff], 0)) - 1 for values in (relevant, np.sort(relevant)[::-1]))
    discounts = 1 / np.log2(np.arange(2, len(gains) + 2))
    return float((gains * discounts).sum() / (ideal * discounts).sum())


def _average_precision(relevant: np.ndarray, cutoff: int) -> float:
    hits = np.flatnonzero(relevant[:cutoff] > 0)
    return float((np.arange(1, len(hits) + 1) / (hits + 1)).sum() / (relevant > 0).sum())


_METRICS = {"mrr": _reciprocal_rank, "ndcg": _ndcg, "map": _average_precision}
