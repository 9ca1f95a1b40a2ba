"""A finished model over the rows of a table: its predictions in their order, and a file of answers, written in constant
memory."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import jax
import numpy as np

from bert_jax import storage
from bert_jax.data.bad_rows import BadRow, BadRows
from bert_jax.errors import InputError
from bert_jax.tasks.classification_data import EvalSource, Paddable, few_buckets
from bert_jax.tasks.finished import Finished
from bert_jax.tasks.job import Batch

Row = TypeVar("Row")
OUT_FORMATS = (".jsonl", ".tsv")
CHUNK = 8192  # rows held at a time: enough to find rows of one length, few enough for memory


class RowPredictor:
    """Runs `predict` of a task over tokenised rows, in few shapes.

    Args:
        finished: what runs.
        predict: of its task.
        max_length: the longest row, in tokens; 0 = as long as `finished` takes.
    """

    def __init__(self, finished: Finished, predict: Callable[[Any, Batch], dict[str, jax.Array]], max_length: int = 0):
        self._finished, self._run = finished, finished.runner(predict)
        self._limit = max_length or finished.max_length
        self._buckets: tuple[int, ...] = ()

    def batches(self, features: Paddable) -> tuple[list[Batch], list[dict[str, np.ndarray]]]:
        """All batches and their predictions."""
        source = self._source(features)
        batches = [source.batch(i) for i in range(source.num_batches)]
        return batches, [self._run(batch) for batch in batches]

    def __call__(self, features: Paddable, name: str) -> np.ndarray:
        """The prediction `name` of every row, in the order of the rows."""
        source = self._source(features)
        return source.restore([self._run(source.batch(i))[name] for i in range(source.num_batches)])

    def in_order(self, features: Paddable, predictions: Sequence[Mapping[str, np.ndarray]], name: str) -> np.ndarray:
        """The prediction `name` of every row, in the order of the rows, from those of `batches`."""
        return self._source(features).restore([prediction[name] for prediction in predictions])

    def _source(self, features: Paddable) -> EvalSource:
        finished = self._finished
        # Shapes are settled by the first rows, so that a long file does not compile new ones again and again.
        if not self._buckets:
            few = few_buckets(features.lengths, self._limit)
            self._buckets = few if few[-1] == self._limit else (*few, self._limit)
        return EvalSource(features, finished.batch_size, self._buckets, finished.tokenizer.pad_id)


def to_answer(data: str, bad_rows: str, noun: str = "row") -> BadRows:
    """What becomes of the rows of a file to answer that do not fit: one that is passed over keeps its place."""
    return BadRows(data, bad_rows, noun, "--skip", keeping=True)


def write_answers(
    out: storage.PathLike,
    header: Sequence[str],
    rows: Iterator[Row],
    answer: Callable[[list[Row]], Iterable[tuple[dict[str, Any], Sequence[Any]]]],
    missing: Sequence[str],
) -> int:
    """Writes an answer for every row, in their order; the file is there when all is done, or not at all.

    In the place of a BadRow stands in a `.jsonl` file an object whose answer is null, with what is wrong as `error`,
    and in a `.tsv` file empty fields.

    Args:
        out: a file named as one of `OUT_FORMATS`.
        header: of a `.tsv` file.
        rows: as many as there are.
        answer: some rows -> for each, its JSON object and its fields under `header`.
        missing: the keys of an answer in a JSON object, which are null where there is none.

    Returns:
        The number of rows.
    """
    as_json = check_out(out)
    count = 0
    with storage.open_atomically(out) as file:
        if not as_json:
            file.write("\t".join(header) + "\n")
        while chunk := list(islice(rows, CHUNK)):
            fitting = [row for row in chunk if not isinstance(row, BadRow)]
            answers = iter(answer(fitting) if fitting else ())
            for row in chunk:
                if isinstance(row, BadRow):
                    described, fields = dict.fromkeys(missing) | {"error": str(row)}, [""] * len(header)
                else:
                    described, fields = next(answers)
                line = json.dumps(described, ensure_ascii=False) if as_json else "\t".join(map(str, fields))
                file.write(line + "\n")
            count += len(chunk)
    return count


def check_out(out: storage.PathLike, formats: tuple[str, ...] = OUT_FORMATS) -> bool:
    """Whether a file of answers is to hold JSON lines. Raises InputError when it is named as none of `formats`."""
    if not str(out).endswith(formats):
        raise InputError(f"{out}: expected a file named {' or '.join(formats)} to write to")
    return str(out).endswith(".jsonl")


def short(value: float) -> float:
    """Six digits of it."""
    return float(f"{value:.6g}")
