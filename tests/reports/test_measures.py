"""What the pages count, beside scikit-learn and by hand."""

import numpy as np
import pytest
from sklearn import metrics

from bert_jax.reports import measures


@pytest.fixture
def answers():
    """Labels and answers of five classes, of which one never is and one never is answered."""
    rng = np.random.default_rng(0)
    return rng.choice([0, 1, 2, 4], 200), rng.choice([0, 1, 2, 3], 200)


def test_classes_as_scikit_learn_counts_them(answers):
    ours = measures.per_class(*answers, 5)
    theirs = metrics.precision_recall_fscore_support(*answers, labels=range(5), zero_division=0)
    for mine, other in zip((ours.precision, ours.recall, ours.f1, ours.support), theirs, strict=True):
        np.testing.assert_allclose(mine, other)
    np.testing.assert_array_equal(measures.confusion(*answers, 5), metrics.confusion_matrix(*answers, labels=range(5)))


def test_classes_of_several_labels_as_scikit_learn_counts_them():
    labels, answers = (np.random.default_rng(seed).integers(0, 2, (60, 4)) for seed in (1, 2))
    answers[:, 3] = 0
    ours = measures.per_class(labels.astype(np.float32), answers, 4)
    theirs = metrics.precision_recall_fscore_support(labels, answers, zero_division=0)
    for mine, other in zip((ours.precision, ours.recall, ours.f1, ours.support), theirs, strict=True):
        np.testing.assert_allclose(mine, other)


def test_the_largest_confusions(answers):
    matrix = metrics.confusion_matrix(*answers, labels=range(5))
    np.fill_diagonal(matrix, 0)
    found = measures.largest_confusions(*answers, 4)
    assert [count for *_, count in found] == sorted(matrix.ravel(), reverse=True)[:4]
    assert all(matrix[label, answer] == count for label, answer, count in found)
    assert measures.largest_confusions(answers[0], answers[0], 4) == []


def test_the_expected_calibration_error_by_hand():
    """Below a half: 0.4 on average and 2 of 3 right; above: 0.9 on average and 1 of 2 right."""
    found = measures.calibration(np.array([0.3, 0.5, 0.8, 1.0, 0.4]), np.array([1, 0, 1, 0, 1]), bins=2)
    assert found.count.tolist() == [3, 2]  # 0.5 belongs to the bin that it ends
    assert found.probability.tolist() == pytest.approx([0.4, 0.9])
    assert found.share.tolist() == pytest.approx([2 / 3, 0.5])
    assert found.error == pytest.approx((3 * (2 / 3 - 0.4) + 2 * (0.9 - 0.5)) / 5)


def test_empty_bins_and_the_ends_of_the_scale():
    found = measures.calibration(np.array([0.0, 1.0]), np.array([0, 1]), bins=15)
    assert found.count.tolist() == [1, *[0] * 13, 1] and found.error == 0
    assert np.isnan(found.share[1:14]).all()
    assert measures.calibration(np.zeros(0), np.zeros(0)).error == 0


def test_the_worst_rows():
    badness = np.array([1.0, 5.0, 9.0, 5.0, 7.0])
    index = measures.worst(badness, np.array([True, True, False, True, True]), most=3)
    assert index.tolist() == [4, 1, 3]
