"""Evaluate sequence classifiers and regressors over tables, and write their predictions beside the rows."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax import storage
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.features import Features, WindowFeatures, encode_texts
from bert_jax.data.finetuning.labelled_rows import labels_of, read_labelled, texts_of
from bert_jax.data.finetuning.labels import LabelRules
from bert_jax.data.finetuning.records import table_name
from bert_jax.data.finetuning.tables import Example, example_of, read_rows
from bert_jax.data.finetuning.windows import LONG_TEXTS, averaged
from bert_jax.data.invalid_rows import InvalidRows, check_texts, place
from bert_jax.errors import InputError
from bert_jax.evaluation.driver import Evaluated, Evaluator
from bert_jax.evaluation.predictions import carrying, write_answers
from bert_jax.inference.scoring import is_number, scores_of, short
from bert_jax.metrics import scores as metrics
from bert_jax.modeling import Bert
from bert_jax.reports import classes, page, values
from bert_jax.reports.attention import Attention
from bert_jax.tasks.classification import HEAD, ClassificationTask
from bert_jax.tasks.remembered import read_remembered


class ClassificationEvaluator(Evaluator):
    """Evaluate a sequence classifier or regressor.

    `predict` writes one object per row to a `.jsonl` file: the text (and pair), `label` and `scores` (label ->
    probability), or `score` for a model with one output. A `.tsv`, `.csv` or `.parquet` file has a header and the
    columns `label` and one probability per label, or `score`. Where a text may have several labels, `labels` are the
    labels with a probability over 0.5, separated by commas in a table. Columns copied from the data come first. The
    scores are those of the pipeline `text-classification`.

    Args:
        model_dir: a directory in the Hugging Face layout.
        long_texts: one of `bert_jax.data.finetuning.windows.LONG_TEXTS`: how texts longer than a row are read.
        doc_stride: tokens between the windows of a long text; 0 = half of the tokens that a row has room for.
        submission: whether `predict` writes a submission to GLUE: a `.tsv` with the columns `index` and `prediction`
            (the label or the number), and an answer for every row, including empty texts.
        options: arguments of `bert_jax.evaluation.model_runner.open_runner`.

    Raises:
        InputError: the directory holds no sequence classifier, or an option does not fit it.
    """

    head = HEAD
    options = ("submission", "long_texts", "doc_stride", "prompt_name", "prompt")
    default_columns = Columns("sentence", "", "label")
    task: ClassificationTask

    def __init__(
        self,
        model_dir: storage.PathLike,
        *,
        long_texts: str = "cut",
        doc_stride: int = 0,
        submission: bool = False,
        **options: Any,
    ):
        if long_texts not in LONG_TEXTS or doc_stride < 0:
            expected = f"expected long_texts of {' or '.join(LONG_TEXTS)} and a doc_stride of at least 0"
            raise InputError(f"{expected}, found {long_texts!r} and {doc_stride}")
        super().__init__(model_dir, **options)
        config = self.runner.config
        if config.problem_type == "regression" and config.num_labels > 1:
            raise InputError(f"{model_dir}: expected a regression with one output, found {config.num_labels}")
        self._remembered = read_remembered(model_dir)
        self._names = () if is_number(config) else config.label_names  # () for a model with one output
        self._submission = submission
        self._stride = doc_stride if long_texts == "windows" else None

    def build_task(self, model: Bert) -> ClassificationTask:
        """Return the task of the model."""
        return ClassificationTask(model, ())

    @classmethod
    def check_predict(
        cls, out: storage.PathLike, invalid_rows: str, *, submission: bool = False, **options: Any
    ) -> None:
        """Check the arguments as `Evaluator.check_predict` does; a submission is a `.tsv` with an answer per row."""
        super().check_predict(out, invalid_rows)
        if submission and not str(out).lower().endswith(".tsv"):
            raise InputError(f"{out}: expected a file named .tsv for a submission to GLUE")
        if submission and invalid_rows == "skip":
            raise InputError("--skip: expected none with --submission, which has an answer for every row")

    def evaluate(self, data: Any, columns: Columns, metric_names: Sequence[str], invalid: InvalidRows) -> Evaluated:
        """Score the model with the metrics of `bert_jax.metrics.scores`; a label must be one that the model knows."""
        number, several = not self._names, self.task.several and bool(self._names)
        separator = (columns.separator or self._remembered.columns.separator or ",") if several else ""
        columns = dataclasses.replace(columns, separator=separator)
        names = metrics.choose_metrics(metric_names, number, len(self._names), several)
        rules = LabelRules(missing=self._remembered.missing_labels)
        rows, _ = read_labelled(data, columns, self._names, number, invalid, rules)
        labels = labels_of(rows, columns, self._names)
        features = self._features(rows, labels)
        logits = self._logits(features)
        found = self._scores(logits)
        answers = found[:, 0] if number else found > 0.5 if several else found.argmax(-1)
        scores = metrics.compute_metrics(names, labels, answers) | {"examples": features.num_examples}

        def sections() -> list[page.Section]:
            def texts(i: int) -> tuple[int, dict[str, str]]:
                return rows[i].line, texts_of(rows[i], columns)

            return self._sections(texts, labels, features, logits)

        return Evaluated(scores, sections)

    def predict(self, data: Any, out: storage.PathLike, columns: Columns, invalid: InvalidRows) -> int:
        """Write a prediction for every row, as `Evaluator.predict` does."""
        submission = self._submission
        if submission:
            columns = dataclasses.replace(columns, keep_others="none")
        name, index = table_name(data), itertools.count()

        def checked(row: tuple[int, dict[str, Any]]) -> _Row:
            found = _Row(example_of(row, columns), columns.carried(row[1]))
            if not submission:
                with carrying(found.kept):
                    check_texts(place(name, row[0]), texts_of(found.example, columns))
            return found

        def answer(chunk: list[_Row]) -> Iterator[tuple[dict[str, Any], list[Any]]]:
            for described, fields in self._answers([row.example for row in chunk]):
                yield described, [next(index), self._submitted(fields[0])] if submission else fields

        key = "score" if not self._names else "labels" if self.task.several else "label"
        header = ["index", "prediction"] if submission else [key, *self._names]
        missing = (key, "scores") if self._names else (key,)
        rows = invalid.fitting(invalid.each(read_rows(data, columns, invalid), checked))
        return write_answers(out, header, rows, answer, missing, lambda row: row.kept)

    def _features(self, rows: Sequence[Example], labels: np.ndarray) -> Features:
        """Tokenize rows, with the prompt before their first text."""
        prompt = self.runner.prompt
        rows = [row._replace(text=prompt + row.text) for row in rows] if prompt else rows
        return encode_texts(self.runner.tokenizer, rows, labels, self.runner.max_length, self._stride)

    def _logits(self, features: Features) -> np.ndarray:
        """Return the logits [n, C] of the texts, averaged over the windows of a text."""
        logits = self.predictor(features, "logits")
        if isinstance(features, WindowFeatures):
            return averaged(logits, features.documents, features.lengths)
        return logits

    def _scores(self, logits: np.ndarray) -> np.ndarray:
        """Return the scores float64 [..., C] of logits [..., C], by the activation that the model's files name."""
        return scores_of(self.runner.config, logits, self.runner.settings.activation)

    def _sections(
        self, texts: classes.RowTexts, labels: np.ndarray, features: Features, logits: np.ndarray
    ) -> list[page.Section]:
        def attend(number: int) -> Attention | None:
            if isinstance(features, WindowFeatures):  # the first window of the text
                number = int(np.searchsorted(features.documents, number))
            return self.runner.attention(HEAD, features, number)

        if not self._names:
            return values.regression(labels, self._scores(logits)[:, 0], texts, attend)
        build = classes.several_labels if self.task.several else classes.one_label
        return build(self._names, labels, logits, texts, attend)

    def _answers(self, rows: Sequence[Example]) -> Iterator[tuple[dict[str, Any], list[Any]]]:
        """Yield each row's prediction as a JSON object and as the fields of a table."""
        logits = self._logits(self._features(rows, np.zeros(len(rows), np.int32)))
        for row, scores in zip(rows, self._scores(logits).tolist(), strict=True):
            rounded = [short(score) for score in scores]
            by_name = dict(zip(self._names, rounded, strict=False))
            if not self._names:
                answer: dict[str, Any] = {"score": rounded[0]}
                fields: list[Any] = rounded
            elif self.task.several:
                labels = [name for name, score in zip(self._names, scores, strict=True) if score > 0.5]
                answer, fields = {"labels": labels, "scores": by_name}, [",".join(labels), *rounded]
            else:
                label = self._names[int(np.argmax(scores))]
                answer, fields = {"label": label, "scores": by_name}, [label, *rounded]
            texts = {"text": row.text} | ({} if row.pair is None else {"pair": row.pair})
            yield texts | answer, fields

    def _submitted(self, answer: Any) -> Any:
        """Return an answer in GLUE's format: the class's name or, where classes have no names, its number."""
        return answer if self.runner.config.id2label else str(answer).removeprefix("LABEL_")


class _Row(NamedTuple):
    """A row to predict, and its columns to copy to the answer."""

    example: Example
    kept: dict[str, Any]
