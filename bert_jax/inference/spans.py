"""Find the best answer spans of a context from the logits of its windows.

Devlin et al. 2018 (arXiv:1810.04805), sections 4.2 and 4.3: a passage scores the logit of its first token as a
beginning and that of its last as an end, and no answer those of [CLS].
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bert_jax.data.finetuning.question_windows import NULL, QuestionWindow, QuestionWindows, best_window


class Span(NamedTuple):
    """The characters `[start, end)` of a context, and the sum of both logits."""

    score: float
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class SpanSearch:
    """Which passages there may be.

    Attributes:
        max_answer_length: tokens of the longest.
        n_best: how many of the likeliest beginnings and ends of a window are tried with each other; 0 = all, and so
            where these give no passage.
        top_k: how many passages are wanted.
    """

    max_answer_length: int = 30
    n_best: int = 20
    top_k: int = 1


def find_spans(
    windows: QuestionWindows, question: int, logits: Callable[[int], tuple[np.ndarray, np.ndarray]], search: SpanSearch
) -> tuple[list[Span], float]:
    """The best passages of a question's context, and the score of there being no answer.

    A passage is looked for in the window that shows most around its first token (`best_window`). Between the first and
    the last characters of a passage is text: none is empty, begins or ends with whitespace, or comes twice.

    Args:
        windows: of all questions.
        question: which of them.
        logits: window -> its logits of beginnings and of ends, float `[S]` each, by places of its row.
        search: which passages there may be.

    Returns:
        Up to `top_k` spans, the best first, and the least sum of both logits of [CLS] over the windows.
    """
    numbers = range(*windows.firsts[question : question + 2])
    context = windows.contexts[question]
    owner = best_window([QuestionWindow(int(windows.starts[i]), int(windows.sizes[i])) for i in numbers])
    spans, null = [], np.inf
    for i, window in enumerate(numbers):
        starts, ends = (np.asarray(part, np.float64) for part in logits(window))
        null = min(null, float(starts[NULL] + ends[NULL]))
        first, size, place = windows.starts[window], windows.sizes[window], windows.place(window)
        part = slice(place, place + size)
        begins, stops = (array[first : first + size] for array in (context.begins, context.ends))
        spans += _in_window(starts[part], ends[part], begins, stops, owner[first : first + size] == i, search)
    if not spans and search.n_best:
        return find_spans(windows, question, logits, dataclasses.replace(search, n_best=0))
    distinct: dict[tuple[int, int], Span] = {}
    for span in sorted(spans, key=lambda span: -span.score):  # stable: of equals, the one of the earlier window
        distinct.setdefault(span[1:], span)
    return list(distinct.values())[: search.top_k], null


def _in_window(
    starts: np.ndarray, ends: np.ndarray, begins: np.ndarray, stops: np.ndarray, own: np.ndarray, search: SpanSearch
) -> list[Span]:
    """The best `top_k` spans of a window whose tokens have logits `starts` and `ends` [l] and characters
    `[begins, stops)`, where a span may begin with its `own` tokens only."""
    most = search.n_best or len(starts)
    solid = begins < stops  # tokens of whitespace, or of nothing, are no ends of a passage
    first, last = np.flatnonzero(own & solid), np.flatnonzero(solid)
    first = first[np.argsort(-starts[first], kind="stable")[:most]][:, None]
    last = last[np.argsort(-ends[last], kind="stable")[:most]][None, :]
    fits = (last >= first) & (last - first < search.max_answer_length)
    found = np.flatnonzero(fits)
    scores = (starts[first] + ends[last]).ravel()[found]
    first, last = (np.broadcast_to(array, fits.shape).ravel()[found] for array in (first, last))
    # More than are wanted, since neighbouring tokens can have the same characters.
    best = np.argsort(-scores, kind="stable")[: 1 if search.top_k == 1 else None]
    return [Span(float(scores[i]), int(begins[first[i]]), int(stops[last[i]])) for i in best]
