"""Find the best answer spans of a context from the logits of its windows.

Devlin et al. 2018 (arXiv:1810.04805), sections 4.2 and 4.3: the score of a span is the start logit of its first token
plus the end logit of its last token; the score of no answer is the sum of both logits of [CLS].
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bert_jax.data.finetuning.windows import ContextWindow
from bert_jax.tasks.question_answering.windows import NULL, QuestionWindows, best_window


class Span(NamedTuple):
    """A span of characters `[start, end)` of a context, with its score: the sum of start and end logit."""

    score: float
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class SpanSearch:
    """Options of the search for answer spans.

    Attributes:
        max_answer_length: maximum number of tokens in a span.
        n_best: number of most likely starts and ends of a window that are combined into spans; 0 = all. If they yield
            no span, all starts and ends are combined.
        top_k: number of spans to return.
    """

    max_answer_length: int = 30
    n_best: int = 20
    top_k: int = 1


def find_spans(
    windows: QuestionWindows, question: int, logits: Callable[[int], tuple[np.ndarray, np.ndarray]], search: SpanSearch
) -> tuple[list[Span], float]:
    """Find the best answer spans of a question's context, and the score of no answer.

    A span is taken from the window that shows the most context around its first token (`best_window`). No span is
    empty, begins or ends with whitespace, or is returned twice.

    Args:
        windows: the windows of all questions.
        question: number of the question.
        logits: function from the number of a window to its start and end logits, float `[S]` each.
        search: options of the search.

    Returns:
        Up to `top_k` spans, the best first, and the score of no answer: the lowest sum of both logits of [CLS] over the
        windows.
    """
    numbers = range(*windows.firsts[question : question + 2])
    context = windows.contexts[question]
    owner = best_window([ContextWindow(int(windows.starts[i]), int(windows.sizes[i])) for i in numbers])
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
    for span in sorted(spans, key=lambda span: -span.score):  # stable: of equal scores, the earlier window comes first
        distinct.setdefault(span[1:], span)
    return list(distinct.values())[: search.top_k], null


def _in_window(
    starts: np.ndarray, ends: np.ndarray, begins: np.ndarray, stops: np.ndarray, allowed: np.ndarray, search: SpanSearch
) -> list[Span]:
    """Return the best spans of a window with l context tokens.

    Args:
        starts, ends: start and end logits `[l]`.
        begins, stops: character range `[begin, stop)` of each token, `[l]` each.
        allowed: bool `[l]`, the tokens at which a span may begin.
        search: options of the search.
    """
    most = search.n_best or len(starts)
    solid = begins < stops  # a span does not begin or end with a token of whitespace or of no characters
    first, last = np.flatnonzero(allowed & solid), np.flatnonzero(solid)
    first = first[np.argsort(-starts[first], kind="stable")[:most]][:, None]
    last = last[np.argsort(-ends[last], kind="stable")[:most]][None, :]
    fits = (last >= first) & (last - first < search.max_answer_length)
    span_index = np.flatnonzero(fits)
    scores = (starts[first] + ends[last]).ravel()[span_index]
    first, last = (np.broadcast_to(array, fits.shape).ravel()[span_index] for array in (first, last))
    # More spans than `top_k`, since some are duplicates: neighbouring tokens can have the same characters.
    best = np.argsort(-scores, kind="stable")[: 1 if search.top_k == 1 else None]
    return [Span(float(scores[i]), int(begins[first[i]]), int(stops[last[i]])) for i in best]
