"""Read rows of one or more texts, perhaps with a numeric label, from a table, and tokenize them."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax import storage
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.groups import Groups, encode_groups
from bert_jax.data.finetuning.records import table_name
from bert_jax.data.finetuning.tables import read_rows
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows, check_texts, number_of, place
from bert_jax.data.lines import read_lines
from bert_jax.errors import InputError
from bert_jax.tokenization import Tokenizer

PairRow = tuple[int, dict[str, Any]]  # line number, and values by column


def read_pairs(
    spec: str, columns: Columns, label_limit: float = math.inf, bad: InvalidRows | None = None
) -> list[PairRow]:
    """Read the rows of a table of pairs or triplets.

    Args:
        spec: the table, as for `read_rows`; or, for a single column, a text file (`.txt`, maybe compressed) with a text
            in each line. Blank lines are skipped.
        columns: columns of text and pair; `more` has the negatives; the label is a number.
        label_limit: the greatest absolute value of a label.
        bad: treatment of invalid rows; None means that they are an error.

    Raises:
        InputError: as for `read_rows`, or a text is empty, or a label is no number or beyond the limit.
    """
    bad = bad or InvalidRows(table_name(spec))
    return list(bad.fitting(stream_pairs(spec, columns, bad, label_limit)))


def stream_pairs(spec: str, columns: Columns, bad: InvalidRows, label_limit: float = math.inf) -> Iterator[PairRow]:
    """Yield the rows of `read_pairs` lazily; the caller must pass them through `bad.fitting`."""
    rows = _lines(spec, columns) if _is_text(spec) else read_rows(spec, columns, bad)
    return bad.each(rows, lambda row: _checked(place(table_name(spec), row[0]), row, columns, label_limit))


def _is_text(spec: Any) -> bool:
    return isinstance(spec, str) and storage.without_compression(spec).lower().endswith(".txt")


def _lines(spec: str, columns: Columns) -> Iterator[PairRow]:
    if len(columns.wanted) > 1:
        raise InputError(f"{spec}: expected a table with the columns {', '.join(columns.wanted)}, found a text file")
    for number, line in enumerate(read_lines(spec), 1):
        if line.strip():
            yield number, {columns.text: line}


def _checked(where: str, row: PairRow, columns: Columns, limit: float = math.inf) -> PairRow:
    _, values = row
    check_texts(where, {name: values[name] for name in text_columns(columns)})
    if columns.label:
        label = number_of(where, values[columns.label])
        if abs(label) > limit:
            expected = f"a label from {-limit:g} to {limit:g} (data.label_scale)"
            raise InvalidRow(f"{where}: expected {expected}, found {values[columns.label]}", "a label out of range")
    return row


def encode_pairs(
    tokenizer: Tokenizer,
    rows: Sequence[PairRow],
    columns: Columns,
    max_length: int,
    label_limit: float = math.inf,
    prompt: str = "",
    document_prompt: str | None = None,
) -> Groups:
    """Tokenize rows of `read_pairs`, with the prompt before each text; divide the labels by `label_limit` if finite.

    `document_prompt` is put before all texts of a row but the first; None = the same prompt.
    """
    labels, unit_label = np.zeros(len(rows), np.float32), label_limit if math.isfinite(label_limit) else 1.0
    if columns.label:
        labels[:] = [number_of("label", values[columns.label]) / unit_label for _, values in rows]
    texts = prompted_texts((values for _, values in rows), columns, prompt, document_prompt)
    return encode_groups(tokenizer, texts, labels, max_length)


def prompted_texts(
    rows: Iterable[dict[str, Any]], columns: Columns, prompt: str = "", document_prompt: str | None = None
) -> list[list[tuple[str, None]]]:
    """Return the texts of each row after their prompts, for `encode_groups`; arguments as for `encode_pairs`."""
    names = text_columns(columns)
    prompts = [prompt, *[prompt if document_prompt is None else document_prompt] * (len(names) - 1)]
    return [[(text + values[name], None) for text, name in zip(prompts, names, strict=True)] for values in rows]


def text_columns(columns: Columns) -> tuple[str, ...]:
    """Return the columns of the texts of a row, in order."""
    return tuple(name for name in (columns.text, columns.pair, *columns.more) if name)
