"""Evaluate a fine-tuned model over a file, and write its predictions: the steps that all tasks share."""

import abc
import dataclasses
import importlib
import json
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax

from bert_jax import sharding, storage
from bert_jax.conversion.huggingface import saved_head
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.records import table_name
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.errors import InputError
from bert_jax.evaluation.answer_files import FORMATS
from bert_jax.evaluation.model_runner import ModelRunner, open_runner
from bert_jax.evaluation.predictions import RowPredictor, check_format
from bert_jax.modeling import Bert
from bert_jax.reports import page
from bert_jax.tasks.remembered import read_remembered

# Head, or the task of a sequence classifier that reads marked entities -> the class that evaluates such models.
EVALUATORS = {
    "sequence_classification": "classification.ClassificationEvaluator",
    "token_classification": "token_classification.TokenClassificationEvaluator",
    "question_answering": "question_answering.QuestionAnsweringEvaluator",
    "sentence_embedding": "sentence_embedding.SentenceEmbeddingEvaluator",
    "multiple_choice": "multiple_choice.MultipleChoiceEvaluator",
    "zero_shot_ner": "zero_shot_ner.ZeroShotNerEvaluator",
    "masked_lm": "masked_diffusion.MaskedDiffusionEvaluator",
    "relation_extraction": "relation_extraction.RelationExtractionEvaluator",
    "encoder_decoder": "sequence_to_sequence.SequenceToSequenceEvaluator",
}
_SKIPPING = "invalid_rows='skip'"


class Evaluated(NamedTuple):
    """The result of an evaluation.

    Attributes:
        scores: the metrics, and `examples`, the number of rows.
        sections: returns the sections of the report.
    """

    scores: dict[str, float]
    sections: Callable[[], list[page.Section]]


class Evaluator(abc.ABC):
    """A fine-tuned model, opened to run over files on all devices of this machine.

    Each task has a subclass, which reads, decodes, scores and writes the task's rows.

    Args:
        model_dir: a directory in the Hugging Face layout.
        onnx: an ONNX file of the model by `bert_jax.export`, whose outputs are taken instead of those of JAX; None =
            none.
        options: arguments of `bert_jax.evaluation.model_runner.open_runner`.

    Raises:
        InputError: the directory holds a model with another head, or an option does not fit it.

    Attributes:
        head: the head of the models that the class evaluates.
        options: names of the arguments that the class takes besides the common ones.
        formats: name endings of the files that `predict` writes.
        default_columns: the columns of a table, where neither the caller nor the model names them.
        noun: the word for a row in messages.
        runner: the model, its tokenizer, and the limits within which it runs.
        task: the task of the model (`bert_jax.tasks.base.Task`).
        predictor: runs the model over rows.
    """

    head: ClassVar[str]
    options: ClassVar[tuple[str, ...]] = ()
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
        """Return the task of an opened model. Raises InputError where the model does not fit it."""

    @classmethod
    def columns(cls, model_dir: storage.PathLike, given: Columns) -> Columns:
        """Return the caller's columns, completed with those that the model remembers, and with the default ones."""
        return given.filled(read_remembered(model_dir).columns).filled(cls.default_columns)

    @classmethod
    def check_predict(cls, out: storage.PathLike, invalid_rows: str, **options: Any) -> None:
        """Check the arguments of `predict`, and `options` of the class, before the model is opened.

        Raises:
            InputError: the file's name does not end in one of `formats`, or the arguments contradict each other.
        """
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
    """Return the class that evaluates the model in a directory.

    Raises:
        InputError: the model was not fine-tuned for a task.
    """
    head = saved_head(model_dir)
    if head == "sequence_classification" and read_remembered(model_dir).relations:
        head = "relation_extraction"
    if head not in EVALUATORS:
        raise InputError(f"{model_dir}: expected a model for {', '.join(EVALUATORS)}, found one for {head}")
    module, name = EVALUATORS[head].split(".")
    found: type[Evaluator] = getattr(importlib.import_module(f"bert_jax.evaluation.{module}"), name)
    return found


def evaluate(
    model_dir: storage.PathLike,
    data: Any,
    columns: Columns = Columns(),  # noqa: B008 (frozen)
    *,
    metric_names: Sequence[str] = (),
    invalid_rows: str = "strict",
    skipping: str = _SKIPPING,
    report: storage.PathLike | None = None,
    **options: Any,
) -> dict[str, float]:
    """Score a fine-tuned model on labelled rows.

    Args:
        model_dir: a directory in the Hugging Face layout.
        data: the rows: what `bert_jax.data.finetuning.tables.read_rows` takes; for a tagger, what
            `bert_jax.data.finetuning.tagged.read_sentences` takes; for question answering, a SQuAD file.
        columns: the columns of `data`; those not named are the ones that the model remembers from its training, or the
            task's default ones.
        metric_names: the metrics to return; empty for all that fit.
        invalid_rows: one of `bert_jax.data.invalid_rows.RULES`.
        skipping: the words by which messages say how invalid rows are skipped.
        report: an `.html` file to write, with the scores, figures and the worst mistakes.
        options: arguments of the task's `Evaluator`, and of `bert_jax.evaluation.model_runner.open_runner`:
            `batch_size`, `max_seq_length`, `dtype`, `onnx`.

    Returns:
        The metrics, and `examples`, the number of rows.

    Raises:
        InputError: the model, the data, an option or the report's name does not fit.
    """
    page.check_path(report)
    storage.check_output(report or "", data)
    kind = evaluator_class(model_dir)
    columns = kind.columns(model_dir, columns)
    model = kind(model_dir, **options)
    invalid = InvalidRows(table_name(data), invalid_rows, kind.noun, skipping)
    scores, sections = model.evaluate(data, columns, metric_names, invalid)
    if report is not None:
        page.write_page(report, page.Heading(str(model_dir), table_name(data), scores), sections())
    return scores


def predict(
    model_dir: storage.PathLike,
    data: Any,
    out: storage.PathLike | None = None,
    columns: Columns = Columns(),  # noqa: B008 (frozen)
    *,
    invalid_rows: str = "strict",
    skipping: str = _SKIPPING,
    **options: Any,
) -> Any:
    """Return or write a fine-tuned model's prediction for every row, in the order of the rows.

    Tables are read and written in constant memory. Each task's `Evaluator` says what its files hold.

    Args:
        model_dir: a directory in the Hugging Face layout.
        data: the rows, as in `evaluate`; labels are not needed and not read.
        out: the file to write, of one of the task's formats; it appears when it is complete. None returns the rows.
        columns: the columns of `data`, as in `evaluate`.
        invalid_rows: one of `bert_jax.data.invalid_rows.RULES`; with `skip`, an invalid row keeps its place.
        skipping: as in `evaluate`.
        options: as in `evaluate`.

    Returns:
        The number of rows. Without `out`, the objects that a file of JSON lines would have: a list of dicts, or where
        `data` is a DataFrame (pandas, Polars) one of its kind, with a column for each class; for question answering, a
        dict from the id of a question to its answer.

    Raises:
        InputError: the model, the data, an option or the file's name does not fit.
    """
    if out is not None:
        storage.check_output(out, data)
        return open_predictor(model_dir, out, columns, invalid_rows=invalid_rows, skipping=skipping, **options)(
            data, out
        )
    suffix = evaluator_class(model_dir).formats[0]
    with tempfile.TemporaryDirectory() as folder:
        path = storage.Path(folder) / f"answers{suffix}"
        open_predictor(model_dir, path, columns, invalid_rows=invalid_rows, skipping=skipping, **options)(data, path)
        text = path.read_text()
    if suffix == ".json":
        return json.loads(text)
    rows = [json.loads(line) for line in text.splitlines()]
    if not hasattr(data, "columns"):
        return rows
    flat = [row | scores if (scores := row.pop("scores", None)) else row for row in rows]
    return type(data)(flat, **({"index": data.index} if hasattr(data, "index") else {}))


def open_predictor(
    model_dir: storage.PathLike,
    out: storage.PathLike,
    columns: Columns = Columns(),  # noqa: B008 (frozen)
    *,
    invalid_rows: str = "strict",
    skipping: str = _SKIPPING,
    **options: Any,
) -> Callable[[Any, storage.PathLike], int]:
    """Open a model once for many files: return `predict` as a function of `data` and `out`.

    Args:
        model_dir: as in `predict`.
        out: a file to write; the suffix of all of them.
        columns: as in `predict`.
        invalid_rows: as in `predict`.
        skipping: as in `evaluate`.
        options: as in `evaluate`.

    Raises:
        InputError: the model, an option or the file's name does not fit.
    """
    kind = evaluator_class(model_dir)
    columns = dataclasses.replace(kind.columns(model_dir, columns), label="")
    kind.check_predict(out, invalid_rows, **options)
    model = kind(model_dir, **options)

    def of_file(data: Any, out: storage.PathLike) -> int:
        invalid = InvalidRows(table_name(data), invalid_rows, kind.noun, skipping, keeping=True)
        return model.predict(data, out, columns, invalid)

    return of_file
