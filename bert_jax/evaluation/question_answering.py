"""Evaluate a question answering model over SQuAD files (`evaluate`), and write its answers by id (`predict`)."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from bert_jax import storage
from bert_jax.data.finetuning.question_windows import Limits
from bert_jax.data.finetuning.squad import Question, read_questions
from bert_jax.data.finetuning.tables import Columns
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows
from bert_jax.errors import InputError, did_you_mean
from bert_jax.evaluation.model_runner import ModelRunner, open_runner
from bert_jax.evaluation.predictions import RowPredictor, check_out
from bert_jax.inference.spans import SpanSearch
from bert_jax.metrics import squad as squad_scores
from bert_jax.modeling import Bert
from bert_jax.reports import page
from bert_jax.reports.attention import Attention
from bert_jax.reports.passages import Answered, passages
from bert_jax.tasks.question_answering import (
    HEAD,
    NOTHING_TO_ANSWER,
    FoundSpans,
    QuestionAnsweringTask,
    asked,
    figures,
)

# What `bert-jax evaluate` and `predict` may be told beyond what all tasks take.
OPTIONS = ("doc_stride", "max_answer_length", "null_threshold")
_CHUNK = 1024  # questions whose windows are held at a time: enough to find rows of one length, few enough for memory


@dataclasses.dataclass(frozen=True, eq=False)
class Answerer:
    """A model that answers questions, ready to be run on all devices of this machine.

    Attributes:
        task: the model and what it does.
        runner: its tokenizer, and the limits within which it runs.
        limits: how questions and contexts are cut.
        predictor: runs the model over windows.
    """

    task: QuestionAnsweringTask
    runner: ModelRunner
    limits: Limits
    predictor: RowPredictor

    def answers(self, questions: Iterator[Question]) -> Iterator[tuple[Sequence[Question], dict[str, FoundSpans]]]:
        """Yields questions, some at a time, and by their ids what is found for them."""
        while chunk := list(islice(questions, _CHUNK)):
            part = asked(chunk, self.runner.tokenizer, self.limits)
            batches, predictions = self.predictor.batches(part.windows)
            yield chunk, self.task.answers(part, predictions, batches)

    def attention(self, question: Question) -> Attention | None:
        """How the tokens of a question and of what is first in its context attend to one another."""
        return self.runner.attention(HEAD, asked([question], self.runner.tokenizer, self.limits).windows, 0)


def open_answerer(
    model_dir: storage.PathLike,
    *,
    max_seq_length: int = 0,
    doc_stride: int = Limits.doc_stride,
    max_query_length: int = 0,
    max_answer_length: int = SpanSearch.max_answer_length,
    n_best: int = SpanSearch.n_best,
    null_threshold: float = 0.0,
    **options: Any,
) -> Answerer:
    """Opens a model directory whose head answers questions.

    Args:
        model_dir: a directory in the Hugging Face layout.
        max_seq_length: tokens of a row; 0 = 384, or the model's own limit where that is less.
        doc_stride: as in `bert_jax.data.finetuning.question_windows.Limits`.
        max_query_length: tokens of a question; 0 = 64, or half of the row where that is less.
        max_answer_length, n_best: as in `bert_jax.inference.spans.SpanSearch`.
        null_threshold: null odds above it mean no answer, where the data have questions without one.
        options: of `bert_jax.evaluation.model_runner.open_runner`.

    Raises:
        InputError: the directory holds no such model, or an option does not fit it.
    """
    runner = open_runner(model_dir, HEAD, max_seq_length=max_seq_length, **options)
    length = max_seq_length or min(runner.max_length, Limits.max_seq_length)
    limits = Limits(length, doc_stride, max_query_length or min(Limits.max_query_length, length // 2))
    limits.check(runner.tokenizer.layout)
    for name, value, least in (("max_answer_length", max_answer_length, 1), ("n_best", n_best, 0)):
        if value < least:
            raise InputError(f"{name}: expected at least {least}, found {value}")
    if not np.isfinite(null_threshold):
        raise InputError(f"null_threshold: expected a finite number, found {null_threshold}")
    task = QuestionAnsweringTask(
        Bert(runner.config, HEAD, runner.compute), SpanSearch(max_answer_length, n_best), null_threshold
    )
    return Answerer(task, runner, limits, RowPredictor(runner, task.predict, limits.max_seq_length))


def evaluate(
    model_dir: storage.PathLike,
    data: str,
    columns: Columns,
    *,
    metric_names: Sequence[str] = (),
    invalid_rows: str = "strict",
    report: storage.PathLike | None = None,
    **options: Any,
) -> dict[str, float]:
    """Scores a question answering model as SQuAD's own scripts score it.

    Args:
        model_dir: a directory in the Hugging Face layout.
        data: what `bert_jax.data.finetuning.squad.read_questions` takes.
        columns: none: the data have no columns.
        metric_names: of the figures of `bert_jax.metrics.squad` for the data's version; empty for all.
        invalid_rows: of `bert_jax.data.invalid_rows.RULES`, for questions that do not fit.
        report: a file to write, `.html`: the page of `bert_jax.reports.passages`.
        options: of `open_answerer`.

    Returns:
        The figures, and `examples`, the number of questions.

    Raises:
        InputError: the model, the data or the report's name do not fit.
    """
    page.check_path(report)
    _check_columns(columns)
    model = open_answerer(model_dir, **options)
    questions: list[Question] = []
    found: dict[str, FoundSpans] = {}
    bad = InvalidRows(data, invalid_rows, "question", "--skip")
    for chunk, answers in model.answers(bad.fitting(read_questions(data, anywhere=True, bad=bad))):
        questions += chunk
        found |= answers
    scores = figures(questions, found, model.task.null_threshold)
    for name in metric_names:
        if name not in scores:
            raise InputError(f"{name!r} is no figure of these data{did_you_mean(name, scores)}")
    scores = {name: scores[name] for name in metric_names or scores} | {"examples": len(questions)}
    if report is not None:
        answered = _answered(questions, found, model.task.null_threshold)
        sections = passages(questions, answered, lambda i: model.attention(questions[i]))
        page.write_page(report, page.Heading(str(model_dir), data, scores), sections)
    return scores


def _answered(questions: Sequence[Question], found: Mapping[str, FoundSpans], threshold: float) -> Answered:
    """What is answered to each question, and what that adds to the figures."""
    second = any(question.is_impossible is not None for question in questions)
    odds = np.array([found[question.id].null_odds for question in questions])
    taken_back = second & (odds > threshold)
    parts = [
        squad_scores.of_question(question, found[question.id].text, second, bool(back))
        for question, back in zip(questions, taken_back, strict=True)
    ]
    exact, f1 = np.array(parts).T
    texts = ["" if back else found[question.id].text for question, back in zip(questions, taken_back, strict=True)]
    return Answered(texts, odds, threshold, exact, f1)


def predict(
    model_dir: storage.PathLike,
    data: str,
    out: storage.PathLike,
    columns: Columns,
    *,
    invalid_rows: str = "strict",
    **options: Any,
) -> int:
    """Writes a question answering model's answers as SQuAD's scripts read them: one JSON object, question id -> text.

    Where questions may have no answer, "" says so, and `NAME.null_odds.json` beside `NAME.json` holds by id how much
    more speaks for no answer than for the best passage: what version 2.0's script reads as `--na-prob-file`.

    Args:
        model_dir: a directory in the Hugging Face layout.
        data: what `bert_jax.data.finetuning.squad.read_questions` takes; answers are not needed and not looked at.
        out: the file to write, `.json`; there when all is done, or not at all.
        columns: none, as in `evaluate`.
        invalid_rows: as in `evaluate`; with `skip`, the answer to an invalid question is "", where it has an id.
        options: of `open_answerer`.

    Returns:
        The number of questions.

    Raises:
        InputError: the model or the data do not fit.
    """
    _check_columns(columns)
    check_out(out, (".json",))
    model = open_answerer(model_dir, **options)
    texts: dict[str, str] = {}
    odds: dict[str, float] = {}
    unanswered: list[str] = []
    for chunk, answers in model.answers(_that_fit(data, invalid_rows, unanswered)):
        for question in chunk:
            text, null_odds = answers[question.id]
            if question.is_impossible is not None:
                odds[question.id] = null_odds
                text = text if null_odds <= model.task.null_threshold else ""
            texts[question.id] = text
    for name in unanswered:
        texts.setdefault(name, "")
        if odds:
            odds.setdefault(name, NOTHING_TO_ANSWER)
    if odds:
        storage.write_atomically(f"{str(out).removesuffix('.json')}.null_odds.json", json.dumps(odds, indent=1) + "\n")
    storage.write_atomically(out, json.dumps(texts, indent=1, ensure_ascii=False) + "\n")
    return len(texts)


def _that_fit(data: str, invalid_rows: str, others: list[str]) -> Iterator[Question]:
    """Yields the questions that can be answered, and puts the ids of the others into a list."""
    bad = InvalidRows(data, invalid_rows, "question", "--skip", keeping=True)
    for question in bad.fitting(read_questions(data, with_answers=False, bad=bad)):
        if not isinstance(question, InvalidRow):
            yield question
        elif question.name:
            others.append(question.name)


def _check_columns(columns: Columns) -> None:
    if columns != Columns():
        raise InputError("expected no columns, since questions come in SQuAD's JSON, found some named")
