"""Mine hard negatives: passages that a model finds similar to a query, and that are not known to answer it."""

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from bert_jax.errors import InputError
from bert_jax.inference.base import positive
from bert_jax.tasks.embedding.search.pipeline import Search

NegativeSampling = Literal["top", "random"]
SAMPLING = get_args(NegativeSampling)
RerankerScale = Literal["activated", "logits"]


@dataclasses.dataclass(frozen=True)
class MiningOptions:
    """Settings for choosing negatives among the passages that are most similar to a query.

    Attributes:
        num_negatives: number of negatives per query.
        range_min: number of the most similar candidates to skip.
        range_max: number of candidates to consider, including skipped ones; None = enough for the number of negatives.
        max_score: the greatest score of a negative; None = no limit.
        min_score: the smallest score of a negative; None = no limit.
        absolute_margin: smallest difference between the scores of positive and negative; None = no limit. Of several
            positives, the one with the smallest score counts.
        relative_margin: smallest difference between the scores of positive and negative, as a fraction of the
            positive's absolute score; None = no limit.
        sampling: `top` = take the candidates with the highest scores, `random` = draw candidates at random.
        seed: seed of random sampling.
        reranker_scale: which scores of a reranker the limits and margins apply to: `activated` = those of `rerank`,
            such as probabilities, `logits` = those before the activation.

    Raises:
        InputError: a value is out of its range, or the range has fewer candidates than `num_negatives`.
    """

    num_negatives: int = 3
    range_min: int = 0
    range_max: int | None = None
    max_score: float | None = None
    min_score: float | None = None
    absolute_margin: float | None = None
    relative_margin: float | None = None
    sampling: NegativeSampling = "top"
    seed: int = 0
    reranker_scale: RerankerScale = "activated"

    def __post_init__(self) -> None:
        positive("num_negatives", self.num_negatives)
        if self.range_min < 0:
            raise InputError(f"range_min: expected at least 0, found {self.range_min}")
        if self.range_max is not None and self.range_max - self.range_min < self.num_negatives:
            raise InputError(
                f"range_max: expected at least range_min + num_negatives = {self.range_min + self.num_negatives}, "
                f"found {self.range_max}"
            )
        if self.sampling not in SAMPLING:
            raise InputError(f"sampling: expected {' or '.join(SAMPLING)}, found {self.sampling!r}")
        if self.reranker_scale not in (scales := get_args(RerankerScale)):
            raise InputError(f"reranker_scale: expected {' or '.join(scales)}, found {self.reranker_scale!r}")
        for name in ("max_score", "min_score", "absolute_margin", "relative_margin"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise InputError(f"{name}: expected a finite number, found {value}")

    def candidates(self, positives: int, reranked: bool) -> int:
        """Return the number of candidates per query, if a query has at most `positives` positives."""
        if self.range_max is not None:
            return self.range_max
        limits = (self.max_score, self.absolute_margin, self.relative_margin, self.min_score if reranked else None)
        spare = 10 if any(limit is not None for limit in limits) else 1  # more candidates, as the limits leave some out
        return self.range_min + spare * self.num_negatives + positives

    def allowed(self, scores: np.ndarray, positive_scores: np.ndarray) -> np.ndarray:
        """Return whether candidates with `scores [n]` may be negatives, given the scores of the positives."""
        least = positive_scores.min()
        kept = np.ones(len(scores), bool)
        if self.absolute_margin is not None:
            kept &= scores + self.absolute_margin <= least
        if self.relative_margin is not None:
            kept &= scores <= least - abs(least) * self.relative_margin
        if self.max_score is not None:
            kept &= scores <= self.max_score
        if self.min_score is not None:
            kept &= scores >= self.min_score
        return kept


class MinedNegatives(NamedTuple):
    """A query with a positive and its negatives.

    Attributes:
        query, positive: the texts of a pair.
        positive_score: the score of the positive: its similarity or, with a reranker, its logit.
        negatives: up to `num_negatives` texts, the highest score first.
        scores: the same scores of the negatives.
    """

    query: str
    positive: str
    positive_score: float
    negatives: tuple[str, ...]
    scores: tuple[float, ...]


class _Candidates(NamedTuple):
    """The candidates of a query.

    Attributes:
        numbers: their numbers in the corpus.
        scores: their similarities or logits.
        limited: the scores that limits and margins apply to.
    """

    numbers: np.ndarray
    scores: np.ndarray
    limited: np.ndarray


def mine_hard_negatives(
    search: Search,
    pairs: Sequence[tuple[str, str]],
    corpus: Iterable[str] = (),
    options: MiningOptions | None = None,
    *,
    reranker: Any = None,
    **prompts: Any,
) -> list[MinedNegatives]:
    """Mine hard negatives for pairs of a query and a passage that answers it.

    The result is that of `mine_hard_negatives` of sentence-transformers: candidates are the passages most similar to a
    query, without its positives.

    Args:
        search: the search pipeline.
        pairs: queries, each with a positive; a query may be in several pairs.
        corpus: passages to mine from, in addition to all positives; equal texts count once.
        options: which candidates become negatives.
        reranker: a cross-encoder (pipeline `rerank`) whose scores replace those of the model; None = none.
        prompts: options of a call of `search`: prompts and `truncate_dim`.

    Returns:
        A result for each pair; the pairs of a query are adjacent.

    Raises:
        InputError: there is no pair, or an item is no text.
    """
    if not pairs:
        raise InputError("mine_hard_negatives: expected at least one pair, found none")
    options = options or MiningOptions()
    texts = list(dict.fromkeys([*corpus, *(passage for _, passage in pairs)]))
    numbers = {text: number for number, text in enumerate(texts)}
    positives: dict[str, list[int]] = {}  # the positives of each query, in order
    for query, passage in pairs:
        known = positives.setdefault(query, [])
        if numbers[passage] not in known:
            known.append(numbers[passage])
    most = max(collections.Counter(query for query, _ in pairs).values())
    count = options.candidates(most, reranker is not None)
    scores, nearest = search.nearest(list(positives), texts, count + most, **prompts)
    rows = [(query, number) for query, known in positives.items() for number in known]
    sides = [query for query, _ in rows], [texts[number] for _, number in rows]
    if reranker is None:
        positive_scores = limited = search.pair_scores(*sides, **prompts)
    else:
        limited, positive_scores = _reranked(reranker, *sides, options)
    chosen, start, generator = [], 0, np.random.default_rng(options.seed)
    for query, known, row, similar in zip(positives, positives.values(), scores, nearest, strict=True):
        of_known, start = slice(start, start + len(known)), start + len(known)
        candidates = _Candidates(similar, row, row)
        if reranker is not None:
            of_row = _reranked(reranker, [query] * len(row), [texts[i] for i in similar], options)
            candidates = _Candidates(similar, scores=of_row[1], limited=of_row[0])
        picked = _pick(candidates, known, limited[of_known], options, count, generator)
        negatives = tuple(texts[i] for i in picked.numbers)
        chosen += [
            MinedNegatives(query, texts[number], float(score), negatives, tuple(map(float, picked.scores)))
            for number, score in zip(known, positive_scores[of_known], strict=True)
        ]
    return chosen


def _reranked(
    reranker: Any, queries: Sequence[str], passages: Sequence[str], options: MiningOptions
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of pairs that limits apply to, and their logits."""
    relevance, logits = reranker.relevance_and_logits(queries, passages)
    return (logits if options.reranker_scale == "logits" else relevance), logits


def triplets(mined: Iterable[MinedNegatives]) -> Iterator[tuple[str, str, str, float]]:
    """Yield query, positive, negative and the score of the positive minus that of the negative, for each negative."""
    for row in mined:
        for negative, score in zip(row.negatives, row.scores, strict=True):
            yield row.query, row.positive, negative, row.positive_score - score


def labelled_lists(mined: Iterable[MinedNegatives]) -> Iterator[tuple[str, list[str], list[float]]]:
    """Yield query, passages and their scores for each pair with a negative; the first passage is the positive."""
    for row in mined:
        if row.negatives:
            yield row.query, [row.positive, *row.negatives], [row.positive_score, *row.scores]


def labelled_pairs(mined: Iterable[MinedNegatives]) -> Iterator[tuple[str, str, int, float]]:
    """Yield query, passage, label (1 for a positive) and score; the negatives of a query follow its positives."""
    for query, of_query in itertools.groupby(mined, lambda row: row.query):
        rows = list(of_query)
        for row in rows:
            yield query, row.positive, 1, row.positive_score
        for negative, score in zip(rows[0].negatives, rows[0].scores, strict=True):
            yield query, negative, 0, score


def _pick(
    candidates: _Candidates,
    known: list[int],
    positive_scores: np.ndarray,
    options: MiningOptions,
    count: int,
    generator: np.random.Generator,
) -> _Candidates:
    """Return the negatives among the candidates of a query whose positives are `known`."""
    kept = options.allowed(candidates.limited, positive_scores) & ~np.isin(candidates.numbers, known)
    numbers, scores, limited = (values[kept] for values in candidates)
    order = np.argsort(-scores, kind="stable")[options.range_min : count]
    if options.sampling == "random":
        size = min(options.num_negatives, len(order))
        order = order[np.sort(generator.choice(len(order), size, replace=False))]
    order = order[: options.num_negatives]
    return _Candidates(numbers[order], scores[order], limited[order])
