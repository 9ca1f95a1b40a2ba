"""Metrics of rankings, beside scikit-learn and by hand."""

import numpy as np
import pytest

from bert_jax.metrics.pairs import average_precision
from bert_jax.metrics.rankings import rankings


def test_rankings_by_hand():
    relevance = np.array([[0, 2, 1, 0], [1, 0, -np.inf, -np.inf], [0, 0, 0, 0]])
    scores = np.array([[4, 3, 2, 1.0], [0, 1, 9, 9.0], [4, 3, 2, 1.0]])
    found = rankings(relevance, scores)
    first = (3 / np.log2(3) + 1 / np.log2(4)) / (3 + 1 / np.log2(3))
    assert found["ndcg"] == pytest.approx((first + 1 / np.log2(3)) / 2)
    assert found["mrr"] == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert found["map"] == pytest.approx(((1 / 2 + 2 / 3) / 2 + 1 / 2) / 2)


def test_a_model_that_tells_nothing_apart_ranks_last():
    assert rankings(np.array([[1, 0, 0.0]]), np.zeros((1, 3)))["mrr"] == pytest.approx(1 / 3)
    assert rankings(np.zeros((2, 3)), np.zeros((2, 3))) == {"mrr": 0, "ndcg": 0, "map": 0}


@pytest.mark.parametrize("seed", range(3))
def test_beside_scikit_learn(seed):
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(seed)
    relevant, scores = rng.integers(0, 2, 50) > 0, rng.integers(0, 9, 50).astype(float)
    assert average_precision(relevant, scores) == pytest.approx(sklearn.average_precision_score(relevant, scores))
    scores, relevance = rng.normal(size=(5, 7)), rng.integers(0, 3, (5, 7)).astype(float)
    relevance[:, 0] = 1
    expected = sklearn.ndcg_score(np.exp2(relevance) - 1, scores)
    assert rankings(relevance, scores)["ndcg"] == pytest.approx(expected)


def test_without_a_relevant_row():
    assert average_precision(np.zeros(3, bool), np.arange(3.0)) == 0
