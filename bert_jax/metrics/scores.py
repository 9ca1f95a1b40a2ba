"""Metrics of classes, numbers and rankings, as the GLUE benchmark computes them (Wang et al. 2018, table 1)."""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from bert_jax.errors import InputError, did_you_mean
from bert_jax.inference.scoring import comparable, compare

CLASSIFICATION = ("accuracy", "f1", "matthews", "macro_f1", "micro_f1", "weighted_f1")
_USUAL = ("accuracy", "f1", "matthews")  # of CLASSIFICATION, where none are named
MULTI_LABEL = ("accuracy", "micro_f1", "macro_f1", "weighted_f1")
REGRESSION = ("pearson", "spearman", "mse")
_ROWS = 1024  # queries that are compared with all documents at a time


def accuracy(labels: np.ndarray, predicted: np.ndarray) -> float:
    """The share of `predicted` [n] that equals `labels` [n]."""
    return float(np.mean(labels == predicted))


def f1(labels: np.ndarray, predicted: np.ndarray) -> float:
    """The harmonic mean of precision and recall of class 1; 0 when class 1 is neither there nor predicted."""
    both = np.sum((labels == 1) & (predicted == 1))
    either = np.sum(labels == 1) + np.sum(predicted == 1)
    return float(2 * both / either) if either else 0.0


def matthews(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Matthews correlation of two labellings with any number of classes; 0 when either is constant.

    Gorodkin 2004, "Comparing two K-category assignments by a K-category correlation coefficient", equation 8.
    """
    classes = int(max(labels.max(), predicted.max())) + 1
    table = np.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes).astype(float)
    true, guessed, total = table.sum(1), table.sum(0), table.sum()
    spread = (total**2 - true @ true) * (total**2 - guessed @ guessed)
    return float((np.trace(table) * total - true @ guessed) / np.sqrt(spread)) if spread else 0.0


def all_right(labels: np.ndarray, predicted: np.ndarray) -> float:
    """The share of rows of `predicted` [n, C] that equal those of `labels` [n, C] in every class."""
    return float(np.mean((labels == predicted).all(axis=1)))


def class_f1(labels: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """F1 of each class that is there or predicted, and how often it is there, of `[n]` classes; of all of `[n, C]`."""
    if labels.ndim == 2:
        counts = [(side > 0).sum(0) for side in (labels, predicted, (labels > 0) & (predicted > 0))]
    else:
        classes = np.unique(np.concatenate([labels, predicted]))
        found = (labels, predicted, labels[labels == predicted])
        counts = [(side[:, None] == classes).sum(0) for side in found]
    true, guessed, both = counts
    return 2 * both / np.maximum(true + guessed, 1), true


def micro_f1(labels: np.ndarray, predicted: np.ndarray) -> float:
    """F1 of all answers [n, C] together, 1 standing for a class that a row belongs to; of classes [n], the accuracy."""
    return f1(labels.ravel(), predicted.ravel()) if labels.ndim == 2 else accuracy(labels, predicted)


def macro_f1(labels: np.ndarray, predicted: np.ndarray) -> float:
    """The mean over classes of the F1 of each (`class_f1`)."""
    return float(np.mean(class_f1(labels, predicted)[0]))


def weighted_f1(labels: np.ndarray, predicted: np.ndarray) -> float:
    """The same, each class weighing as many rows as it has."""
    scores, counts = class_f1(labels, predicted)
    return float(scores @ counts / max(counts.sum(), 1))


def pearson(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Linear correlation of two vectors [n]; 0 when either is constant."""
    return _correlation(stats.pearsonr, labels, predicted)


def spearman(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Rank correlation of two vectors [n], ties ranked by their mean; 0 when either is constant."""
    return _correlation(stats.spearmanr, labels, predicted)


def mse(labels: np.ndarray, predicted: np.ndarray) -> float:
    """The mean squared difference of two vectors [n]."""
    return float(np.mean(np.square(np.asarray(labels, np.float64) - predicted)))


METRICS = {
    "accuracy": accuracy, "f1": f1, "matthews": matthews, "micro_f1": micro_f1, "macro_f1": macro_f1,
    "weighted_f1": weighted_f1,
    "pearson": pearson, "spearman": spearman, "mse": mse,
}  # fmt: skip


def choose_metrics(
    names: Sequence[str], regression: bool, num_labels: int, several: bool = False, best: str = ""
) -> tuple[str, ...]:
    """The metrics to report.

    Args:
        names: those that were asked for; empty = the usual ones of the task.
        regression: whether labels are numbers.
        num_labels: number of classes; `f1` is of class 1 of two.
        several: whether a text may belong to several classes.
        best: one more, by which the best model is chosen.

    Raises:
        InputError: a name is unknown or does not fit the task.
    """
    fitting, usual = CLASSIFICATION, _USUAL
    if regression:
        fitting = usual = REGRESSION
    elif several:
        fitting, usual = MULTI_LABEL, MULTI_LABEL[:3]
    elif num_labels != 2:
        fitting, usual = (tuple(name for name in side if name != "f1") for side in (fitting, usual))
    for name in names:
        if name not in fitting:
            task = "regression" if regression else f"classification into {num_labels} labels"
            raise InputError(f"data.metrics: {name!r} is not a metric of {task}{did_you_mean(name, fitting)}")
    if best and best not in fitting:
        raise InputError(f"config.best_metric: {best!r} is not measured{did_you_mean(best, fitting)}")
    chosen = tuple(names) or usual
    return chosen if not best or best in chosen else (*chosen, best)


def compute_metrics(names: Sequence[str], labels: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Each metric of `names` for `labels` and `predicted`: [n] classes, or real numbers for regression, or [n, C] of 0
    and 1."""
    several = {"accuracy": all_right} if labels.ndim == 2 else {}
    return {name: (METRICS | several)[name](labels, predicted) for name in names}


def ratios(predictions: Sequence[Mapping[str, np.ndarray]], metrics: Mapping[str, tuple[str, str]]) -> dict[str, float]:
    """Metrics that are one sum over another: each is named, with the names of both in `predictions`.

    Of nothing over nothing 0 is made.
    """
    sums = {name: sum(float(p[name].sum(dtype=np.float64)) for p in predictions) for name in predictions[0]}
    return {name: sums[part] / max(sums[count], 1.0) for name, (part, count) in metrics.items()}


def retrieval_ranks(queries: np.ndarray, documents: np.ndarray, similarity: str = "cosine") -> np.ndarray:
    """At which place, from 1, each query finds its own document among all; ties share the mean of theirs.

    Args:
        queries: `[n, D]`.
        documents: `[n, K, D]`: of each row, the first is the query's own; the others are to be told from it too.
        similarity: of `bert_jax.inference.scoring.similarities`.

    Returns:
        float64 `[n]`.
    """
    among = documents.swapaxes(0, 1).reshape(-1, documents.shape[-1])
    queries, among = (comparable(similarity, side.astype(np.float64)) for side in (queries, among))
    ranks = np.empty(len(queries))
    for start in range(0, len(queries), _ROWS):
        rows = np.arange(start, min(start + _ROWS, len(queries)))
        alike = compare(similarity, queries[rows], among)
        own = alike[np.arange(len(rows)), rows][:, None]
        # The tolerance makes equal texts a tie, whatever batches they were in.
        above, equal = alike > own + 1e-6, np.abs(alike - own) <= 1e-6
        ranks[rows] = 1 + above.sum(1) + (equal.sum(1) - 1) / 2
    return ranks


def _correlation(function, labels: np.ndarray, predicted: np.ndarray) -> float:
    if len(labels) < 2 or np.ptp(labels) == 0 or np.ptp(predicted) == 0:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        return float(function(np.asarray(labels, np.float64), np.asarray(predicted, np.float64)).statistic)
