"""Evaluate a sequence classifier over a table (`evaluate`), and write its predictions beside the rows (`predict`)."""

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
from bert_jax.evaluation.model_runner import ModelRunner, open_runner
from bert_jax.evaluation.predictions import RowPredictor, carrying, check_out, to_answer, write_answers
from bert_jax.inference.scoring import is_number, scores_of, short
from bert_jax.metrics import scores as metrics
from bert_jax.modeling import Bert
from bert_jax.reports import classes, page, values
from bert_jax.reports.attention import Attention
from bert_jax.tasks.classification import HEAD, ClassificationTask
from bert_jax.tasks.remembered import read_remembered as read_remembered

COLUMNS = Columns("sentence", "", "label")  # where the caller names none
# What `bert-jax evaluate` and `predict` may be told beyond what all tasks take; the first is of `predict` alone.
OPTIONS = ("submission", "long_texts", "doc_stride", "prompt_name", "prompt")


@dataclasses.dataclass(frozen=True, eq=False)
class Classifier:
    """A sequence classifier or regressor, ready to be run on all devices of this machine.

    Attributes:
        task: the model and what it does.
        names: of its classes (LABEL_0 and so on where they have none); empty where it gives a number.
        runner: its tokenizer, and the limits within which it runs.
        predictor: runs the model over rows.
        stride: of the windows that long texts are read in, as of `encode`; None: they are cut.
    """

    task: ClassificationTask
    names: tuple[str, ...]
    runner: ModelRunner
    predictor: RowPredictor
    stride: int | None = None

    def encoded(self, rows: Sequence[Example], labels: np.ndarray) -> Features:
        """Rows with the prompt before their first text, tokenised."""
        prompt = self.runner.prompt
        rows = [row._replace(text=prompt + row.text) for row in rows] if prompt else rows
        return encode_texts(self.runner.tokenizer, rows, labels, self.runner.max_length, self.stride)

    def logits(self, rows: Sequence[Example]) -> np.ndarray:
        """[n, C], of rows whose labels are not looked at."""
        features = self.encoded(rows, np.zeros(len(rows), np.int32))
        return of_texts(features, self.predictor(features, "logits"))

    def scores(self, logits: np.ndarray) -> np.ndarray:
        """float64 [..., C], of logits [..., C]: as every verb and pipeline gives them."""
        return scores_of(self.task.model.config, logits, self.runner.settings.activation)


def of_texts(features: Features, logits: np.ndarray) -> np.ndarray:
    """The logits of texts [n, C], of those of rows, which may be windows."""
    if isinstance(features, WindowFeatures):
        return averaged(logits, features.documents, features.lengths)
    return logits


def open_classifier(
    model_dir: storage.PathLike, *, long_texts: str = "cut", doc_stride: int = 0, **options: Any
) -> Classifier:
    """Opens a model directory whose head is a sequence classifier.

    Args:
        model_dir: a directory in the Hugging Face layout.
        long_texts: of `bert_jax.data.finetuning.windows.LONG_TEXTS`: what becomes of texts that are longer than a row.
        doc_stride: tokens between their windows; 0 = half of those that a row has room for.
        options: of `bert_jax.evaluation.model_runner.open_runner`.

    Raises:
        InputError: the directory holds no sequence classifier, or an option does not fit it.
    """
    if long_texts not in LONG_TEXTS or doc_stride < 0:
        found = f"{long_texts!r} and {doc_stride}"
        raise InputError(
            f"expected long_texts of {' or '.join(LONG_TEXTS)} and a doc_stride of at least 0, found {found}"
        )
    runner = open_runner(model_dir, HEAD, **options)
    config = runner.config
    if config.problem_type == "regression" and config.num_labels > 1:
        raise InputError(f"{model_dir}: expected a regression with one output, found {config.num_labels}")
    task = ClassificationTask(Bert(config, HEAD, runner.compute), ())
    names = () if is_number(config) else config.label_names
    stride = doc_stride if long_texts == "windows" else None
    return Classifier(task, names, runner, RowPredictor(runner, task.predict), stride)


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
    """Scores a sequence classifier on labelled rows.

    Args:
        model_dir: a directory in the Hugging Face layout.
        data: what `bert_jax.data.finetuning.tables.read_examples` takes.
        columns: its columns, where they are not those that the model remembers, or those of `COLUMNS`.
        metric_names: of `bert_jax.metrics.scores`; empty for all that fit.
        invalid_rows: of `bert_jax.data.invalid_rows.RULES`, for rows that do not fit.
        report: a file to write, `.html`: the page of `bert_jax.reports.classes` or, of a regression, `values`.
        options: of `open_classifier`.

    Returns:
        The metrics, and `examples`, the number of rows.

    Raises:
        InputError: the model, the data or the report's name do not fit; among others, a label that the model does not
            know.
    """
    page.check_path(report)
    storage.check_output(report or "", data)
    model = open_classifier(model_dir, **options)
    remembered, number = read_remembered(model_dir), not model.names
    several = model.task.several and not number
    separator = (columns.separator or remembered.columns.separator or ",") if several else ""
    columns = columns.filled(remembered.columns).filled(COLUMNS)
    columns = dataclasses.replace(columns, separator=separator)
    names = metrics.choose_metrics(metric_names, number, len(model.names), several)
    bad = InvalidRows(table_name(data), invalid_rows, skipping="--skip")
    rules = LabelRules(missing=remembered.missing_labels)
    rows, _ = read_labelled(data, columns, model.names, number, bad, rules)
    labels = labels_of(rows, columns, model.names)
    features = model.encoded(rows, labels)
    _, predictions = model.predictor.batches(features)
    logits = of_texts(features, model.predictor.in_order(features, predictions, "logits"))
    found = model.scores(logits)
    answers = found[:, 0] if number else found > 0.5 if several else found.argmax(-1)
    scores = metrics.compute_metrics(names, labels, answers) | {"examples": features.num_examples}
    if report is not None:
        sections = _look(model, lambda i: (rows[i].line, texts_of(rows[i], columns)), labels, features, logits)
        page.write_page(report, page.Heading(str(model_dir), table_name(data), scores), sections)
    return scores


def _look(
    model: Classifier, row: classes.RowTexts, labels: np.ndarray, features: Features, logits: np.ndarray
) -> list[page.Section]:
    """The sections of a report on the logits [n, C] of texts with labels [n]."""

    def attend(number: int) -> Attention | None:
        if isinstance(features, WindowFeatures):  # the first of the text
            number = int(np.searchsorted(features.documents, number))
        return model.runner.attention(HEAD, features, number)

    if not model.names:
        return values.regression(labels, model.scores(logits)[:, 0], row, attend)
    look = classes.several_labels if model.task.several else classes.one_label
    return look(model.names, labels, logits, row, attend)


def predict(
    model_dir: storage.PathLike,
    data: Any,
    out: storage.PathLike,
    columns: Columns,
    submission: bool = False,
    invalid_rows: str = "strict",
    **options: Any,
) -> int:
    """Writes a sequence classifier's answer for every row, in the order of the rows, in constant memory.

    A `.jsonl` file gets an object a row: the text (and pair), `label` and `scores` (label -> probability), or `score`
    of a model with one output. A `.tsv`, `.csv` or `.parquet` file gets a header and the columns `label` and one
    probability a label, or `score`. Where a text may have several labels, `labels` are those of a probability over 0.5;
    in a table with commas between. Columns that `columns` keeps stand before the answer. A submission to GLUE is a
    `.tsv` file with the columns `index` and `prediction`, the label or the number. Scores are those of the pipeline
    `text-classification`.

    Args:
        model_dir: a directory in the Hugging Face layout.
        data: what `bert_jax.data.finetuning.tables.read_examples` takes.
        out: the file to write, one of `predictions.OUT_FORMATS`; there when all is done, or not at all.
        columns: of `data`, as in `evaluate`; a label is not needed and not looked at.
        submission: whether to write what GLUE takes, which has an answer for every row, for empty texts too.
        invalid_rows: as in `evaluate`; with `skip`, an invalid row keeps its place (`predictions.write_answers`).
        options: of `open_classifier`.

    Returns:
        The number of rows.

    Raises:
        InputError: the model or the data do not fit.
    """
    if check_out(out, data=data) and submission:
        raise InputError(f"{out}: expected a file named .tsv for a submission to GLUE")
    if submission and invalid_rows == "skip":
        raise InputError("--skip: expected none with --submission, which has an answer for every row")
    model = open_classifier(model_dir, **options)
    columns = columns.filled(read_remembered(model_dir).columns).filled(COLUMNS)
    columns = dataclasses.replace(columns, label="", keep_others="none" if submission else columns.keep_others)
    bad, name = to_answer(data, invalid_rows), table_name(data)
    index = itertools.count()

    def checked(row: tuple[int, dict[str, Any]]) -> _Row:
        found = _Row(example_of(row, columns), columns.carried(row[1]))
        if not submission:
            with carrying(found.kept):
                check_texts(place(name, row[0]), texts_of(found.example, columns))
        return found

    def answer(chunk: list[_Row]) -> Iterator[tuple[dict[str, Any], list[Any]]]:
        examples = [row.example for row in chunk]
        for described, fields in _answers(model, examples, model.logits(examples)):
            yield described, [next(index), _submitted(model, fields[0])] if submission else fields

    key = "score" if not model.names else "labels" if model.task.several else "label"
    header = ["index", "prediction"] if submission else [key, *model.names]
    missing = (key,) if not model.names else (key, "scores")
    rows = bad.fitting(bad.each(read_rows(data, columns, bad), checked))
    return write_answers(out, header, rows, answer, missing, lambda row: row.kept)


class _Row(NamedTuple):
    """A row to answer, and the columns of it that are carried through."""

    example: Example
    kept: dict[str, Any]


def _submitted(model: Classifier, answer: Any) -> Any:
    """An answer as GLUE takes it: a class without a name of its own by its number."""
    return answer if model.task.model.config.id2label else str(answer).removeprefix("LABEL_")


def _answers(
    model: Classifier, rows: Sequence[Example], logits: np.ndarray
) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """For each row of logits [n, C], what is written of it: as an object, and as fields."""
    for row, scores in zip(rows, model.scores(logits).tolist(), strict=True):
        shares = [short(score) for score in scores]
        if not model.names:
            answer: dict[str, Any] = {"score": shares[0]}
            fields: list[Any] = shares
        else:
            by_name = dict(zip(model.names, shares, strict=True))
            if model.task.several:
                labels = [name for name, score in zip(model.names, scores, strict=True) if score > 0.5]
                answer, fields = {"labels": labels, "scores": by_name}, [",".join(labels), *shares]
            else:
                label = model.names[max(range(len(scores)), key=scores.__getitem__)]
                answer, fields = {"label": label, "scores": by_name}, [label, *shares]
        texts = {"text": row.text} | ({} if row.pair is None else {"pair": row.pair})
        yield texts | answer, fields
