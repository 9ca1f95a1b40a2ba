"""Evaluate multiple-choice models over tables, and write their choices beside the rows."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax import storage
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.groups import encode_groups
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows
from bert_jax.errors import InputError, did_you_mean
from bert_jax.evaluation.driver import Evaluated, Evaluator
from bert_jax.evaluation.writing import write_answers
from bert_jax.inference.scoring import short, softmax
from bert_jax.modeling import Bert
from bert_jax.reports import page
from bert_jax.tasks.multiple_choice.report import Choices, choices
from bert_jax.tasks.multiple_choice.task import (
    HEAD,
    ChoiceQuestion,
    MultipleChoiceTask,
    encode_questions,
    read_answered,
    read_choice_questions,
)


class MultipleChoiceEvaluator(Evaluator):
    """Evaluate a multiple-choice model.

    `predict` writes one object per row to a `.jsonl` file: `context`, `question` where there is one, `choices`, `label`
    (the number of the predicted choice) and `scores` (one probability per choice). A table has a header and the columns
    `label` and one probability per choice. Columns copied from the data come first.
    """

    head = HEAD
    default_columns = Columns("context", "", "label", texts="choices")
    task: MultipleChoiceTask

    def build_task(self, model: Bert) -> MultipleChoiceTask:
        """Return the task of the model."""
        return MultipleChoiceTask(model)

    def evaluate(self, data: Any, columns: Columns, metric_names: Sequence[str], invalid: InvalidRows) -> Evaluated:
        """Score the model by its accuracy; a label must be one of the choices."""
        for name in metric_names:
            if name != "accuracy":
                raise InputError(f"{name!r} is not a metric of multiple choice{did_you_mean(name, ['accuracy'])}")
        questions = read_answered(data, columns, invalid)
        rows = encode_questions(self.runner.tokenizer, questions, self.runner.max_length)
        batches, predictions = self.predictor.batches(rows)
        scores = self.task.score(predictions, batches) | {"examples": len(rows)}

        def sections() -> list[page.Section]:
            texts = [Choices(row.line, row.context, row.question, row.choices) for row in questions]
            attend = functools.partial(self.runner.attention, HEAD, rows.sequences)
            return choices(rows.labels, self.predictor.in_order(rows, predictions, "logits"), texts, attend)

        return Evaluated(scores, sections)

    def predict(self, data: Any, out: storage.PathLike, columns: Columns, invalid: InvalidRows) -> int:
        """Write a prediction for every row, as `Evaluator.predict` does."""
        rows = invalid.fitting(read_choice_questions(data, columns, invalid))
        first = []  # rows up to the first valid one, which determines the header; without one, reading raises
        for row in rows:
            first.append(row)
            if not isinstance(row, InvalidRow):
                break
        header = ["label", *(f"choice_{i}" for i in range(len(first[-1].choices)))]
        rows, missing = itertools.chain(first, rows), ("label", "scores")
        return write_answers(out, header, rows, self._answers, missing, lambda row: row.kept)

    def _answers(self, rows: list[ChoiceQuestion]) -> Iterator[tuple[dict[str, Any], list[Any]]]:
        """Yield each row's prediction as a JSON object and as the fields of a table."""
        pairs, labels = [row.pairs for row in rows], np.zeros(len(rows), np.int32)
        groups = encode_groups(self.runner.tokenizer, pairs, labels, self.runner.max_length)
        logits = self.predictor(groups, "logits")
        for row, probabilities in zip(rows, softmax(logits), strict=True):
            label, scores = int(probabilities.argmax()), [short(share) for share in probabilities]
            texts = {"context": row.context} | ({"question": row.question} if row.question else {})
            yield texts | {"choices": row.choices, "label": label, "scores": scores}, [label, *scores]
