"""A finished sequence classifier over a table: `evaluate` scores it, `predict` writes its answers beside the rows."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from bert_jax import files
from bert_jax.data.examples import Columns, Example, read_examples
from bert_jax.errors import InputError
from bert_jax.modeling import Bert
from bert_jax.tasks import metrics
from bert_jax.tasks.classification import HEAD, ClassificationTask
from bert_jax.tasks.classification_data import EvalSource, encode, few_buckets, load
from bert_jax.tasks.finished import Finished, open_finished
from bert_jax.tasks.job import Batch

COLUMNS = Columns("sentence", "", "label")  # where the caller names none
OPTIONS = ("submission",)  # of `predict`, beside those of every task
OUT_FORMATS = (".jsonl", ".tsv")
_CHUNK = 8192  # rows that `predict` holds at a time: enough to find rows of one length, few enough for memory


@dataclasses.dataclass(frozen=True, eq=False)
class Classifier:
    """A sequence classifier or regressor, ready to be run on all devices of this machine.

    Attributes:
        task: the model and what it does.
        names: of its classes, as they stand in data; empty for regression.
        finished: its tokenizer, and the limits within which it runs.
        run: a batch -> its predictions.
    """

    task: ClassificationTask
    names: tuple[str, ...]
    finished: Finished
    run: Callable[[Batch], dict[str, np.ndarray]]

    def batches(self, source: EvalSource) -> Iterator[tuple[Batch, dict[str, np.ndarray]]]:
        """Yields every batch of `source` with its predictions."""
        for i in range(source.num_batches):
            batch = source.batch(i)
            yield batch, self.run(batch)


def open_classifier(model_dir: files.PathLike, **options: Any) -> Classifier:
    """Opens a model directory whose head is a sequence classifier.

    Args:
        model_dir: a directory in the Hugging Face layout.
        options: of `bert_jax.tasks.finished.open_finished`.

    Raises:
        InputError: the directory holds no sequence classifier, or an option does not fit it.
    """
    finished = open_finished(model_dir, HEAD, **options)
    config = finished.config
    if config.num_labels == 1 and config.problem_type is None:  # as transformers understands it
        config = config.replace(problem_type="regression")
    task = ClassificationTask(Bert(config, HEAD, finished.compute), ())
    names = () if task.regression else config.id2label or tuple(map(str, range(config.num_labels)))
    return Classifier(task, names, finished, finished.runner(task.predict))


def evaluate(
    model_dir: files.PathLike,
    data: str,
    columns: Columns,
    *,
    metric_names: Sequence[str] = (),
    **options: Any,
) -> dict[str, float]:
    """Scores a sequence classifier on labelled rows.

    Args:
        model_dir: a directory in the Hugging Face layout.
        data: what `bert_jax.data.examples.read_examples` takes.
        columns: its columns, where they are not those of `COLUMNS`.
        metric_names: of `bert_jax.tasks.metrics`; empty for all that fit.
        options: of `bert_jax.tasks.finished.open_finished`.

    Returns:
        The metrics, and `examples`, the number of rows.

    Raises:
        InputError: the model or the data do not fit; among others, a label that the model does not know.
    """
    model = open_classifier(model_dir, **options)
    finished = model.finished
    columns = columns.filled(COLUMNS)
    several = model.task.several
    columns = dataclasses.replace(columns, separator=(columns.separator or ",") if several else "")
    regression = model.task.regression
    names = metrics.choose(metric_names, regression, len(model.names), several)
    features, _ = load(data, columns, finished.tokenizer, finished.max_length, model.names, regression)
    buckets = few_buckets(features.lengths, finished.max_length)
    source = EvalSource(features, finished.batch_size, buckets, finished.tokenizer.pad_id)
    batches, predictions = zip(*model.batches(source), strict=True)
    task = dataclasses.replace(model.task, metrics=names)
    return task.score(list(predictions), list(batches)) | {"examples": len(features)}


def predict(
    model_dir: files.PathLike,
    data: str,
    out: files.PathLike,
    columns: Columns,
    submission: bool = False,
    **options: Any,
) -> int:
    """Writes a sequence classifier's answer for every row, in the order of the rows, in constant memory.

    A `.jsonl` file gets an object a row: the text (and pair), `label` and `scores` (label -> probability), or `score`
    for regression. A `.tsv` file gets a header and the columns `label` and one probability a label, or `score`. Where a
    text may have several labels, `labels` are those of a probability over 0.5; in a `.tsv` file with commas between. A
    submission to GLUE is a `.tsv` file with the columns `index` and `prediction`, the label or the number.

    Args:
        model_dir: a directory in the Hugging Face layout.
        data: what `bert_jax.data.examples.read_examples` takes.
        out: the file to write, `.jsonl` or `.tsv`; there when all is done, or not at all.
        columns: of `data`, as in `evaluate`; a label is not needed and not looked at.
        submission: whether to write what GLUE takes.
        options: of `bert_jax.tasks.finished.open_finished`.

    Returns:
        The number of rows.

    Raises:
        InputError: the model or the data do not fit.
    """
    if not str(out).endswith(OUT_FORMATS):
        raise InputError(f"{out}: expected a file named {' or '.join(OUT_FORMATS)} to write to")
    as_json = str(out).endswith(".jsonl")
    if submission and as_json:
        raise InputError(f"{out}: expected a file named .tsv for a submission to GLUE")
    model = open_classifier(model_dir, **options)
    finished = model.finished
    rows = read_examples(data, dataclasses.replace(columns.filled(COLUMNS), label=""))
    buckets: tuple[int, ...] | None = None
    count = 0
    with files.open_atomically(out) as file:
        if not as_json:
            label = "labels" if model.task.several else "label"
            header = ["score"] if model.task.regression else [label, *model.names]
            header = ["index", "prediction"] if submission else header
            file.write("\t".join(header) + "\n")
        while chunk := list(islice(rows, _CHUNK)):
            features = encode(finished.tokenizer, chunk, np.zeros(len(chunk), np.int32), finished.max_length)
            # Shapes are settled by the first rows, so that a long file does not compile new ones again and again.
            buckets = buckets or _shapes(features.lengths, finished.max_length)
            source = EvalSource(features, finished.batch_size, buckets, finished.tokenizer.pad_id)
            logits = source.restore([prediction["logits"] for _, prediction in model.batches(source)])
            for answer, fields in _answers(model, chunk, logits):
                if submission:
                    fields = [str(count), fields[0]]
                file.write((json.dumps(answer, ensure_ascii=False) if as_json else "\t".join(fields)) + "\n")
                count += 1
    return count


def _shapes(lengths: np.ndarray, limit: int) -> tuple[int, ...]:
    buckets = few_buckets(lengths, limit)
    return buckets if buckets[-1] == limit else (*buckets, limit)


def _answers(
    model: Classifier, rows: Sequence[Example], logits: np.ndarray
) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """For each row of logits [n, C], what is written of it: as an object, and as fields."""
    for row, scores in zip(rows, logits.astype(np.float64), strict=True):
        if model.task.regression:
            answer: dict[str, Any] = {"score": _short(scores[0])}
            fields = [str(answer["score"])]
        elif model.task.several:
            shares = [_short(share) for share in np.exp(-np.logaddexp(0, -scores))]
            labels = [name for name, score in zip(model.names, scores, strict=True) if score > 0]
            answer = {"labels": labels, "scores": dict(zip(model.names, shares, strict=True))}
            fields = [",".join(labels), *map(str, shares)]
        else:
            shares = np.exp(scores - scores.max())
            shares = [_short(share) for share in shares / shares.sum()]
            answer = {"label": model.names[int(scores.argmax())], "scores": dict(zip(model.names, shares, strict=True))}
            fields = [answer["label"], *map(str, shares)]
        texts = {"text": row.text} | ({} if row.pair is None else {"pair": row.pair})
        yield texts | answer, fields


def _short(value: float) -> float:
    return float(f"{value:.6g}")
