"""A finished sequence classifier over a table: `evaluate` scores it, `predict` writes its answers beside the rows."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax import files, sharding
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.data.examples import Columns, Example, read_examples
from bert_jax.errors import InputError
from bert_jax.modeling import Bert, Compute
from bert_jax.tasks import metrics, start
from bert_jax.tasks.classification import HEAD, ClassificationTask
from bert_jax.tasks.classification_data import EvalSource, encode, few_buckets, load
from bert_jax.tasks.job import Batch
from bert_jax.tokenization import Tokenizer, load_tokenizer

OUT_FORMATS = (".jsonl", ".tsv")
_CHUNK = 8192  # rows that `predict` holds at a time: enough to find rows of one length, few enough for memory


@dataclasses.dataclass(frozen=True, eq=False)
class Classifier:
    """A sequence classifier or regressor, ready to be run on all devices of this machine.

    Attributes:
        task: the model and what it does.
        names: of its classes, as they stand in data; empty for regression.
        tokenizer: its own.
        max_length: the longest sequence in tokens that it is given.
        batch_size: rows at a time, a multiple of the number of devices.
    """

    task: ClassificationTask
    names: tuple[str, ...]
    tokenizer: Tokenizer
    max_length: int
    batch_size: int
    run: Callable[[Batch], dict[str, np.ndarray]]

    def batches(self, source: EvalSource) -> Iterator[tuple[Batch, dict[str, np.ndarray]]]:
        """Yields every batch of `source` with its predictions."""
        for i in range(source.num_batches):
            batch = source.batch(i)
            yield batch, self.run(batch)


def open_classifier(
    model_dir: files.PathLike, *, batch_size: int = 32, max_seq_length: int = 0, dtype: str = "auto"
) -> Classifier:
    """Opens a model directory whose head is a sequence classifier.

    Args:
        model_dir: a directory in the Hugging Face layout.
        batch_size: rows at a time; rounded up to a multiple of the number of devices.
        max_seq_length: longer texts are cut, in tokens; 0 = the model's own limit.
        dtype: of matrix products: float32, bfloat16, or auto (bfloat16 on accelerators, float32 on CPU).

    Raises:
        InputError: the directory holds no sequence classifier, or an option does not fit it.
    """
    loaded = load_pretrained(model_dir)
    config = loaded.config
    if loaded.head != HEAD:
        raise InputError(f"{model_dir}: expected a sequence classifier, found a BERT for {loaded.head}")
    if config.problem_type == "multi_label_classification":
        raise InputError(f"{model_dir}: expected one label a text, found problem_type {config.problem_type!r}")
    if config.num_labels == 1 and config.problem_type is None:  # as transformers understands it
        config = config.replace(problem_type="regression")
    tokenizer = load_tokenizer(loaded.directory)
    start.check_vocabulary(tokenizer, config)
    start.check_length(max_seq_length, config, "max_seq_length")
    if max_seq_length and max_seq_length < 4:
        raise InputError(f"max_seq_length: expected at least 4 tokens (or 0), found {max_seq_length}")
    limit = max_seq_length or min(loaded.max_length or tokenizer.max_length or 512, config.max_position_embeddings)
    if dtype == "auto":
        dtype = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    task = ClassificationTask(Bert(config, HEAD, Compute(dtype=dtype)), ())
    mesh = sharding.make_mesh()
    parts = sharding.batch_parts(mesh)
    names = () if task.regression else config.id2label or tuple(map(str, range(config.num_labels)))
    return Classifier(
        task, names, tokenizer, limit, -(-batch_size // parts) * parts, _runner(task, loaded.params, mesh)
    )


def _runner(task: ClassificationTask, params: Any, mesh: Mesh) -> Callable[[Batch], dict[str, np.ndarray]]:
    """Batch -> predictions in numpy: rows split over the devices, parameters on each."""
    whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, sharding.batch_spec())
    params = jax.device_put(params, whole)
    step = jax.jit(task.predict, in_shardings=(whole, split), out_shardings=whole)

    def run(batch: Batch) -> dict[str, np.ndarray]:
        return jax.device_get(step(params, batch))

    return run


def evaluate(
    model_dir: files.PathLike,
    data: str,
    columns: Columns,
    *,
    metric_names: Sequence[str] = (),
    batch_size: int = 32,
    max_seq_length: int = 0,
    dtype: str = "auto",
) -> dict[str, float]:
    """Scores a sequence classifier on labelled rows.

    Args:
        model_dir: a directory in the Hugging Face layout.
        data: what `bert_jax.data.examples.read_examples` takes.
        columns: its columns, the label among them.
        metric_names: of `bert_jax.tasks.metrics`; empty for all that fit.
        batch_size, max_seq_length, dtype: as in `open_classifier`.

    Returns:
        The metrics, and `examples`, the number of rows.

    Raises:
        InputError: the model or the data do not fit; among others, a label that the model does not know.
    """
    model = open_classifier(model_dir, batch_size=batch_size, max_seq_length=max_seq_length, dtype=dtype)
    if not columns.label:
        raise InputError(f"{data}: expected a label column to score by, found none named")
    regression = model.task.regression
    names = metrics.choose(metric_names, regression, len(model.names))
    features, _ = load(data, columns, model.tokenizer, model.max_length, model.names, regression)
    buckets = few_buckets(features.lengths, model.max_length)
    source = EvalSource(features, model.batch_size, buckets, model.tokenizer.pad_id)
    batches, predictions = zip(*model.batches(source), strict=True)
    task = dataclasses.replace(model.task, metrics=names)
    return task.score(list(predictions), list(batches)) | {"examples": len(features)}


def predict(
    model_dir: files.PathLike,
    data: str,
    out: files.PathLike,
    columns: Columns,
    *,
    batch_size: int = 32,
    max_seq_length: int = 0,
    dtype: str = "auto",
) -> int:
    """Writes a sequence classifier's answer for every row, in the order of the rows, in constant memory.

    A `.jsonl` file gets an object a row: the text (and pair), `label` and `scores` (label -> probability), or `score`
    for regression. A `.tsv` file gets a header and the columns `label` and one probability a label, or `score`.

    Args:
        model_dir: a directory in the Hugging Face layout.
        data: what `bert_jax.data.examples.read_examples` takes.
        out: the file to write, `.jsonl` or `.tsv`; there when all is done, or not at all.
        columns: of `data`; a label is not needed and not looked at.
        batch_size, max_seq_length, dtype: as in `open_classifier`.

    Returns:
        The number of rows.

    Raises:
        InputError: the model or the data do not fit.
    """
    if not str(out).endswith(OUT_FORMATS):
        raise InputError(f"{out}: expected a file named {' or '.join(OUT_FORMATS)} to write to")
    as_json = str(out).endswith(".jsonl")
    model = open_classifier(model_dir, batch_size=batch_size, max_seq_length=max_seq_length, dtype=dtype)
    rows = read_examples(data, dataclasses.replace(columns, label=""))
    buckets: tuple[int, ...] | None = None
    count = 0
    with files.open_atomically(out) as file:
        if not as_json:
            header = ["score"] if model.task.regression else ["label", *model.names]
            file.write("\t".join(header) + "\n")
        while chunk := list(islice(rows, _CHUNK)):
            features = encode(model.tokenizer, chunk, np.zeros(len(chunk), np.int32), model.max_length)
            # Shapes are settled by the first rows, so that a long file does not compile new ones again and again.
            buckets = buckets or _shapes(features.lengths, model.max_length)
            source = EvalSource(features, model.batch_size, buckets, model.tokenizer.pad_id)
            logits = source.restore([prediction["logits"] for _, prediction in model.batches(source)])
            file.writelines(_lines(model, chunk, logits, as_json))
            count += len(chunk)
    return count


def _shapes(lengths: np.ndarray, limit: int) -> tuple[int, ...]:
    buckets = few_buckets(lengths, limit)
    return buckets if buckets[-1] == limit else (*buckets, limit)


def _lines(model: Classifier, rows: Sequence[Example], logits: np.ndarray, as_json: bool) -> Iterator[str]:
    """A line for each row of logits [n, C]."""
    for row, scores in zip(rows, logits.astype(np.float64), strict=True):
        if model.task.regression:
            answer: dict[str, Any] = {"score": _short(scores[0])}
            fields = [str(answer["score"])]
        else:
            shares = np.exp(scores - scores.max())
            shares = [_short(share) for share in shares / shares.sum()]
            answer = {"label": model.names[int(scores.argmax())], "scores": dict(zip(model.names, shares, strict=True))}
            fields = [answer["label"], *map(str, shares)]
        texts = {"text": row.text} | ({} if row.pair is None else {"pair": row.pair})
        yield (json.dumps(texts | answer, ensure_ascii=False) if as_json else "\t".join(fields)) + "\n"


def _short(value: float) -> float:
    return float(f"{value:.6g}")
