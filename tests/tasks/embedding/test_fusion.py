"""Fusion of rankings, against values by hand and a plain definition."""

import itertools

import numpy as np
import pytest

from bert_jax.errors import InputError
from bert_jax.tasks.embedding.search.fusion import Candidates, Fusion, check_weights, fuse

FIRST, SECOND = Candidates([7, 3, 5], [9.0, 5.0, 1.0]), Candidates([3, 8], [0.75, 0.25])


@pytest.mark.parametrize(
    ("fusion", "expected"),
    [
        (Fusion(), {3: 1 / 62 + 1 / 61, 7: 1 / 61, 8: 1 / 62, 5: 1 / 63}),
        (Fusion(rrf_k=1), {3: 1 / 3 + 1 / 2, 7: 1 / 2, 8: 1 / 3, 5: 1 / 4}),
        (Fusion(weights=(3.0, 1.0)), {3: 3 / 62 + 1 / 61, 7: 3 / 61, 5: 3 / 63, 8: 1 / 62}),
        (Fusion("weighted"), {3: 0.5 + 1, 7: 1.0, 5: 0.0, 8: 0.0}),
        (Fusion("weighted", (0.3, 0.7)), {3: 0.3 * 0.5 + 0.7, 7: 0.3, 5: 0.0, 8: 0.0}),
        (Fusion("weighted", (0.5, 0.5), "z-score"),  # what a searcher lacks has its least score
         {3: 0.5 * 0 + 0.5 * 1, 7: 0.5 * 1.5**0.5 - 0.5, 5: -0.5 * 1.5**0.5 - 0.5, 8: -0.5 * 1.5**0.5 - 0.5}),
    ],
)  # fmt: skip
def test_values_by_hand(fusion, expected):
    merged = fuse(fusion, [FIRST, SECOND])
    assert dict(zip(merged.numbers, merged.scores, strict=True)) == pytest.approx(expected, abs=1e-12)
    assert merged.numbers == sorted(expected, key=lambda number: (-expected[number], number))


def test_ties_are_in_the_order_of_the_corpus_in_every_order_of_the_searchers():
    """Sums of 1 / (k + rank) in another order may differ in the last bit."""
    rankings = [Candidates(order, [3.0, 2.0, 1.0]) for order in ([2, 1, 0], [1, 0, 2], [0, 2, 1])]
    for some in itertools.permutations(rankings):
        merged = fuse(Fusion(rrf_k=5), list(some))
        assert merged.numbers == [0, 1, 2] and len(set(merged.scores)) == 1


@pytest.mark.parametrize(("normalization", "score"), [("min-max", 1.0), ("z-score", 0.0)])
def test_equal_scores_are_equally_good(normalization, score):
    fusion = Fusion("weighted", normalization=normalization)
    assert fuse(fusion, [Candidates([4, 6], [0.1, 0.1]), Candidates([], [])]) == ([4, 6], [score, score])
    assert fuse(fusion, [Candidates([], [])]) == ([], [])


@pytest.mark.parametrize("fusion", [Fusion(), Fusion("weighted", (0.2, 0.8)), Fusion("weighted", (), "z-score")])
def test_random_rankings_against_the_definition(fusion):
    rng = np.random.default_rng(0)
    for _ in range(20):
        rankings = []
        for size in rng.integers(2, 12, 2):
            scores = np.sort(rng.normal(0, 3, size))[::-1]
            rankings.append(Candidates(rng.permutation(15)[:size].tolist(), scores.tolist()))
        expected = np.zeros(15)
        for (numbers, scores), weight in zip(rankings, fusion.weights or (1, 1), strict=True):
            values = np.array(scores)
            if fusion.fusion == "rrf":
                values = 1 / (60 + np.arange(1, len(numbers) + 1))
            elif fusion.normalization == "min-max":
                values = (values - values[-1]) / (values[0] - values[-1])
            else:
                values = (values - values.mean()) / values.std()
            of_all = np.full(15, values[-1] if fusion.normalization == "z-score" else 0.0)
            of_all[numbers] = values
            expected += weight * of_all
        merged = fuse(fusion, rankings)
        np.testing.assert_allclose(merged.scores, expected[merged.numbers], atol=1e-12)
        assert merged.scores == sorted(merged.scores, reverse=True)
        assert {*merged.numbers} == {*rankings[0].numbers, *rankings[1].numbers}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fusion": "rff"}, "fusion: expected rrf or weighted, found 'rff'"),
        ({"normalization": "max"}, "normalization: expected min-max or z-score, found 'max'"),
        ({"candidates": 0}, "candidates: expected a positive integer, found 0"),
        ({"rrf_k": -1}, "rrf_k: expected a positive integer, found -1"),
        ({"weights": (1.0, -1.0)}, r"weights: expected numbers of at least 0, and one above 0, found \[1.0, -1.0\]"),
        ({"weights": (0.0, 0.0)}, r"weights: expected numbers of at least 0, and one above 0, found \[0.0, 0.0\]"),
        ({"weights": (1.0, float("inf"))}, "weights: expected numbers"),
        ({"weights": (1.0,)}, "weights: expected 2, one for each of bm25, dense, found 1"),
    ],
)
def test_options_that_do_not_fit(options, message):
    with pytest.raises(InputError, match=message):
        check_weights(Fusion(**options), ["bm25", "dense"])
