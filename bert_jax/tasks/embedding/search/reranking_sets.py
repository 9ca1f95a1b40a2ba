"""Evaluate how a model ranks the relevant documents of queries before others, for embeddings and cross-encoders."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax import storage
from bert_jax.conversion.load_pretrained import saved_head
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows, check_texts
from bert_jax.data.json_files import json_objects
from bert_jax.errors import InputError, logger
from bert_jax.inference import pipeline
from bert_jax.inference.similarity import compare
from bert_jax.metrics.rankings import check_ranking_metric, rankings

RERANKING_METRICS = ("map", "mrr@10", "ndcg@10")
_CHUNK = 512  # rows whose vectors are held at once
_log = logger(__name__)


class RerankingRow(NamedTuple):
    """A query, documents that are relevant for it, and documents that are not."""

    query: str
    positive: tuple[str, ...]
    negative: tuple[str, ...]


def read_reranking_set(path: storage.PathLike) -> list[RerankingRow]:
    """Read rows of `query`, `positive` and `negative`, each of the last two a text or a list of texts.

    Args:
        path: a file of JSON lines, a JSON array or a Parquet file.

    Raises:
        InputError: the file is missing or damaged, or a row lacks a text.
    """
    bad = InvalidRows(str(path))
    rows = bad.fitting(bad.each(json_objects(str(path), bad), _row))
    return list(rows)


def _row(row: tuple[int, str, dict[str, Any]]) -> RerankingRow:
    _, where, values = row
    query = values.get("query")
    if not isinstance(query, str):
        raise InvalidRow(f"{where}: expected a text in 'query', found {query!r:.80}", "no query")
    check_texts(where, {"query": query})
    positive, negative = (_side(where, name, values.get(name)) for name in ("positive", "negative"))
    return RerankingRow(query, positive, negative)


def _side(where: str, name: str, value: Any) -> tuple[str, ...]:
    """Return the texts of `positive` or `negative`: one, or those of a list."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        expected = f"a text or a list of texts in {name!r}"
        raise InvalidRow(f"{where}: expected {expected}, found {value!r:.80}", "no texts")
    check_texts(where, {f"{name}[{i}]": text for i, text in enumerate(texts)})
    return tuple(texts)


def evaluate_reranking(
    model: storage.PathLike,
    data: storage.PathLike,
    *,
    metric_names: Sequence[str] = (),
    kind: str | None = None,
    batch_size: int | None = None,
    batch_invariant: bool = False,
    dtype: str = "auto",
    **options: Any,
) -> dict[str, float]:
    """Score a model on rows of a query, relevant documents, and other documents.

    Args:
        model: a directory of a model of embeddings of any kind, or of a cross-encoder.
        data: a file, as for `read_reranking_set`. Rows without a relevant or without another document are left out.
        metric_names: metrics to return: `mrr`, `ndcg` and `map`, or with a cutoff as `ndcg@10`, which are means over
            queries; empty for `RERANKING_METRICS`. Of documents with equal scores, those that are not relevant rank
            first.
        kind: `sparse` or `multi-vector`, if the model has several kinds of embeddings; None = the kind in its files.
        batch_size: texts in a forward pass; None = chosen for the device.
        batch_invariant: whether a score is bitwise independent of the other texts.
        dtype: dtype of matrix products.
        options: options of a call of `CorpusSearch`: prompts, `truncate_dim` and `max_active_dims`; of a cross-encoder
            `prompt_name` and `prompt`.

    Returns:
        The metrics, and the numbers of `queries` and of those `left_out`.

    Raises:
        InputError: the model, the data or an option does not fit.
    """
    names = tuple(metric_names) or RERANKING_METRICS
    for name in names:
        check_ranking_metric(name)
    every = read_reranking_set(data)
    rows = [row for row in every if row.positive and row.negative]
    if not rows:
        raise InputError(f"{data}: expected rows with relevant and other documents, found none")
    if len(rows) < len(every):
        _log.warning("%s: left out %d rows without a relevant or another document", data, len(every) - len(rows))
    cross_encoder = kind is None and saved_head(model) == "sequence_classification"
    task = "rerank" if cross_encoder else f"{kind}-search" if kind else "search"
    pipe = pipeline(task, model, dtype, batch_size, batch_invariant=batch_invariant)
    score = _by_cross_encoder if cross_encoder else _by_embeddings
    chunks = (rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK))
    scores = [of_row for chunk in chunks for of_row in score(pipe, chunk, options)]
    longest = max(map(len, scores))
    relevance, filled = np.full((len(rows), longest), -np.inf), np.zeros((len(rows), longest))
    for i, (row, of_row) in enumerate(zip(rows, scores, strict=True)):
        relevance[i, : len(of_row)] = [1] * len(row.positive) + [0] * len(row.negative)
        filled[i, : len(of_row)] = of_row
    return rankings(relevance, filled, names) | {"queries": len(rows), "left_out": len(every) - len(rows)}


def _by_cross_encoder(pipe: Any, rows: Sequence[RerankingRow], options: dict[str, Any]) -> Iterator[np.ndarray]:
    """Yield the scores of the documents of each row."""
    prompts = {name: options.get(name) for name in ("prompt_name", "prompt")}
    for name in options.keys() - prompts.keys():
        if options[name] is not None:
            raise InputError(f"{name}: expected none for a cross-encoder, found {options[name]!r}")
    pairs = [(row.query, text) for row in rows for text in (*row.positive, *row.negative)]
    scores = np.asarray(pipe.predict(pairs, **prompts), np.float64)
    if scores.ndim > 1:
        raise InputError(f"rerank: expected a model with one output, found {scores.shape[1]}")
    ends = np.cumsum([len(row.positive) + len(row.negative) for row in rows])
    yield from np.split(scores, ends[:-1])


def _by_embeddings(pipe: Any, rows: Sequence[RerankingRow], options: dict[str, Any]) -> Iterator[np.ndarray]:
    """Yield the scores of the documents of each row."""
    size = pipe._size(**{name: options.get(name) for name in ("truncate_dim", "max_active_dims")})
    before = pipe._prompt("query", options.get("prompt_name"), options.get("prompt"))
    queries = pipe._vectors([row.query for row in rows], before, size, "query")
    before = pipe._prompt("document", options.get("corpus_prompt_name"), options.get("corpus_prompt"))
    texts = [text for row in rows for text in (*row.positive, *row.negative)]
    documents = pipe._vectors(texts, before, size, "document")
    start = 0
    for i, row in enumerate(rows):
        end = start + len(row.positive) + len(row.negative)
        yield compare(pipe.model.settings.similarity, queries[i : i + 1], documents[start:end])[0]
        start = end
