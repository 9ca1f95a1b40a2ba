"""Statistics of reports: classes, confusions, calibration, and the worst rows."""

import dataclasses

import numpy as np

WORST = 20  # rows that are shown of those that went wrong
BINS = 15  # as in the experiments of Guo et al.


@dataclasses.dataclass(frozen=True, eq=False)
class PerClass:
    """Counts of each class; where nothing stands below the line, a ratio is 0.

    Attributes:
        support: int `[C]`, how often it was to be answered.
        answered: int `[C]`, how often it was.
        right: int `[C]`, how often both.
    """

    support: np.ndarray
    answered: np.ndarray
    right: np.ndarray

    @property
    def precision(self) -> np.ndarray:
        """float64 `[C]`, the share of the answers that are right."""
        return self.right / np.maximum(self.answered, 1)

    @property
    def recall(self) -> np.ndarray:
        """float64 `[C]`, the share found of those that were to be."""
        return self.right / np.maximum(self.support, 1)

    @property
    def f1(self) -> np.ndarray:
        """float64 `[C]`, the harmonic mean of both."""
        return 2 * self.right / np.maximum(self.answered + self.support, 1)


def per_class(labels: np.ndarray, answers: np.ndarray, count: int) -> PerClass:
    """Of labels and answers that are int `[n]` classes, or `[n, C]` of 0 and 1 where a row may have several."""
    if labels.ndim == 2:
        yes, found = labels > 0, answers > 0
        return PerClass(yes.sum(0), found.sum(0), (yes & found).sum(0))
    sides = (labels, answers, labels[labels == answers])
    return PerClass(*(np.bincount(side, minlength=count) for side in sides))


def confusion(labels: np.ndarray, answers: np.ndarray, count: int) -> np.ndarray:
    """int64 `[C, C]`: how many rows of each class (first axis) were given each answer."""
    return np.bincount(labels.astype(np.int64) * count + answers, minlength=count**2).reshape(count, count)


def largest_confusions(labels: np.ndarray, answers: np.ndarray, most: int) -> list[tuple[int, int, int]]:
    """(class, answer, rows) of the pairs that are confused most often, the most first."""
    wrong = labels != answers
    pairs, counts = np.unique(np.stack([labels[wrong], answers[wrong]]), axis=1, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:most]
    return [(int(pairs[0, i]), int(pairs[1, i]), int(counts[i])) for i in order]


@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """Probabilities in bins of one width, and how often what they speak for is so.

    Attributes:
        edges: float64 `[M + 1]`; bin m holds what is above edge m and not above edge m + 1.
        count: int64 `[M]`.
        probability: float64 `[M]`, the mean; nan in an empty bin.
        share: float64 `[M]`, of what is so; nan in an empty bin.
        error: the expected calibration error: the mean over all of how far `share` and `probability` of their bin are
            apart.
    """

    edges: np.ndarray
    count: np.ndarray
    probability: np.ndarray
    share: np.ndarray
    error: float


def calibration(probabilities: np.ndarray, is_so: np.ndarray, bins: int = BINS) -> Calibration:
    """How far probabilities can be believed: Guo et al. 2017 (arXiv:1706.04599), section 2, equations 2, 3 and 5.

    Args:
        probabilities: `[n]`, of the answers.
        is_so: `[n]`, 1 where the answer is right.
        bins: how many.
    """
    edges = np.linspace(0, 1, bins + 1)
    place = np.searchsorted(edges[1:-1], probabilities, side="left")
    count = np.bincount(place, minlength=bins)
    sums = [np.bincount(place, np.asarray(side, np.float64), bins) for side in (probabilities, is_so)]
    with np.errstate(invalid="ignore"):
        probability, share = (total / np.where(count, count, np.nan) for total in sums)
    error = float(np.abs(sums[0] - sums[1]).sum() / max(len(place), 1))
    return Calibration(edges, count, probability, share, error)


def worst(badness: np.ndarray, among: np.ndarray, most: int = WORST) -> np.ndarray:
    """The rows, of those where `among` [n] is true, of the greatest `badness` [n], the greatest first."""
    rows = np.flatnonzero(among)
    return rows[np.argsort(-badness[rows], kind="stable")[:most]]
