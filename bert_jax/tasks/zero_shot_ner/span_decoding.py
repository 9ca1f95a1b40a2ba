"""Choose entities among scored spans."""

from typing import NamedTuple

import numpy as np


class ScoredSpans(NamedTuple):
    """Spans of words with a type and a score each, `[n]` arrays.

    Attributes:
        start: first word.
        stop: word after the last.
        kind: number of the entity type.
        score: probability.
    """

    start: np.ndarray
    stop: np.ndarray
    kind: np.ndarray
    score: np.ndarray

    def select(self, index: np.ndarray) -> "ScoredSpans":
        """Return the spans with the numbers in `index`."""
        return ScoredSpans(*(column[index] for column in self))


def spans_above(logits: np.ndarray, threshold: float, first: int = 0) -> ScoredSpans:
    """Return the spans whose probability is above a threshold, ordered by first word, width and type.

    Args:
        logits: float32 `[W, K, T]`, of the spans that begin at each of W words and have 1 to K words, for T types.
        threshold: the probability.
        first: number of the first word.
    """
    scores = 1 / (1 + np.exp(-np.maximum(logits, np.float32(-80))))  # clipped, so that exp does not overflow
    start, width, kind = np.nonzero((scores > threshold) & (logits > -80))
    return ScoredSpans(start + first, start + first + width + 1, kind, scores[start, width, kind])


def choose_spans(spans: ScoredSpans, flat: bool = True, multi_label: bool = False) -> ScoredSpans:
    """Choose spans greedily, the most probable first, and return them ordered by first word.

    Args:
        spans: the candidates.
        flat: whether chosen spans must not overlap; otherwise one may lie inside another, but not cross it.
        multi_label: whether a span may have several types.
    """
    chosen: list[int] = []
    is_used = np.zeros(int(spans.stop.max(initial=0)), np.bool_)  # words of chosen spans
    ranges: set[tuple[int, int]] = set()
    for i in np.argsort(-spans.score, kind="stable").tolist():
        start, stop = int(spans.start[i]), int(spans.stop[i])
        if (start, stop) in ranges:
            fits = multi_label
        elif not is_used[start:stop].any():
            fits = True
        else:
            fits = not flat and not any(_cross(start, stop, *other) for other in ranges)
        if fits:
            chosen.append(i)
            ranges.add((start, stop))
            is_used[start:stop] = True
    chosen_spans = spans.select(np.array(chosen, np.int64))
    return chosen_spans.select(np.argsort(chosen_spans.start, kind="stable"))


def _cross(start: int, stop: int, other_start: int, other_stop: int) -> bool:
    """Return whether two spans overlap, and neither contains the other."""
    overlap = start < other_stop and other_start < stop
    inside = (start <= other_start and other_stop <= stop) or (other_start <= start and stop <= other_stop)
    return overlap and not inside
