"""Predict with a fine-tuned model: an answer for every row of a file."""

import dataclasses
import json
import tempfile
from collections.abc import Callable
from typing import Any

from bert_jax import storage
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.records import table_name
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.evaluation.driver import SKIPPING, evaluator_class


def predict(
    model_dir: storage.PathLike,
    data: Any,
    out: storage.PathLike | None = None,
    columns: Columns = Columns(),  # noqa: B008 (frozen)
    *,
    invalid_rows: str = "strict",
    skipping: str = SKIPPING,
    **options: Any,
) -> Any:
    """Return or write a fine-tuned model's prediction for every row, in the order of the rows.

    Tables are read and written in constant memory. Each task's `Evaluator` documents the content of its files.

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
    skipping: str = SKIPPING,
    **options: Any,
) -> Callable[[Any, storage.PathLike], int]:
    """Open a model once for many files: return `predict` as a function of `data` and `out`.

    Args:
        model_dir: as in `predict`.
        out: one of the files to write; the others must have the same suffix.
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
