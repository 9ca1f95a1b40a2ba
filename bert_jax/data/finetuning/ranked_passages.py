"""Queries with passages and their relevance: read them from a table, and tokenize them as pairs of texts."""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.groups import Groups, encode_groups
from bert_jax.data.finetuning.records import table_name
from bert_jax.data.finetuning.tables import read_rows
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows, check_texts, number_of, place
from bert_jax.tokenization import Tokenizer

_OUT_OF_RANGE = "a label out of range"
MISSING = -math.inf  # the relevance of a padding passage


class RankedPassages(NamedTuple):
    """A query with K passages and the relevance of each."""

    query: str
    passages: tuple[str, ...]
    relevance: tuple[float, ...]


def read_ranked_passages(
    spec: Any, columns: Columns, bad: InvalidRows | None = None, probabilities: bool = False
) -> list[RankedPassages]:
    """Read the rows of a table.

    Args:
        spec: the table, as for `read_rows`.
        columns: the column of the query, and those of its passages. `texts` is a column of lists, whose label is a list
            of as many numbers. Otherwise `pair` is the first passage, whose label is a number (1 if there is no label
            column); the others, in the columns `more`, have relevance 0.
        bad: treatment of invalid rows; None means that they are an error.
        probabilities: whether labels must be from 0 to 1.

    Raises:
        InputError: as for `read_rows`, or a text is empty, there is no passage, or a label is not valid.
    """
    bad = bad or InvalidRows(table_name(spec))

    def read(row: tuple[int, dict[str, Any]]) -> RankedPassages:
        line, values = row
        where = place(table_name(spec), line)
        names = [columns.pair, *columns.more]
        passages = values[columns.texts] if columns.texts else [values[name] for name in names]
        if columns.texts:
            names = [f"{columns.texts}[{i}]" for i in range(len(passages))]
        if not passages:
            raise InvalidRow(f"{where}: expected at least one passage in {columns.texts!r}, found none", "no passage")
        check_texts(where, {columns.text: values[columns.text]} | dict(zip(names, passages, strict=True)))
        relevance = [1.0] + [0.0] * (len(passages) - 1)
        if columns.label:
            relevance = _labels(where, columns, values[columns.label], len(passages))
        if probabilities and not all(0 <= value <= 1 for value in relevance):
            raise InvalidRow(f"{where}: expected labels from 0 to 1, found {values[columns.label]}", _OUT_OF_RANGE)
        return RankedPassages(values[columns.text], tuple(passages), tuple(relevance))

    return list(bad.fitting(bad.each(read_rows(spec, columns, bad), read)))


def _labels(where: str, columns: Columns, label: str, count: int) -> list[float]:
    """Return `count` numbers from a label: a JSON list, or one number and then zeros."""
    if not columns.texts:
        return [number_of(where, label), *[0.0] * (count - 1)]
    try:
        scores = json.loads(label)
    except ValueError:
        scores = None
    if not isinstance(scores, list) or len(scores) != count:
        message = f"{where}: expected a list of {count} numbers in {columns.label!r}, found {label}"
        raise InvalidRow(message, "a wrong number of labels")
    return [number_of(where, str(value)) for value in scores]


def encode_ranked_passages(
    tokenizer: Tokenizer, rows: Sequence[RankedPassages], max_length: int, prompt: str = ""
) -> Groups:
    """Tokenize rows of `read_ranked_passages` as pairs, with the prompt before each query.

    Rows with fewer passages than the longest row are padded with empty passages, whose labels are `MISSING`. The labels
    are float32 `[n, K]`.
    """
    labels, passages = filled_passages(rows)
    pairs = [[(prompt + row.query, text) for text in texts] for row, texts in zip(rows, passages, strict=True)]
    one = np.zeros(len(rows), np.float32)
    return dataclasses.replace(encode_groups(tokenizer, pairs, one, max_length), labels=labels)


def filled_passages(rows: Sequence[RankedPassages]) -> tuple[np.ndarray, list[list[str]]]:
    """Return relevance, float32 `[n, K]`, and passages of rows, filled up to K with `MISSING` and empty texts."""
    size = max(len(row.passages) for row in rows)
    relevance = np.full((len(rows), size), MISSING, np.float32)
    for i, row in enumerate(rows):
        relevance[i, : len(row.relevance)] = row.relevance
    return relevance, [[*row.passages, *[""] * (size - len(row.passages))] for row in rows]
