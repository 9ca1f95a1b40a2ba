"""Reports of question answering: metrics by answerability, distribution of F1, the worst mistakes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.reports import attention, figures, measures
from bert_jax.reports.classes import worst_rows
from bert_jax.reports.page import (
    Html,
    Section,
    html_table,
    joined,
    line_cell,
    note,
    picture,
    shortened,
    tagged,
    text_cell,
)
from bert_jax.tasks.question_answering.data import Question

_GOLDS = 3  # maximum number of gold answers shown per question
_ID = 60  # maximum number of characters shown of an id


class Answered(NamedTuple):
    """A model's answers to n questions.

    Attributes:
        texts: the predicted answers; "" means no answer.
        odds: `[n]`, the score of no answer minus the score of the best span. If the data has unanswerable questions,
            odds above `threshold` mean that the model predicts no answer.
        threshold: threshold of the odds.
        exact, f1: `[n]`, exact match and F1 of each question, from 0 to 1.
    """

    texts: Sequence[str]
    odds: np.ndarray
    threshold: float
    exact: np.ndarray
    f1: np.ndarray


def passages(questions: Sequence[Question], answered: Answered, attend: attention.Attend) -> list[Section]:
    """Return the sections of a report on question answering; `attend` maps a question's number to its attention."""
    has_answer = np.array([bool(question.answers) for question in questions])
    may_have_none = any(question.is_impossible is not None for question in questions)
    silent = np.array([not text for text in answered.texts])
    sections = [_figures(has_answer, silent, answered), _spread(has_answer, answered)]
    if may_have_none:
        sections.append(_odds(has_answer, answered))
    # Among equal F1, the most confident mistakes come first: those whose odds are farthest from the threshold.
    confidence = np.where(silent, 1, -1) * (answered.odds - (answered.threshold if may_have_none else 0.0))
    among = answered.f1 < 1
    order = np.lexsort((-confidence, answered.f1))
    index = order[among[order]][: measures.WORST]
    lines = [_line(int(i), questions[i], answered) for i in index]
    header = ["number", "id", "question", "gold answers", "answer", "F1", "odds of no answer"]
    by = "the lowest F1, then the highest confidence"
    attention_titles = [(f"Number {i + 1}", int(i)) for i in index[: attention.ROWS]]
    return [
        *sections,
        worst_rows(by, int(among.sum()), header, lines, "questions with an F1 below 1"),
        *attention.sections(attention_titles, attend),
    ]


def _figures(has_answer: np.ndarray, silent: np.ndarray, answered: Answered) -> Section:
    rows: list[list[Any]] = []
    for name, rows_of_kind in (
        ("all", np.ones(len(has_answer), np.bool_)),
        ("with an answer", has_answer),
        ("without an answer", ~has_answer),
    ):
        if rows_of_kind.any():
            means = [100 * float(values[rows_of_kind].mean()) for values in (answered.exact, answered.f1, ~silent)]
            rows.append([name, int(rows_of_kind.sum()), *means])
    header = ["questions", "count", "exact match", "F1", "answered"]
    words = "In per cent, as in SQuAD's own scripts; answered = the share of questions with a predicted span."
    return Section("Answerable or not", joined([note(words), html_table("answerable", header, rows)]))


def _spread(has_answer: np.ndarray, answered: Answered) -> Section:
    """Return the section with the distribution of F1 over questions."""
    drawn = figures.histogram(_by_kind(has_answer, answered.f1), "F1 of a question", np.linspace(0, 1, 21))
    f1 = answered.f1
    rows = [["0", int((f1 == 0).sum())], ["between", int(((f1 > 0) & (f1 < 1)).sum())], ["1", int((f1 == 1).sum())]]
    return Section(
        "Spread of F1", joined([picture(drawn, "histogram of F1"), html_table("spread", ["F1", "questions"], rows)])
    )


def _odds(has_answer: np.ndarray, answered: Answered) -> Section:
    low, high = np.quantile(np.append(answered.odds, answered.threshold), [0.01, 0.99])
    edges = np.linspace(low, max(high, low + 1), 41)
    drawn = figures.histogram(_by_kind(has_answer, answered.odds), "odds of no answer", edges, at=answered.threshold)
    words = (
        "The score of no answer minus the score of the best span, in logits. Right of the dashed line the model "
        "predicts "
        "no answer. Values beyond the ends are counted in the outermost bars."
    )
    return Section("Odds of no answer", joined([note(words), picture(drawn, "histogram of the odds of no answer")]))


def _by_kind(has_answer: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    kinds = {"with an answer": values[has_answer], "without an answer": values[~has_answer]}
    return {name: part for name, part in kinds.items() if len(part)}


def _line(number: int, question: Question, answered: Answered) -> list[Any]:
    golds = list(dict.fromkeys(answer.text for answer in question.answers))
    gold_cells = [tagged("div", shortened(text), dir="auto") for text in golds[:_GOLDS]]
    if len(golds) > _GOLDS:
        gold_cells.append(tagged("div", f"and {len(golds) - _GOLDS} more"))
    gold = tagged("td", *(gold_cells or [_nothing()]), class_="t")
    text = answered.texts[number]
    answer = text_cell(text) if text else tagged("td", _nothing(), class_="t")
    sides = [text_cell(question.question), gold, answer]
    return [
        line_cell(number + 1),
        tagged("code", shortened(question.id, _ID)),
        *sides,
        float(answered.f1[number]),
        float(answered.odds[number]),
    ]


def _nothing() -> Html:
    return tagged("em", "no answer")
