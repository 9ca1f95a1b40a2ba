"""Evaluate sequence classifiers and regressors over tables, and write their predictions beside the rows."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bert_jax import storage
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.features import LONG_TEXTS, Features, WindowFeatures, encode_texts
from bert_jax.data.finetuning.labelled_rows import labels_of, read_labelled
from bert_jax.data.finetuning.labels import LabelRules
from bert_jax.data.finetuning.tables import Example
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.errors import InputError
from bert_jax.evaluation.tables import TableEvaluator
from bert_jax.inference.scoring import is_number, scores_of, short
from bert_jax.jobs.training_metadata import read_training_metadata
from bert_jax.metrics import scores as metrics
from bert_jax.modeling import Bert
from bert_jax.tasks.classification.task import HEAD, ClassificationTask

if TYPE_CHECKING:
    from bert_jax.reports.attention import Attend
    from bert_jax.reports.classes import RowTexts
    from bert_jax.reports.page import Section


class ClassificationEvaluator(TableEvaluator):
    """Evaluate a sequence classifier or regressor.

    `predict` writes one object per row to a `.jsonl` file: the text (and pair), `label` and `scores` (label ->
    probability), or `score` for a model with one output. A `.tsv`, `.csv` or `.parquet` file has a header and the
    columns `label` and one probability per label, or `score`. Where a text may have several labels, `labels` are the
    labels with a probability over 0.5, separated by commas in a table. Columns copied from the data come first. The
    scores are those of the pipeline `text-classification`.

    Args:
        model_dir: a directory in the Hugging Face layout.
        long_texts: what to do with texts over max_seq_length: cut them, or average the logits of overlapping windows.
        doc_stride: tokens from the start of one window to the start of the next; 0 = half a window.
        submission: whether `predict` writes a submission to GLUE: a `.tsv` with the columns `index` and `prediction`
            (the label or the number), and an answer for every row, including empty texts.
        prompt_name: the name of the model's prompt to put before texts; None = the model's default; "" = no prompt.
        prompt: the text of the prompt, instead of a name.
        options: arguments of `bert_jax.evaluation.model_runner.open_runner`.

    Raises:
        InputError: the directory holds no sequence classifier, or an option does not fit it.
    """

    head = HEAD
    task: ClassificationTask

    def __init__(
        self,
        model_dir: storage.PathLike,
        *,
        long_texts: Literal["cut", "windows"] = "cut",
        doc_stride: int = 0,
        submission: bool = False,
        prompt_name: str | None = None,
        prompt: str | None = None,
        **options: Any,
    ):
        if long_texts not in LONG_TEXTS or doc_stride < 0:
            expected = f"expected long_texts of {' or '.join(LONG_TEXTS)} and a doc_stride of at least 0"
            raise InputError(f"{expected}, found {long_texts!r} and {doc_stride}")
        super().__init__(model_dir, prompt_name=prompt_name, prompt=prompt, **options)
        config = self.runner.config
        if config.problem_type == "regression" and config.num_labels > 1:
            raise InputError(f"{model_dir}: expected a regression with one output, found {config.num_labels}")
        self._metadata = read_training_metadata(model_dir)
        self._names = () if is_number(config) else config.label_names  # () for a regression model
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

    @classmethod
    def check_evaluate(cls, *, submission: bool = False, **options: Any) -> None:
        """Check the options as `Evaluator.check_evaluate` does; only `predict` writes a submission."""
        if submission:
            raise InputError("submission: expected only with predict, which writes it, found with evaluate")

    @property
    def header(self) -> Sequence[str]:
        """Return the columns of `predict`: the prediction, then a probability per class; or those of a submission."""
        return ("index", "prediction") if self._submission else (self._key, *self._names)

    @property
    def missing(self) -> Sequence[str]:
        """Return the keys of an answer that are null for an invalid row."""
        return (self._key, "scores") if self._names else (self._key,)

    @property
    def _key(self) -> str:
        return "score" if not self._names else "labels" if self._several else "label"

    @property
    def _several(self) -> bool:
        return self.task.several and bool(self._names)

    def labelled(self, data: Any, columns: Columns, invalid: InvalidRows) -> tuple[list[Example], np.ndarray]:
        """Return the labelled rows and their labels; a label must be one that the model knows."""
        separator = (columns.separator or self._metadata.columns.separator or ",") if self._several else ""
        columns = dataclasses.replace(columns, separator=separator)
        rules = LabelRules(missing=self._metadata.missing_labels)
        rows, _ = read_labelled(data, columns, self._names, not self._names, invalid, rules)
        return rows, labels_of(rows, columns, self._names)

    def choose_metrics(self, names: Sequence[str]) -> Sequence[str]:
        """Return the metrics of `bert_jax.metrics.scores` to compute."""
        return metrics.choose_metrics(names, not self._names, len(self._names), self._several)

    def scores(self, labels: np.ndarray, outputs: np.ndarray, names: Sequence[str]) -> dict[str, float]:
        """Return metrics of the predictions for logits [n, C]."""
        shares = self._activated(outputs)
        answers = shares[:, 0] if not self._names else shares > 0.5 if self._several else shares.argmax(-1)
        return metrics.compute_metrics(names, labels, answers, len(self._names))

    def predict(self, data: Any, out: storage.PathLike, columns: Columns, invalid: InvalidRows) -> int:
        """Write a prediction for every row, as `Evaluator.predict` says."""
        self._numbers = itertools.count()
        if self._submission:
            columns = dataclasses.replace(columns, keep_others="none")
        return super().predict(data, out, columns, invalid)

    def check_row(self, where: str, texts: dict[str, str]) -> None:
        """Raise InvalidRow when a text is empty, except in a submission, which has an answer for every row."""
        if not self._submission:
            super().check_row(where, texts)

    def features(self, rows: Sequence[Example], labels: np.ndarray) -> Features:
        """Tokenize rows, with the prompt before their first text; long texts may become windows."""
        return encode_texts(self.runner.tokenizer, self.prompted(rows), labels, self.runner.max_length, self._stride)

    def outputs(self, features: Features) -> np.ndarray:
        """Return the logits [n, C] of the texts, averaged over the windows of a text."""
        logits = super().outputs(features)
        if isinstance(features, WindowFeatures):
            from bert_jax.data.finetuning.windows import averaged

            return averaged(logits, features.documents, features.lengths)
        return logits

    def example_of_row(self, features: Features, number: int) -> int:
        """Return the number of the example of a row: the first window of its text."""
        return int(np.searchsorted(features.documents, number)) if isinstance(features, WindowFeatures) else number

    def sections(self, labels: np.ndarray, outputs: np.ndarray, row: "RowTexts", attend: "Attend") -> "list[Section]":
        """Return the sections of the report: of a regression, or of classes."""
        from bert_jax.reports import classes, values

        if not self._names:
            return values.regression(labels, self._activated(outputs)[:, 0], row, attend)
        build = classes.several_labels if self._several else classes.one_label
        return build(self._names, labels, outputs, row, attend)

    def answer(self, output: np.ndarray) -> dict[str, Any]:
        """Return the prediction for logits [C]: the labels with their probabilities, or the number."""
        scores = self._activated(output).tolist()
        rounded = [short(score) for score in scores]
        if not self._names:
            return {"score": rounded[0]}
        by_name = dict(zip(self._names, rounded, strict=False))
        if self._several:
            labels = [name for name, score in zip(self._names, scores, strict=True) if score > 0.5]
            return {"labels": labels, "scores": by_name}
        return {"label": self._names[int(np.argmax(scores))], "scores": by_name}

    def fields(self, answer: dict[str, Any]) -> Sequence[Any]:
        """Return an answer as the fields of `header`."""
        prediction = answer[self._key]
        if self._submission:
            return next(self._numbers), self._submitted(prediction)
        return ",".join(prediction) if self._several else prediction, *answer.get("scores", {}).values()

    def _activated(self, logits: np.ndarray) -> np.ndarray:
        """Return the scores float64 [..., C] of logits [..., C], by the activation that the model's files name."""
        return scores_of(self.runner.config, logits, self.runner.settings.activation)

    def _submitted(self, answer: Any) -> Any:
        """Return an answer in GLUE's format: the class's name or, where classes have no names, its number."""
        return answer if self.runner.config.id2label else str(answer).removeprefix("LABEL_")
