"""Metrics of classes, numbers and rankings, as the GLUE benchmark computes them (Wang et al. 2018, table 1)."""

import warnings
from collections.abc import Sequence

import numpy as np

from bert_jax.errors import InputError, did_you_mean
from bert_jax.metrics import default_metrics, measure, metrics_of


def accuracy(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Return the accuracy of `predicted` [n] against `labels` [n]."""
    return float(np.mean(labels == predicted))


def f1(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Return the F1 of class 1; 0 if class 1 is neither a label nor a prediction."""
    both = np.sum((labels == 1) & (predicted == 1))
    either = np.sum(labels == 1) + np.sum(predicted == 1)
    return float(2 * both / either) if either else 0.0


def matthews(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Return the Matthews correlation of labels and predictions with any number of classes; 0 if either is constant.

    Gorodkin 2004, "Comparing two K-category assignments by a K-category correlation coefficient", equation 8.
    """
    classes = int(max(labels.max(), predicted.max())) + 1
    table = np.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes).astype(float)
    label_counts, predicted_counts, total = table.sum(1), table.sum(0), table.sum()
    spread = (total**2 - label_counts @ label_counts) * (total**2 - predicted_counts @ predicted_counts)
    return float((np.trace(table) * total - label_counts @ predicted_counts) / np.sqrt(spread)) if spread else 0.0


def all_right(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Return the share of rows of `predicted` [n, C] that equal `labels` [n, C] in every class."""
    return float(np.mean((labels == predicted).all(axis=1)))


def class_f1(labels: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return F1 and support of each class that is in labels or predictions `[n]`, or of all classes of `[n, C]`."""
    if labels.ndim == 2:
        counts = [(side > 0).sum(0) for side in (labels, predicted, (labels > 0) & (predicted > 0))]
    else:
        classes = np.unique(np.concatenate([labels, predicted]))
        sides = (labels, predicted, labels[labels == predicted])
        counts = [(side[:, None] == classes).sum(0) for side in sides]
    true, guessed, both = counts
    return 2 * both / np.maximum(true + guessed, 1), true


def micro_f1(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Return the F1 over all entries of multi-label rows [n, C]; for classes [n], the accuracy."""
    return f1(labels.ravel(), predicted.ravel()) if labels.ndim == 2 else accuracy(labels, predicted)


def macro_f1(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean F1 over classes (see `class_f1`)."""
    return float(np.mean(class_f1(labels, predicted)[0]))


def weighted_f1(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean F1 over classes, weighted by support (see `class_f1`)."""
    scores, counts = class_f1(labels, predicted)
    return float(scores @ counts / max(counts.sum(), 1))


def pearson(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Return the Pearson (linear) correlation of two vectors [n]; 0 if either is constant."""
    return _correlation("pearsonr", labels, predicted)


def spearman(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Return the Spearman (rank) correlation of two vectors [n], with mean ranks for ties; 0 if either is constant."""
    return _correlation("spearmanr", labels, predicted)


def mse(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean squared difference of two vectors [n]."""
    return float(np.mean(np.square(np.asarray(labels, np.float64) - predicted)))


def choose_metrics(
    names: Sequence[str], regression: bool, num_labels: int, several: bool = False, best: str = ""
) -> tuple[str, ...]:
    """Return the metrics to report.

    Args:
        names: the requested metrics; empty = the defaults of the task.
        regression: whether labels are numbers.
        num_labels: number of classes; `f1` applies only to two classes.
        several: whether rows may have several labels.
        best: the metric that selects the best checkpoint, which is added.

    Raises:
        InputError: a name is unknown or does not apply to the task.
    """
    of_classes = "two_classes" if num_labels == 2 else "classes"
    kind = "numbers" if regression else "label_sets" if several else of_classes
    fitting = metrics_of(kind)
    for name in names:
        if name not in fitting:
            task = "regression" if regression else f"classification into {num_labels} labels"
            raise InputError(f"data.metrics: {name!r} is not a metric of {task}{did_you_mean(name, fitting)}")
    if best and best not in fitting:
        raise InputError(f"config.best_metric: {best!r} is not measured{did_you_mean(best, fitting)}")
    chosen = tuple(names) or default_metrics(kind)
    return chosen if not best or best in chosen else (*chosen, best)


def compute_metrics(names: Sequence[str], labels: np.ndarray, predicted: np.ndarray, count: int) -> dict[str, float]:
    """Return the metrics `names` for labels [n], which are numbers or one of `count` classes, or 0 and 1 [n, C]."""
    of_classes = "two_classes" if count == 2 else "classes"
    of_rows = "numbers" if np.issubdtype(labels.dtype, np.floating) else of_classes
    return measure("label_sets" if labels.ndim == 2 else of_rows, names, labels, predicted)


def _correlation(name: str, labels: np.ndarray, predicted: np.ndarray) -> float:
    """Return the statistic of a function of `scipy.stats` for two vectors [n]; 0 if either is constant."""
    if len(labels) < 2 or np.ptp(labels) == 0 or np.ptp(predicted) == 0:
        return 0.0
    from scipy import stats  # slow to import

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        statistic = getattr(stats, name)
        return float(statistic(np.asarray(labels, np.float64), np.asarray(predicted, np.float64)).statistic)
