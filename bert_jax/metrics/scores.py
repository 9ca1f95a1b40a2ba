"""Metrics of classes, numbers and rankings, as the GLUE benchmark computes them (Wang et al. 2018, table 1)."""

import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_jax.errors import InputError, did_you_mean
from bert_jax.inference.similarity import comparable, compare

CLASSIFICATION = ("accuracy", "f1", "matthews", "macro_f1", "micro_f1", "weighted_f1")
_USUAL = ("accuracy", "f1", "matthews")  # defaults of CLASSIFICATION; macro_f1 where there are more than two classes
MULTI_LABEL = ("accuracy", "micro_f1", "macro_f1", "weighted_f1")
REGRESSION = ("pearson", "spearman", "mse")
RETRIEVAL = ("retrieval_accuracy", "mrr")  # metrics of `retrieval_ranks`
_ROWS = 1024  # queries that are compared with all documents at once


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
    true, guessed, total = table.sum(1), table.sum(0), table.sum()
    spread = (total**2 - true @ true) * (total**2 - guessed @ guessed)
    return float((np.trace(table) * total - true @ guessed) / np.sqrt(spread)) if spread else 0.0


def all_right(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Return the share of rows of `predicted` [n, C] that equal `labels` [n, C] in every class."""
    return float(np.mean((labels == predicted).all(axis=1)))


def class_f1(labels: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return F1 and support of each class: of classes in labels or predictions `[n]`, or of all classes of `[n, C]`."""
    if labels.ndim == 2:
        counts = [(side > 0).sum(0) for side in (labels, predicted, (labels > 0) & (predicted > 0))]
    else:
        classes = np.unique(np.concatenate([labels, predicted]))
        found = (labels, predicted, labels[labels == predicted])
        counts = [(side[:, None] == classes).sum(0) for side in found]
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


METRICS = {
    "accuracy": accuracy, "f1": f1, "matthews": matthews, "micro_f1": micro_f1, "macro_f1": macro_f1,
    "weighted_f1": weighted_f1,
    "pearson": pearson, "spearman": spearman, "mse": mse,
}  # fmt: skip


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
    fitting, usual = CLASSIFICATION, _USUAL
    if regression:
        fitting = usual = REGRESSION
    elif several:
        fitting, usual = MULTI_LABEL, MULTI_LABEL[:3]
    elif num_labels != 2:
        fitting = tuple(name for name in fitting if name != "f1")
        usual = tuple("macro_f1" if name == "f1" else name for name in usual)
    for name in names:
        if name not in fitting:
            task = "regression" if regression else f"classification into {num_labels} labels"
            raise InputError(f"data.metrics: {name!r} is not a metric of {task}{did_you_mean(name, fitting)}")
    if best and best not in fitting:
        raise InputError(f"config.best_metric: {best!r} is not measured{did_you_mean(best, fitting)}")
    chosen = tuple(names) or usual
    return chosen if not best or best in chosen else (*chosen, best)


def compute_metrics(names: Sequence[str], labels: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Return the metrics `names` of `predicted` against `labels`: classes or numbers [n], or 0 and 1 [n, C]."""
    several = {"accuracy": all_right} if labels.ndim == 2 else {}
    return {name: (METRICS | several)[name](labels, predicted) for name in names}


def ratios(predictions: Sequence[Mapping[str, np.ndarray]], metrics: Mapping[str, tuple[str, str]]) -> dict[str, float]:
    """Return metrics that are ratios of sums over all predictions; 0 / 0 is 0.

    Args:
        predictions: arrays by name, batch by batch.
        metrics: metric -> names of its numerator and denominator in `predictions`.
    """
    sums = {name: sum(float(p[name].sum(dtype=np.float64)) for p in predictions) for name in predictions[0]}
    return {name: sums[part] / max(sums[count], 1.0) for name, (part, count) in metrics.items()}


def retrieval_ranks(queries: np.ndarray, documents: np.ndarray, similarity: str = "cosine") -> np.ndarray:
    """Return the rank, from 1, of each query's own document among all documents; ties get their mean rank.

    Args:
        queries: `[n, D]`.
        documents: `[n, K, D]`; the first document of a row is the query's own, the others are negatives.
        similarity: as for `bert_jax.inference.similarity.similarities`.

    Returns:
        float64 `[n]`.
    """
    among = documents.swapaxes(0, 1).reshape(-1, documents.shape[-1])
    queries, among = (comparable(similarity, side.astype(np.float64)) for side in (queries, among))
    return ranks_among(lambda rows: compare(similarity, queries[rows], among), np.arange(len(queries)))


def ranks_among(compare: Callable[[slice], np.ndarray], own: np.ndarray, *, relative: bool = False) -> np.ndarray:
    """Return the rank, from 1, of each query's own document among all M documents; ties get their mean rank.

    Args:
        compare: function from rows of queries to their scores with all documents, `[rows, M]`.
        own: int `[n]`, the number of each query's own document.
        relative: whether the tolerance of ties, 1e-6, is multiplied by scores above 1.

    Returns:
        float64 `[n]`.
    """
    ranks = np.empty(len(own))
    for start in range(0, len(own), _ROWS):
        rows = slice(start, start + _ROWS)
        scores = compare(rows)
        of_own = scores[np.arange(len(scores)), own[rows]][:, None]
        # With the tolerance equal texts tie even if they were in different batches.
        tolerance = 1e-6 * (np.maximum(np.abs(of_own), 1) if relative else 1)
        above, equal = scores > of_own + tolerance, np.abs(scores - of_own) <= tolerance
        ranks[rows] = 1 + above.sum(1) + (equal.sum(1) - 1) / 2
    return ranks


def retrieval_scores(ranks: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Return the metrics `names` of `RETRIEVAL` of ranks from 1."""
    found = {"retrieval_accuracy": float(np.mean(ranks == 1)), "mrr": float(np.mean(1 / ranks))}
    return {name: found[name] for name in names}


def _correlation(name: str, labels: np.ndarray, predicted: np.ndarray) -> float:
    """Return the statistic of a function of `scipy.stats` for two vectors [n]; 0 if either is constant."""
    if len(labels) < 2 or np.ptp(labels) == 0 or np.ptp(predicted) == 0:
        return 0.0
    from scipy import stats  # slow to import

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        statistic = getattr(stats, name)
        return float(statistic(np.asarray(labels, np.float64), np.asarray(predicted, np.float64)).statistic)
