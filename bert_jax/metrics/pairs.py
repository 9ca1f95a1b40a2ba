"""Metrics of pairs of texts whose labels are 0 (different) and 1 (alike), from their similarities.

They are those of `BinaryClassificationEvaluator` of sentence-transformers: a pair is predicted to be alike if its
similarity is at least a threshold, which is chosen to maximise accuracy or F1 on the evaluated pairs.
"""

from typing import NamedTuple

import numpy as np

from bert_jax.errors import InputError
from bert_jax.metrics.scores import matthews


class _Thresholds(NamedTuple):
    """The distinct thresholds of n pairs, the highest first.

    Attributes:
        values: the thresholds, float64 `[t]`: midpoints of neighbouring similarities, and the lowest similarity.
        right: number of pairs of label 1 that each predicts to be alike, `[t]`.
        alike: number of pairs that each predicts to be alike, `[t]`.
        positives: number of pairs of label 1.
        highest: the highest similarity.
    """

    values: np.ndarray
    right: np.ndarray
    alike: np.ndarray
    positives: int
    highest: float


def average_precision(relevant: np.ndarray, scores: np.ndarray) -> float:
    """Return the average precision of scores [n], where `relevant` is bool or 0 and 1 [n]; 0 without a relevant row.

    Rows with equal scores share a rank, as in scikit-learn.
    """
    found = _thresholds(relevant, scores)
    if found is None or not found.positives:
        return 0.0
    precision, recall = found.right / found.alike, found.right / found.positives
    return float((np.diff(recall, prepend=0) * precision).sum())


def best_accuracy(labels: np.ndarray, similarities: np.ndarray) -> float:
    """Return the accuracy at the threshold of similarities with the greatest accuracy."""
    return _best_accuracy(labels, similarities)[0]


def accuracy_threshold(labels: np.ndarray, similarities: np.ndarray) -> float:
    """Return the threshold of similarities with the greatest accuracy, the highest of several."""
    return _best_accuracy(labels, similarities)[1]


def best_f1(labels: np.ndarray, similarities: np.ndarray) -> float:
    """Return the F1 of label 1 at the threshold of similarities with the greatest F1."""
    return _best_f1(labels, similarities)[0]


def best_f1_precision(labels: np.ndarray, similarities: np.ndarray) -> float:
    """Return the precision at the threshold of similarities with the greatest F1."""
    return _best_f1(labels, similarities)[1]


def best_f1_recall(labels: np.ndarray, similarities: np.ndarray) -> float:
    """Return the recall at the threshold of similarities with the greatest F1."""
    return _best_f1(labels, similarities)[2]


def f1_threshold(labels: np.ndarray, similarities: np.ndarray) -> float:
    """Return the threshold of similarities with the greatest F1, the highest of several."""
    return _best_f1(labels, similarities)[3]


def best_f1_matthews(labels: np.ndarray, similarities: np.ndarray) -> float:
    """Return the Matthews correlation at the threshold of similarities with the greatest F1."""
    predicted = np.asarray(similarities, np.float64) >= f1_threshold(labels, similarities)
    return matthews(np.asarray(labels).astype(np.int64), predicted.astype(np.int64))


def pair_average_precision(labels: np.ndarray, similarities: np.ndarray) -> float:
    """Return the average precision of similarities, where label 1 is relevant."""
    _check(labels)
    return average_precision(labels, similarities)


def _best_accuracy(labels: np.ndarray, similarities: np.ndarray) -> tuple[float, float]:
    """Return the greatest accuracy and its threshold."""
    _check(labels)
    found = _thresholds(labels, similarities)
    if found is None:
        return 0.0, 0.0
    negatives = len(labels) - found.positives
    # The first threshold predicts no pair to be alike.
    right = np.concatenate([[negatives], found.right + negatives - (found.alike - found.right)])
    best = int(right.argmax())
    threshold = found.values[best - 1] if best else np.nextafter(found.highest, np.inf)
    return float(right[best] / len(labels)), float(threshold)


def _best_f1(labels: np.ndarray, similarities: np.ndarray) -> tuple[float, float, float, float]:
    """Return the greatest F1, its precision, its recall and its threshold; zeros without a pair of label 1."""
    _check(labels)
    found = _thresholds(labels, similarities)
    if found is None or not found.positives:
        return 0.0, 0.0, 0.0, 0.0
    scores = 2 * found.right / (found.alike + found.positives)
    best = int(scores.argmax())
    precision, recall = found.right[best] / found.alike[best], found.right[best] / found.positives
    return float(scores[best]), float(precision), float(recall), float(found.values[best])


def _thresholds(relevant: np.ndarray, scores: np.ndarray) -> _Thresholds | None:
    """Return the distinct thresholds of scores [n]; None if there are no rows."""
    if not len(scores):
        return None
    order = np.argsort(-np.asarray(scores, np.float64), kind="stable")
    ranked = np.asarray(scores, np.float64)[order]
    last = np.append(np.diff(ranked) != 0, True)  # True for the last of rows with equal scores
    right, values = np.cumsum(np.asarray(relevant)[order] > 0), ranked[last]
    between = (values[:-1] + values[1:]) / 2
    between = np.where(between == values[1:], values[:-1], between)  # a rounded midpoint must not include the next row
    return _Thresholds(
        np.append(between, values[-1]), right[last], np.flatnonzero(last) + 1, int(right[-1]), float(ranked[0])
    )


def _check(labels: np.ndarray) -> None:
    """Raise InputError for labels other than 0 and 1."""
    other = np.asarray(labels)[~np.isin(labels, (0, 1))]
    if len(other):
        raise InputError(f"data.metrics: expected labels of 0 and 1 for metrics with a threshold, found {other[0]:g}")
