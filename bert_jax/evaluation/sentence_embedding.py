"""Evaluate sentence embeddings over pairs (`evaluate`), and write the similarity of each pair (`predict`)."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax import storage
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.records import table_name
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.evaluation.model_runner import ModelRunner, open_runner
from bert_jax.evaluation.predictions import RowPredictor, check_out, to_answer, write_answers
from bert_jax.inference.scoring import short
from bert_jax.modeling import Bert
from bert_jax.reports import page, values
from bert_jax.tasks.remembered import read_remembered as read_remembered
from bert_jax.tasks.sentence_embedding import (
    HEAD,
    SentenceEmbeddingTask,
    choose_embedding_metrics,
    encode_pairs,
    read_pairs,
    stream_pairs,
)

# What `bert-jax evaluate` and `predict` may be told beyond what all tasks take.
OPTIONS = ("prompt_name", "prompt", "truncate_dim")
COLUMNS = Columns("sentence1", "sentence2", "score")  # where the caller names none


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
    """Scores how alike labelled pairs are (their cosine, or what else the model's files name) by its correlation with
    the labels.

    Args:
        model_dir: a directory in the Hugging Face layout, with the files of sentence-transformers.
        data: what `bert_jax.data.finetuning.tables.read_rows` takes.
        columns: its columns, where they are not those that the model remembers, or those of `COLUMNS`.
        metric_names: spearman, pearson; empty for both.
        invalid_rows: of `bert_jax.data.invalid_rows.RULES`, for rows that do not fit.
        report: a file to write, `.html`: the page of `bert_jax.reports.values.pairs`.
        options: of `bert_jax.evaluation.model_runner.open_runner`.

    Returns:
        The metrics, and `examples`, the number of rows.

    Raises:
        InputError: the model, the data or the report's name do not fit; among others, a label that is no number.
    """
    page.check_path(report)
    storage.check_output(report or "", data)
    names = choose_embedding_metrics(metric_names, labelled=True)
    runner = open_runner(model_dir, HEAD, **options)
    task = _task(runner, names)
    bad = InvalidRows(table_name(data), invalid_rows, skipping="--skip")
    columns, predictor = _filled(columns, model_dir), RowPredictor(runner, task.predict)
    pairs = read_pairs(data, columns, bad=bad)
    rows = encode_pairs(runner.tokenizer, pairs, columns, runner.max_length, prompt=runner.prompt)
    batches, predictions = predictor.batches(rows)
    scores = task.score(predictions, batches) | {"examples": len(rows)}
    if report is not None:
        found = task.alike(predictor.in_order(rows, predictions, "embeddings"))

        def texts(i: int) -> tuple[int, dict[str, str]]:
            line, row = pairs[i]
            return line, {name: row[name] for name in (columns.text, columns.pair)}

        sections = values.pairs(rows.labels, found, texts, functools.partial(runner.attention, HEAD, rows.sequences))
        page.write_page(report, page.Heading(str(model_dir), table_name(data), scores), sections)
    return scores


def predict(
    model_dir: storage.PathLike,
    data: Any,
    out: storage.PathLike,
    columns: Columns,
    *,
    invalid_rows: str = "strict",
    **options: Any,
) -> int:
    """Writes how alike every pair is (`bert_jax.inference.Similarity`), in the order of the rows, in constant memory.

    A `.jsonl` file gets an object a row: `text`, `pair` and `score`. A table gets a header and a column `score`.
    Columns that `columns` keeps stand before it.

    Args:
        model_dir: a directory in the Hugging Face layout, with the files of sentence-transformers.
        data: what `bert_jax.data.finetuning.tables.read_rows` takes.
        out: the file to write, one of `predictions.OUT_FORMATS`; there when all is done, or not at all.
        columns: of `data`, as in `evaluate`; a label is not needed and not looked at.
        invalid_rows: as in `evaluate`; with `skip`, an invalid row keeps its place (`predictions.write_answers`).
        options: of `bert_jax.evaluation.model_runner.open_runner`.

    Returns:
        The number of rows.

    Raises:
        InputError: the model or the data do not fit.
    """
    check_out(out, data=data)
    runner = open_runner(model_dir, HEAD, **options)
    task = _task(runner)
    predictor = RowPredictor(runner, task.predict)
    columns = dataclasses.replace(_filled(columns, model_dir), label="")

    def answer(chunk: list[tuple[int, dict[str, Any]]]) -> Iterator[tuple[dict[str, Any], list[float]]]:
        rows = encode_pairs(runner.tokenizer, chunk, columns, runner.max_length, prompt=runner.prompt)
        for (_, row), alike in zip(chunk, task.alike(predictor(rows, "embeddings")), strict=True):
            score = short(alike)
            yield {"text": row[columns.text], "pair": row[columns.pair], "score": score}, [score]

    def kept(row: tuple[int, dict[str, Any]]) -> dict[str, Any]:
        return columns.carried(row[1])

    bad = to_answer(data, invalid_rows)
    return write_answers(out, ["score"], bad.fitting(stream_pairs(data, columns, bad)), answer, ("score",), kept)


def _filled(columns: Columns, model_dir: storage.PathLike) -> Columns:
    remembered = read_remembered(model_dir).columns
    return columns.filled(dataclasses.replace(remembered, more=(), texts="")).filled(COLUMNS)


def _task(runner: ModelRunner, names: tuple[str, ...] = ()) -> SentenceEmbeddingTask:
    settings = runner.settings
    return SentenceEmbeddingTask(
        Bert(runner.config, HEAD, runner.compute),
        "cosine",
        labelled=True,
        metrics=names,
        similarity=settings.similarity,
        truncate_dim=settings.truncate_dim,
    )
