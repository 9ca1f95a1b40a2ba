"""Evaluate a fine-tuned model over a file, and write its predictions: the steps that all tasks share."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax

from bert_jax import sharding, storage
from bert_jax.conversion.load_pretrained import saved_head
from bert_jax.conversion.record import task_of_model
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.records import table_name
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.errors import InputError
from bert_jax.evaluation.model_runner import ModelRunner, open_runner
from bert_jax.evaluation.predictions import RowPredictor
from bert_jax.jobs.training_metadata import read_training_metadata
from bert_jax.modeling import Bert
from bert_jax.tasks import TaskObjects
from bert_jax.tasks.entry import load_reference

if TYPE_CHECKING:
    from bert_jax.reports.page import Section

SKIPPING = "invalid_rows='skip'"
FORMATS = (".jsonl", ".tsv", ".csv", ".parquet")  # formats of prediction files


class Evaluated(NamedTuple):
    """The result of an evaluation.

    Attributes:
        scores: the metrics, and `examples`, the number of rows.
        sections: a function that returns the sections of the report.
    """

    scores: dict[str, float]
    sections: "Callable[[], list[Section]]"


class Evaluator(abc.ABC):
    """A fine-tuned model, opened to run over files on all devices of this machine.

    Each task has a subclass, which reads, decodes, scores and writes the task's rows.

    Args:
        model_dir: a directory in the Hugging Face layout.
        onnx: an ONNX file of the model, exported by `bert_jax.export`, to run in place of the JAX model; None = JAX.
        options: arguments of `bert_jax.evaluation.model_runner.open_runner`. Parameters that a subclass adds, of types
            str, int, float, bool or Sequence[str], become flags of `bert-jax evaluate` and `predict`.

    Raises:
        InputError: the directory holds a model with another head, or an option does not fit it.

    Attributes:
        head: the head of the models that the class evaluates.
        formats: suffixes of the files that `predict` can write.
        default_columns: the columns of a table, if neither the caller nor the model names them.
        noun: the word for a row in messages.
        runner: the opened model and its tokenizer, batch size and maximum length.
        task: the task of the model (`bert_jax.jobs.base.Task`).
        predictor: runs the model over rows.
    """

    head: ClassVar[str]
    formats: ClassVar[tuple[str, ...]] = FORMATS
    default_columns: ClassVar[Columns] = Columns()
    noun: ClassVar[str] = "row"

    def __init__(self, model_dir: storage.PathLike, *, onnx: storage.PathLike | None = None, **options: Any):
        self.runner: ModelRunner = open_runner(model_dir, self.head, **options)
        bert = Bert(self.runner.config, self.head, self.runner.compute)
        if onnx is not None:
            from bert_jax.evaluation.onnx_model import open_onnx_bert  # imports onnxruntime

            bert = open_onnx_bert(bert, onnx)
            one_device = sharding.make_mesh(devices=jax.local_devices()[:1])
            self.runner = dataclasses.replace(self.runner, mesh=one_device)
        self.task = self.build_task(bert)
        self.predictor = RowPredictor(self.runner, self.task.predict)

    @abc.abstractmethod
    def build_task(self, model: Bert) -> Any:
        """Return the task of an opened model. Raises InputError when the model does not fit it."""

    @classmethod
    def columns(cls, model_dir: storage.PathLike, columns: Columns) -> Columns:
        """Return the caller's columns; missing ones are those saved with the model, or else the default ones."""
        return columns.filled(read_training_metadata(model_dir).columns).filled(cls.default_columns)

    @classmethod  # noqa: B027 (most classes have nothing to refuse)
    def check_evaluate(cls, **options: Any) -> None:
        """Raise InputError, before the model is opened, when `options` of the class do not suit `evaluate`."""

    @classmethod
    def check_predict(cls, out: storage.PathLike, invalid_rows: str, **options: Any) -> None:
        """Check the arguments of `predict`, and `options` of the class, before the model is opened.

        Raises:
            InputError: the file's name does not end in one of `formats`, or the arguments contradict each other.
        """
        from bert_jax.evaluation.writing import check_format

        check_format(out, cls.formats)

    @abc.abstractmethod
    def evaluate(self, data: Any, columns: Columns, metric_names: Sequence[str], invalid: InvalidRows) -> Evaluated:
        """Score the model on labelled rows.

        Args:
            data: the rows.
            columns: the columns of `data`.
            metric_names: the metrics to return; empty for all metrics that fit.
            invalid: collects the rows that cannot be scored.
        """

    @abc.abstractmethod
    def predict(self, data: Any, out: storage.PathLike, columns: Columns, invalid: InvalidRows) -> int:
        """Write a prediction for every row, in the order of the rows, and return the number of rows.

        Args:
            data: the rows.
            out: the file to write; it appears when it is complete.
            columns: the columns of `data`, without a label.
            invalid: collects the invalid rows, and yields an InvalidRow in place of each.
        """


def evaluator_class(model_dir: storage.PathLike) -> type[Evaluator]:
    """Return the `Evaluator` of the task of a saved model, which its head and its training record determine.

    Raises:
        InputError: the model was not fine-tuned for a task.
    """
    head = saved_head(model_dir)
    entry = task_of_model(model_dir, head, "evaluators")
    if entry is None:
        known = ", ".join(TaskObjects("evaluators"))
        raise InputError(f"{model_dir}: expected a model for {known}, found one for {head}")
    evaluator: type[Evaluator] = load_reference(entry.evaluators[head])
    return evaluator


def evaluate(
    model_dir: storage.PathLike,
    data: Any,
    columns: Columns = Columns(),  # noqa: B008 (frozen)
    *,
    metric_names: Sequence[str] = (),
    invalid_rows: str = "strict",
    skipping: str = SKIPPING,
    report: storage.PathLike | None = None,
    **options: Any,
) -> dict[str, float]:
    """Score a fine-tuned model on labelled rows.

    Args:
        model_dir: a directory in the Hugging Face layout.
        data: the rows, as the task's `Evaluator` reads them: for most tasks, what
            `bert_jax.data.finetuning.tables.read_rows` takes.
        columns: the columns of `data`; those not named are the columns that the model was trained on, or the task's
            default ones.
        metric_names: the metrics to return; empty for all that fit.
        invalid_rows: one of `bert_jax.data.invalid_rows.RULES`.
        skipping: the option or flag that skips invalid rows, for messages.
        report: an `.html` file to write, with the scores, figures and the worst mistakes.
        options: arguments of the task's `Evaluator`, and of `bert_jax.evaluation.model_runner.open_runner`:
            `batch_size`, `max_seq_length`, `dtype`, `onnx`.

    Returns:
        The metrics, and `examples`, the number of rows.

    Raises:
        InputError: the model, the data, an option or the report's name does not fit.
    """
    if report is not None:
        from bert_jax.reports import page

        page.check_path(report)
    storage.check_output(report or "", data)
    kind = evaluator_class(model_dir)
    kind.check_evaluate(**options)
    columns = kind.columns(model_dir, columns)
    model = kind(model_dir, **options)
    invalid = InvalidRows(table_name(data), invalid_rows, kind.noun, skipping)
    scores, sections = model.evaluate(data, columns, metric_names, invalid)
    if report is not None:
        page.write_page(report, page.Heading(str(model_dir), table_name(data), scores), sections())
    return scores
