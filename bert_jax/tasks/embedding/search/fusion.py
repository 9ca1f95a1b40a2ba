"""Fusion: merge the rankings of several searchers into one."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from bert_jax.errors import InputError
from bert_jax.inference.base import positive


class Candidates(NamedTuple):
    """The best texts of a searcher for a query, the best first.

    Attributes:
        numbers: the texts' numbers in the corpus.
        scores: their scores.
    """

    numbers: list[int]
    scores: list[float]


@dataclasses.dataclass(frozen=True)
class Fusion:
    """How the rankings of several searchers are merged.

    Attributes:
        fusion: `rrf` adds 1 / (rrf_k + rank) of each searcher (reciprocal rank fusion); `weighted` adds normalized
            scores.
        weights: weight of each searcher, in their order; () = 1 for each.
        normalization: what `weighted` does to the scores of a searcher for a query: `min-max` maps them to 0 to 1,
            `z-score` to mean 0 and standard deviation 1.
        rrf_k: k of reciprocal rank fusion; with greater values, first ranks count less.
        candidates: number of texts of each searcher that are merged.
    """

    fusion: Literal["rrf", "weighted"] = "rrf"
    weights: Sequence[float] = ()
    normalization: Literal["min-max", "z-score"] = "min-max"
    rrf_k: int = 60
    candidates: int = 100

    def __post_init__(self) -> None:
        for name, choices in (("fusion", ("rrf", "weighted")), ("normalization", ("min-max", "z-score"))):
            if (value := getattr(self, name)) not in choices:
                raise InputError(f"{name}: expected {' or '.join(choices)}, found {value!r}")
        positive("candidates", self.candidates)
        positive("rrf_k", self.rrf_k)
        if not all(0 <= weight < math.inf for weight in self.weights) or (self.weights and not any(self.weights)):
            raise InputError(f"weights: expected numbers of at least 0, and one above 0, found {[*self.weights]}")


def check_weights(fusion: Fusion, searchers: Sequence[str]) -> None:
    """Raise InputError unless there is one weight for each searcher, or none at all."""
    if fusion.weights and len(fusion.weights) != len(searchers):
        expected = f"{len(searchers)}, one for each of {', '.join(searchers)}"
        raise InputError(f"weights: expected {expected}, found {len(fusion.weights)}")


def fuse(fusion: Fusion, rankings: Sequence[Candidates]) -> Candidates:
    """Merge the candidates of each searcher for a query; ties are in the order of the corpus.

    Reciprocal rank fusion is that of Cormack et al. 2009 (doi:10.1145/1571941.1572114). A text that a searcher does not
    have among its candidates gets nothing of that searcher, or with `z-score` the least of its normalized scores.

    Args:
        fusion: the settings.
        rankings: the candidates of each searcher.
    """
    weights = fusion.weights or [1.0] * len(rankings)
    terms: dict[int, list[float]] = {number: [] for ranking in rankings for number in ranking.numbers}
    for ranking, weight in zip(rankings, weights, strict=True):
        values = dict(zip(ranking.numbers, _normalized(fusion, ranking.scores), strict=True))
        missing = min(values.values(), default=0.0) if _is_z_score(fusion) else 0.0
        for number, summands in terms.items():
            summands.append(weight * values.get(number, missing))
    # Rounded once: equal sums are equal in every order of the searchers, so that ties are seen as ties.
    totals = {number: math.fsum(summands) for number, summands in terms.items()}
    numbers = sorted(totals, key=lambda number: (-totals[number], number))
    return Candidates(numbers, [totals[number] for number in numbers])


def _is_z_score(fusion: Fusion) -> bool:
    return fusion.fusion == "weighted" and fusion.normalization == "z-score"


def _normalized(fusion: Fusion, scores: Sequence[float]) -> list[float]:
    """Return what the scores of a searcher, the best first, add to the sums."""
    if fusion.fusion == "rrf":
        return [1 / (fusion.rrf_k + rank) for rank in range(1, len(scores) + 1)]
    if not scores:
        return []
    values = np.array(scores, np.float64)
    least, greatest = values.min(), values.max()
    if least == greatest:  # nothing is better, as for a single candidate: with min-max, all are the best
        return [0.0 if _is_z_score(fusion) else 1.0] * len(scores)
    offset, scale = (values.mean(), values.std()) if _is_z_score(fusion) else (least, greatest - least)
    return list(((values - offset) / scale).tolist())
