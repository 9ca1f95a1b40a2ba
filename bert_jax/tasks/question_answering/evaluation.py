"""Evaluate question answering models on SQuAD files, and write their answers as question id -> text."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from bert_jax import storage
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows
from bert_jax.errors import InputError, did_you_mean, printable_json
from bert_jax.evaluation.driver import Evaluated, Evaluator
from bert_jax.evaluation.predictions import RowPredictor
from bert_jax.modeling import Bert
from bert_jax.reports import page
from bert_jax.reports.attention import Attention
from bert_jax.tasks.question_answering import metrics as squad_scores
from bert_jax.tasks.question_answering.data import Question, read_questions
from bert_jax.tasks.question_answering.report import Answered, passages
from bert_jax.tasks.question_answering.spans import SpanSearch
from bert_jax.tasks.question_answering.task import (
    HEAD,
    NOTHING_TO_ANSWER,
    FoundSpans,
    QuestionAnsweringTask,
    asked,
    figures,
)
from bert_jax.tasks.question_answering.windows import Limits

_CHUNK = 1024  # questions per chunk: enough to batch windows of similar length, few enough for memory


class QuestionAnsweringEvaluator(Evaluator):
    """Evaluate a question answering model.

    `predict` writes the input of SQuAD's scripts: one JSON object, question id -> text. If questions may have no
    answer, "" means no answer, and `NAME.null_odds.json` beside `NAME.json` has, for each id, the score of no answer
    minus the score of the best answer, which the script of version 2.0 reads with `--na-prob-file`.

    Args:
        model_dir: a directory in the Hugging Face layout.
        max_seq_length: maximum number of tokens in a window; 0 = 384, or the model's own limit if that is less.
        doc_stride: tokens from the start of a window to the start of the next.
        max_query_length: maximum number of tokens in a question; 0 = 64, or half of the window if that is less.
        max_answer_length: maximum number of tokens in an answer.
        n_best: number of most likely starts and ends of a window that are combined into spans; 0 = all.
        null_threshold: null odds above this mean no answer, if questions may have none.
        options: arguments of `bert_jax.evaluation.model_runner.open_runner`.

    Raises:
        InputError: the directory holds no such model, or an option does not fit it.
    """

    head = HEAD
    formats = (".json",)
    noun = "question"
    task: QuestionAnsweringTask

    def __init__(
        self,
        model_dir: storage.PathLike,
        *,
        max_seq_length: int = 0,
        doc_stride: int = Limits.doc_stride,
        max_query_length: int = 0,
        max_answer_length: int = SpanSearch.max_answer_length,
        n_best: int = SpanSearch.n_best,
        null_threshold: float = 0.0,
        **options: Any,
    ):
        for name, value, least in (("max_answer_length", max_answer_length, 1), ("n_best", n_best, 0)):
            if value < least:
                raise InputError(f"{name}: expected at least {least}, found {value}")
        if not np.isfinite(null_threshold):
            raise InputError(f"null_threshold: expected a finite number, found {null_threshold}")
        self._search, self._null_threshold = SpanSearch(max_answer_length, n_best), null_threshold
        super().__init__(model_dir, max_seq_length=max_seq_length, **options)
        length = max_seq_length or min(self.runner.max_length, Limits.max_seq_length)
        self._limits = Limits(length, doc_stride, max_query_length or min(Limits.max_query_length, length // 2))
        self._limits.check(self.runner.tokenizer.layout)
        self.predictor = RowPredictor(self.runner, self.task.predict, length)

    def build_task(self, model: Bert) -> QuestionAnsweringTask:
        """Return the task of the model."""
        return QuestionAnsweringTask(model, self._search, self._null_threshold)

    @classmethod
    def columns(cls, model_dir: storage.PathLike, columns: Columns) -> Columns:
        """Return no columns. Raises InputError if the caller names some."""
        if columns != Columns():
            raise InputError("expected no columns, since questions come in SQuAD's JSON, found column names")
        return columns

    def evaluate(self, data: Any, columns: Columns, metric_names: Sequence[str], invalid: InvalidRows) -> Evaluated:
        """Score the model as SQuAD's own scripts do, with the metrics of the data's version."""
        questions: list[Question] = []
        predictions: dict[str, FoundSpans] = {}
        for chunk, answers in self._answers(invalid.fitting(read_questions(data, anywhere=True, bad=invalid))):
            questions += chunk
            predictions |= answers
        scores = figures(questions, predictions, self.task.null_threshold)
        for name in metric_names:
            if name not in scores:
                raise InputError(f"{name!r} is not a metric of these data{did_you_mean(name, scores)}")
        scores = {name: scores[name] for name in metric_names or scores} | {"examples": len(questions)}

        def attend(i: int) -> Attention | None:
            windows = asked([questions[i]], self.runner.tokenizer, self._limits).windows
            return self.runner.attention(HEAD, windows, 0)  # the question and the first window of its context

        def sections() -> list[page.Section]:
            return passages(questions, _answered(questions, predictions, self.task.null_threshold), attend)

        return Evaluated(scores, sections)

    def predict(self, data: Any, out: storage.PathLike, columns: Columns, invalid: InvalidRows) -> int:
        """Write an answer for every question, as `Evaluator.predict` does; "" for an invalid question with an id."""
        texts: dict[str, str] = {}
        odds: dict[str, float] = {}
        unanswered: list[str] = []

        def valid() -> Iterator[Question]:
            for question in invalid.fitting(read_questions(data, with_answers=False, bad=invalid)):
                if not isinstance(question, InvalidRow):
                    yield question
                elif question.name:
                    unanswered.append(question.name)

        for chunk, answers in self._answers(valid()):
            for question in chunk:
                text, null_odds = answers[question.id]
                if question.is_impossible is not None:
                    odds[question.id] = null_odds
                    text = text if null_odds <= self.task.null_threshold else ""
                texts[question.id] = text
        for name in unanswered:
            texts.setdefault(name, "")
            if odds:
                odds.setdefault(name, NOTHING_TO_ANSWER)
        if odds:
            beside = f"{str(out).removesuffix('.json')}.null_odds.json"
            storage.write_atomically(beside, json.dumps(odds, indent=1) + "\n")
        storage.write_atomically(out, printable_json(texts, indent=1) + "\n")
        return len(texts)

    def _answers(self, questions: Iterator[Question]) -> Iterator[tuple[Sequence[Question], dict[str, FoundSpans]]]:
        """Yield chunks of questions, each with a dict of question id -> prediction."""
        while chunk := list(islice(questions, _CHUNK)):
            part = asked(chunk, self.runner.tokenizer, self._limits)
            batches, predictions = self.predictor.batches(part.windows)
            yield chunk, self.task.answers(part, predictions, batches)


def _answered(questions: Sequence[Question], answers: Mapping[str, FoundSpans], threshold: float) -> Answered:
    """Return the answer to each question, and its scores."""
    second = any(question.is_impossible is not None for question in questions)
    odds = np.array([answers[question.id].null_odds for question in questions])
    taken_back = second & (odds > threshold)
    parts = [
        squad_scores.of_question(question, answers[question.id].text, second, bool(back))
        for question, back in zip(questions, taken_back, strict=True)
    ]
    exact, f1 = np.array(parts).T
    texts = ["" if back else answers[question.id].text for question, back in zip(questions, taken_back, strict=True)]
    return Answered(texts, odds, threshold, exact, f1)
