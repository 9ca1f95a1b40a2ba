"""Metrics of rankings as trec_eval computes them, by the package `pytrec-eval-terrier`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.errors import InputError
from bert_jax.extras import import_extra

Ranking = dict[str, float]  # id of a document -> its score
Judgements = Mapping[str, Mapping[str, int]]  # id of a query -> id of a document -> its relevance
SEARCH_METRICS = ("ndcg@10", "mrr@10", "map@100", "recall@100")
# Metric -> measure of trec_eval, without its cutoff.
_MEASURES = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "precision": "P", "mrr": "recip_rank"}


def check_search_metrics(names: Sequence[str], key: str = "metrics") -> tuple[str, ...]:
    """Return `names`, or `SEARCH_METRICS` where there are none.

    Args:
        names: names such as `ndcg@10`.
        key: the option or recipe key that holds them, for messages.

    Raises:
        InputError: a metric is unknown, or pytrec-eval-terrier is not installed.
    """
    for name in names:
        _measure(name, key)
    _trec_eval()
    return tuple(names) or SEARCH_METRICS


def ranking_scores(
    judgements: Judgements, rankings: Mapping[str, Ranking], names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return metric -> id of a query -> its value, for each query with judgements and a ranking.

    Args:
        judgements: the relevance of documents.
        rankings: id of a query -> a ranking. trec_eval sorts it by descending float32 score, then by descending id.
        names: the metrics: `ndcg@K`, `map@K`, `recall@K`, `precision@K`, and `mrr@K`, the reciprocal rank among the
            first K documents.

    Raises:
        InputError: as `check_search_metrics`.
    """
    trec_eval = _trec_eval()
    return {name: _of_queries(trec_eval, judgements, rankings, *_measure(name)) for name in names}


def mean_scores(judgements: Judgements, rankings: Mapping[str, Ranking], names: Sequence[str]) -> dict[str, float]:
    """Return metric -> its mean over the queries; arguments as for `ranking_scores`."""
    of_queries = ranking_scores(judgements, rankings, names)
    return {name: float(np.mean(list(values.values()))) for name, values in of_queries.items()}


def mean_over_sets(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return `METRIC`, the mean over sets, and `NAME/METRIC` for each set; of one set only `METRIC`.

    Args:
        scores: name of a set -> metric -> its value.
    """
    means = {name: float(np.mean([row[name] for row in scores.values()])) for name in next(iter(scores.values()))}
    of_sets = {f"{name}/{metric}": value for name, row in scores.items() for metric, value in row.items()}
    return means | (of_sets if len(scores) > 1 else {})


def sorted_documents(ranking: Ranking) -> list[str]:
    """Return the documents of a ranking in trec_eval's order: by descending float32 score, then by descending id."""
    return sorted(ranking, key=lambda name: (np.float32(ranking[name]), name), reverse=True)


def _measure(name: str, key: str = "metrics") -> tuple[str, int]:
    kind, _, cutoff = name.partition("@")
    if kind not in _MEASURES or not cutoff.isdecimal() or int(cutoff) < 1:
        known = ", ".join(f"{known}@K" for known in _MEASURES)
        raise InputError(f"{key}: expected {known} with a positive K, found {name!r}")
    return _MEASURES[kind], int(cutoff)


def _trec_eval() -> Any:
    return import_extra("pytrec_eval", "retrieval")


def _of_queries(
    trec_eval: Any, judgements: Judgements, rankings: Mapping[str, Ranking], measure: str, cutoff: int
) -> dict[str, float]:
    """Return the value of a measure with a cutoff for each query."""
    name, key = f"{measure}.{cutoff}", f"{measure}_{cutoff}"
    if measure == "recip_rank":  # recip_rank has no cutoff in trec_eval
        name = key = measure
        rankings = {query: _first(ranking, cutoff) for query, ranking in rankings.items()}
    of_queries = trec_eval.RelevanceEvaluator(judgements, {name}).evaluate(rankings)
    return {query: float(values[key]) for query, values in of_queries.items()}


def _first(ranking: Ranking, count: int) -> Ranking:
    return {name: ranking[name] for name in sorted_documents(ranking)[:count]}
