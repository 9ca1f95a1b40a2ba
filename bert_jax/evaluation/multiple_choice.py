"""Evaluate a multiple-choice model over a table (`evaluate`), and write its predictions (`predict`)."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax import storage
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.groups import encode_groups
from bert_jax.data.finetuning.records import table_name
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows
from bert_jax.errors import InputError, did_you_mean
from bert_jax.evaluation.model_runner import open_runner
from bert_jax.evaluation.predictions import RowPredictor, check_out, to_answer, write_answers
from bert_jax.inference.scoring import short
from bert_jax.modeling import Bert
from bert_jax.reports import page
from bert_jax.reports.choices import Choices, choices
from bert_jax.tasks.multiple_choice import (
    HEAD,
    ChoiceQuestion,
    MultipleChoiceTask,
    encode_questions,
    read_answered,
    read_choice_questions,
)
from bert_jax.tasks.remembered import read_remembered as read_remembered

COLUMNS = Columns("context", "", "label", texts="choices")  # where the caller names none


def evaluate(
    model_dir: storage.PathLike,
    data: Any,
    columns: Columns,
    *,
    metric_names: Sequence[str] = (),
    invalid_rows: str = "strict",
    report: storage.PathLike | None = None,
    **options: Any,
) -> dict[str, float]:
    """Scores a model of multiple choice on questions with their answers.

    Args:
        model_dir: a directory in the Hugging Face layout.
        data: what `bert_jax.data.finetuning.tables.read_rows` takes.
        columns: of `bert_jax.tasks.multiple_choice.columns_of`, where they are not those that the model
            remembers, or those of `COLUMNS`.
        metric_names: accuracy; empty for it too.
        invalid_rows: of `bert_jax.data.invalid_rows.RULES`, for rows that do not fit.
        report: a file to write, `.html`: the page of `bert_jax.reports.choices`.
        options: of `bert_jax.evaluation.model_runner.open_runner`.

    Returns:
        The metrics, and `examples`, the number of rows.

    Raises:
        InputError: the model, the data or the report's name do not fit; among others, a label that is no choice.
    """
    page.check_path(report)
    storage.check_output(report or "", data)
    for name in metric_names:
        if name != "accuracy":
            raise InputError(f"{name!r} is not a metric of multiple choice{did_you_mean(name, ['accuracy'])}")
    runner = open_runner(model_dir, HEAD, **options)
    task = MultipleChoiceTask(Bert(runner.config, HEAD, runner.compute))
    bad = InvalidRows(table_name(data), invalid_rows, skipping="--skip")
    columns, predictor = _filled(columns, model_dir), RowPredictor(runner, task.predict)
    questions = read_answered(data, columns, bad)
    rows = encode_questions(runner.tokenizer, questions, runner.max_length)
    batches, predictions = predictor.batches(rows)
    scores = task.score(predictions, batches) | {"examples": len(rows)}
    if report is not None:
        texts = [Choices(row.line, row.context, row.question, row.choices) for row in questions]
        attend = functools.partial(runner.attention, HEAD, rows.sequences)
        sections = choices(rows.labels, predictor.in_order(rows, predictions, "logits"), texts, attend)
        page.write_page(report, page.Heading(str(model_dir), table_name(data), scores), sections)
    return scores


def predict(
    model_dir: storage.PathLike,
    data: Any,
    out: storage.PathLike,
    columns: Columns,
    *,
    invalid_rows: str = "strict",
    **options: Any,
) -> int:
    """Writes the choice for every row, in the order of the rows, in constant memory.

    A `.jsonl` file gets an object a row: `context`, `question` where there is one, `choices`, `label` (the number of
    the chosen one) and `scores` (a probability each). A table gets a header and the columns `label` and one
    probability a choice. Columns that `columns` keeps stand before the answer.

    Args:
        model_dir: a directory in the Hugging Face layout.
        data: what `bert_jax.data.finetuning.tables.read_rows` takes.
        out: the file to write, one of `predictions.OUT_FORMATS`; there when all is done, or not at all.
        columns: of `data`, as in `evaluate`; a label is not needed and not looked at.
        invalid_rows: as in `evaluate`; with `skip`, an invalid row keeps its place (`predictions.write_answers`).
        options: of `bert_jax.evaluation.model_runner.open_runner`.

    Returns:
        The number of rows.

    Raises:
        InputError: the model or the data do not fit.
    """
    check_out(out, data=data)
    runner = open_runner(model_dir, HEAD, **options)
    task = MultipleChoiceTask(Bert(runner.config, HEAD, runner.compute))
    predictor = RowPredictor(runner, task.predict)

    def answer(chunk: list[ChoiceQuestion]) -> Iterator[tuple[dict[str, Any], list[Any]]]:
        pairs = [row.pairs for row in chunk]
        groups = encode_groups(runner.tokenizer, pairs, np.zeros(len(chunk), np.int32), runner.max_length)
        for row, logits in zip(chunk, predictor(groups, "logits").astype(np.float64), strict=True):
            label, shares = int(logits.argmax()), np.exp(logits - logits.max())
            scores = [short(share) for share in shares / shares.sum()]
            texts = {"context": row.context} | ({"question": row.question} if row.question else {})
            yield texts | {"choices": row.choices, "label": label, "scores": scores}, [label, *scores]

    bad = to_answer(data, invalid_rows)
    rows = bad.fitting(read_choice_questions(data, dataclasses.replace(_filled(columns, model_dir), label=""), bad))
    before = []  # up to the first that fits, which settles the header; there is one, as otherwise reading is refused
    for row in rows:
        before.append(row)
        if not isinstance(row, InvalidRow):
            break
    header = ["label", *(f"choice_{i}" for i in range(len(before[-1].choices)))]
    return write_answers(out, header, itertools.chain(before, rows), answer, ("label", "scores"), lambda row: row.kept)


def _filled(columns: Columns, model_dir: storage.PathLike) -> Columns:
    return columns.filled(read_remembered(model_dir).columns).filled(COLUMNS)
