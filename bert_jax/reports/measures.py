"""Statistics of reports: classes, confusions, calibration, and the worst rows."""

import dataclasses

import numpy as np

WORST = 20  # number of wrong rows that are shown
BINS = 15  # as in the experiments of Guo et al.


@dataclasses.dataclass(frozen=True, eq=False)
class PerClass:
    """Counts of each class, and their ratios; 0 / 0 is 0.

    Attributes:
        support: int `[C]`, number of rows with the class as label.
        answered: int `[C]`, number of rows with the class as prediction.
        right: int `[C]`, number of rows with both.
    """

    support: np.ndarray
    answered: np.ndarray
    right: np.ndarray

    @property
    def precision(self) -> np.ndarray:
        """Return the precision of each class, float64 `[C]`."""
        return self.right / np.maximum(self.answered, 1)

    @property
    def recall(self) -> np.ndarray:
        """Return the recall of each class, float64 `[C]`."""
        return self.right / np.maximum(self.support, 1)

    @property
    def f1(self) -> np.ndarray:
        """Return the F1 of each class, float64 `[C]`."""
        return 2 * self.right / np.maximum(self.answered + self.support, 1)


def per_class(labels: np.ndarray, answers: np.ndarray, count: int) -> PerClass:
    """Count labels and predictions per class: int `[n]` classes, or `[n, C]` of 0 and 1 for multi-label rows."""
    if labels.ndim == 2:
        gold, predicted = labels > 0, answers > 0
        return PerClass(gold.sum(0), predicted.sum(0), (gold & predicted).sum(0))
    sides = (labels, answers, labels[labels == answers])
    return PerClass(*(np.bincount(side, minlength=count) for side in sides))


def confusion(labels: np.ndarray, answers: np.ndarray, count: int) -> np.ndarray:
    """Return the confusion matrix, int64 `[C, C]`: label (first axis) by prediction."""
    return np.bincount(labels.astype(np.int64) * count + answers, minlength=count**2).reshape(count, count)


def largest_confusions(labels: np.ndarray, answers: np.ndarray, most: int) -> list[tuple[int, int, int]]:
    """Return (label, prediction, number of rows) of the most frequent confusions, the most frequent first."""
    wrong = labels != answers
    pairs, counts = np.unique(np.stack([labels[wrong], answers[wrong]]), axis=1, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:most]
    return [(int(pairs[0, i]), int(pairs[1, i]), int(counts[i])) for i in order]


@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """The calibration of probabilities, in M bins of equal width.

    Attributes:
        edges: float64 `[M + 1]`; bin m has the probabilities above edge m, up to edge m + 1.
        count: int64 `[M]`, number of probabilities.
        probability: float64 `[M]`, mean probability; nan in an empty bin.
        share: float64 `[M]`, share of right predictions; nan in an empty bin.
        error: expected calibration error: the mean of |share - probability| over all predictions.
    """

    edges: np.ndarray
    count: np.ndarray
    probability: np.ndarray
    share: np.ndarray
    error: float


def calibration(probabilities: np.ndarray, is_right: np.ndarray, bins: int = BINS) -> Calibration:
    """Compute the calibration of probabilities (Guo et al. 2017, arXiv:1706.04599, section 2, equations 2, 3 and 5).

    Args:
        probabilities: `[n]`, predicted probabilities.
        is_right: `[n]`, 1 where the prediction is right.
        bins: number of bins.
    """
    edges = np.linspace(0, 1, bins + 1)
    place = np.searchsorted(edges[1:-1], probabilities, side="left")
    count = np.bincount(place, minlength=bins)
    sums = [np.bincount(place, np.asarray(side, np.float64), bins) for side in (probabilities, is_right)]
    with np.errstate(invalid="ignore"):
        probability, share = (total / np.where(count, count, np.nan) for total in sums)
    error = float(np.abs(sums[0] - sums[1]).sum() / max(len(place), 1))
    return Calibration(edges, count, probability, share, error)


def worst(badness: np.ndarray, among: np.ndarray, most: int = WORST) -> np.ndarray:
    """Return the rows with the greatest `badness` [n] among those where `among` [n] is true, the greatest first."""
    rows = np.flatnonzero(among)
    return rows[np.argsort(-badness[rows], kind="stable")[:most]]
