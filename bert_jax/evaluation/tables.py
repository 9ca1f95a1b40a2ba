"""`TableEvaluator`: evaluate a model of texts, or of pairs of texts, over the rows of a table."""

import abc
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from bert_jax import storage
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.features import Features, encode_texts
from bert_jax.data.finetuning.records import table_name
from bert_jax.data.finetuning.tables import Example, example_of, read_rows, texts_of
from bert_jax.data.invalid_rows import InvalidRows, check_texts, place
from bert_jax.errors import InputError, did_you_mean
from bert_jax.evaluation.driver import Evaluated, Evaluator

if TYPE_CHECKING:
    from bert_jax.reports.attention import Attend, Attention
    from bert_jax.reports.classes import RowTexts
    from bert_jax.reports.page import Section


class TableEvaluator(Evaluator):
    """Evaluate a model of texts, or of pairs of texts, on the rows of a table.

    A subclass defines its labels, scores and answers. `predict` writes for each row the columns that are copied
    from the data, the texts (only to JSON lines), and the answer.

    Attributes:
        metrics: names of the metrics.
    """

    metrics: ClassVar[tuple[str, ...]] = ()
    default_columns = Columns("sentence", "", "label")

    def choose_metrics(self, names: Sequence[str]) -> Sequence[str]:
        """Return the metrics to compute: the given ones, or all. Raises InputError for one that is not known."""
        for name in names:
            if name not in self.metrics:
                raise InputError(f"metric {name!r} is not known{did_you_mean(name, self.metrics)}")
        return tuple(names) or self.metrics

    @property
    @abc.abstractmethod
    def header(self) -> Sequence[str]:
        """Return the names of the fields of an answer, which are columns of a table."""

    @property
    def missing(self) -> Sequence[str]:
        """Return the keys of an answer in JSON lines, which are null for an invalid row."""
        return self.header

    @abc.abstractmethod
    def labelled(self, data: Any, columns: Columns, invalid: InvalidRows) -> tuple[list[Example], np.ndarray]:
        """Return the labelled rows, and their labels in the form of `bert_jax.data.finetuning.features.Features`."""

    @abc.abstractmethod
    def scores(self, labels: np.ndarray, outputs: np.ndarray, names: Sequence[str]) -> dict[str, float]:
        """Return metrics of the model's outputs against the labels of all rows; see `choose_metrics` for `names`."""

    @abc.abstractmethod
    def answer(self, output: np.ndarray) -> dict[str, Any]:
        """Convert an output of the model to an answer: the keys and values of a JSON object."""

    def sections(self, labels: np.ndarray, outputs: np.ndarray, row: "RowTexts", attend: "Attend") -> "list[Section]":
        """Return the sections of the report; the arguments are those of `bert_jax.reports.classes.one_label`."""
        return []

    def features(self, rows: Sequence[Example], labels: np.ndarray) -> Features:
        """Tokenize rows, with the model's prompt before their first text."""
        return encode_texts(self.runner.tokenizer, self.prompted(rows), labels, self.runner.max_length)

    def prompted(self, rows: Sequence[Example]) -> Sequence[Example]:
        """Return rows with the model's prompt before their first text."""
        prompt = self.runner.prompt
        return [row._replace(text=prompt + row.text) for row in rows] if prompt else rows

    def outputs(self, features: Features) -> np.ndarray:
        """Return the output of the model for each example, `[n, ...]`: what its task predicts as `logits`."""
        return self.predictor(features, "logits")

    def evaluate(self, data: Any, columns: Columns, metric_names: Sequence[str], invalid: InvalidRows) -> Evaluated:
        """Score the model, as `Evaluator.evaluate` says."""
        names = self.choose_metrics(metric_names)
        rows, labels = self.labelled(data, columns, invalid)
        features = self.features(rows, labels)
        outputs = self.outputs(features)
        scores = self.scores(labels, outputs, names) | {"examples": len(rows)}

        def row(number: int) -> tuple[int, dict[str, str]]:
            return rows[number].line, texts_of(rows[number], columns)

        def attend(number: int) -> "Attention | None":
            return self.runner.attention(self.head, features, self.example_of_row(features, number))

        return Evaluated(scores, lambda: self.sections(labels, outputs, row, attend))

    def example_of_row(self, features: Features, number: int) -> int:
        """Return the number of the example whose attention the report shows for a row."""
        return number

    def predict(self, data: Any, out: storage.PathLike, columns: Columns, invalid: InvalidRows) -> int:
        """Write a prediction for every row, as `Evaluator.predict` says."""
        from bert_jax.evaluation.writing import attach_columns, write_answers

        name = table_name(data)

        def checked(row: tuple[int, dict[str, Any]]) -> _Row:
            checked_row = _Row(example_of(row, columns), columns.carried(row[1]))
            with attach_columns(checked_row.kept):
                self.check_row(place(name, row[0]), texts_of(checked_row.example, columns))
            return checked_row

        def answer(chunk: list[_Row]) -> Iterator[tuple[dict[str, Any], Sequence[Any]]]:
            return self._answers([row.example for row in chunk])

        rows = invalid.fitting(invalid.each(read_rows(data, columns, invalid), checked))
        return write_answers(out, self.header, rows, answer, self.missing, lambda row: row.kept)

    def check_row(self, where: str, texts: dict[str, str]) -> None:
        """Raise InvalidRow when a text of a row is empty; `where` is the place of the row in its file."""
        check_texts(where, texts)

    def fields(self, answer: dict[str, Any]) -> Sequence[Any]:
        """Return an answer as the fields of `header`."""
        return [answer[name] for name in self.header]

    def _answers(self, rows: Sequence[Example]) -> Iterator[tuple[dict[str, Any], Sequence[Any]]]:
        """Yield the answer to each row, as a JSON object that also has the texts, and as the fields of a table."""
        outputs = self.outputs(self.features(rows, np.zeros(len(rows), np.int32)))
        for row, output in zip(rows, outputs, strict=True):
            texts = {"text": row.text} | ({} if row.pair is None else {"pair": row.pair})
            answer = self.answer(output)
            yield texts | answer, self.fields(answer)


class _Row(NamedTuple):
    """A row to predict, and its columns to copy to the answer."""

    example: Example
    kept: dict[str, Any]
