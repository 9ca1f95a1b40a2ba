"""Reports of multiple choice: accuracy by position of the right choice, calibration, the worst mistakes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.inference.scoring import log_softmax
from bert_jax.reports import attention, measures
from bert_jax.reports.classes import calibration_of_answers, confusion_section, per_class_section, worst_rows
from bert_jax.reports.page import Html, Section, line_cell, shortened, tagged, text_cell


class Choices(NamedTuple):
    """A row of multiple choice: its line number, context, question ("" = none) and choices."""

    line: int
    context: str
    question: str
    choices: Sequence[str]


def choices(labels: np.ndarray, logits: np.ndarray, rows: Sequence[Choices], attend: attention.Attend) -> list[Section]:
    """Return the sections of a report on multiple choice.

    Args:
        labels: int `[n]`, number of the right choice, from 0.
        logits: `[n, K]`.
        rows: the n rows.
        attend: function from number `i * K + k` to the attention of choice k of row i.
    """
    shares = log_softmax(logits)
    answers = logits.argmax(-1)
    losses = -shares[np.arange(len(labels)), labels]
    wrong = answers != labels
    index = measures.worst(losses, wrong)
    worst = [rows[i] for i in index]
    has_questions = any(row.question for row in worst)
    lines: list[list[Any]] = []
    for i, row in zip(index, worst, strict=True):
        choices_cell = _told(row.choices, np.exp(shares[i]), int(labels[i]), int(answers[i]))
        texts = [row.context, row.question] if has_questions else [row.context]
        lines.append([line_cell(row.line), *map(text_cell, texts), choices_cell, float(losses[i])])
    header = ["line", "context", *(["question"] if has_questions else []), "choices", "loss"]
    attention_titles = [
        (f"Line {row.line}, choice {answers[i]}", int(i * logits.shape[1] + answers[i]))
        for i, row in zip(index, worst, strict=True)
    ]
    names = [f"choice {place}" for place in range(logits.shape[1])]
    return [
        per_class_section(names, measures.per_class(labels, answers, len(names)), "place"),
        confusion_section(names, labels, answers),
        calibration_of_answers(np.exp(shares.max(-1)), ~wrong),
        worst_rows("the greatest loss of the right choice", int(wrong.sum()), header, lines),
        *attention.sections(attention_titles[: attention.ROWS], attend),
    ]


def _told(texts: Sequence[str], shares: np.ndarray, gold: int, answer: int) -> Html:
    """Return a cell with the choices, numbered from 0, and their probabilities."""
    items = []
    for place, (text, share) in enumerate(zip(texts, shares, strict=True)):
        kind = " (gold)" if place == gold else " (answer)" if place == answer else ""
        mark = tagged("span", f"{share:.4f}{kind}", class_={" (gold)": "good", " (answer)": "bad"}.get(kind, ""))
        items.append(tagged("div", f"{place}: ", tagged("bdi", shortened(text)), " ", mark))
    return tagged("td", *items, class_="t")
