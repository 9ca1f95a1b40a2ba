"""Read texts with typed spans of words: JSON files of `tokenized_text` and `ner`, and tagged sentences."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_jax import storage
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.conll import Sentence
from bert_jax.data.finetuning.tagged import JSON_FORMATS, read_sentences
from bert_jax.data.finetuning.tags import BEGIN, END, INSIDE, OUTSIDE, read_scheme
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows, check_utf8, place
from bert_jax.data.json_files import json_objects
from bert_jax.data.table_formats import has_registered_format
from bert_jax.errors import InputError, did_you_mean, printable

SPAN_COLUMNS = Columns("tokenized_text", "", "ner")  # default columns of JSON files


class SpanText(NamedTuple):
    """A text with typed spans.

    Attributes:
        line: the line or row of the file, for messages.
        words: the words.
        spans: (first word, word after the last, type) of each span.
    """

    line: int
    words: tuple[str, ...]
    spans: tuple[tuple[int, int, str], ...]


def read_span_texts(
    spec: str, columns: Columns, renamed: Mapping[str, str], bad: InvalidRows, labelled: bool = True
) -> list[SpanText]:
    """Read the valid texts of a file; arguments and errors as for `iterate_span_texts`."""
    return list(bad.fitting(iterate_span_texts(spec, columns, renamed, bad, labelled)))


def iterate_span_texts(
    spec: str, columns: Columns, renamed: Mapping[str, str], bad: InvalidRows, labelled: bool = True
) -> Iterator[SpanText]:
    """Yield the texts of a file in order; the caller passes them through `bad.fitting`.

    Args:
        spec: a JSON file (`JSON_FORMATS`), whose rows are `{"tokenized_text": [WORD, ...], "ner": [[FIRST, LAST, TYPE],
            ...]}` with numbers of words from 0; or tagged sentences, as for `read_sentences`.
        columns: for JSON the names of the two fields, otherwise as for `read_sentences`.
        renamed: type in the file -> its name.
        bad: collects the invalid rows.
        labelled: whether spans are read; otherwise the file needs none.

    Raises:
        InputError: the file is missing or damaged.
    """
    if columns.pair:
        raise InputError(f"{spec}: expected single texts, found a column {columns.pair!r} for pairs")
    if storage.without_compression(spec).lower().endswith(JSON_FORMATS) or has_registered_format(spec):
        filled = columns.filled(SPAN_COLUMNS)
        rows = bad.each(json_objects(spec, bad), lambda source: _text(source, filled, labelled))
    else:
        sentences = read_sentences(spec, columns, labelled, bad)
        rows = bad.each(sentences, lambda source: _of_tags(spec, source, labelled))
    return bad.each(rows, lambda row: _renamed(row, renamed))


def types_of(renames: tuple[str, ...], key: str) -> dict[str, str]:
    """Parse texts such as `PER=person` into type -> name. Raises InputError when one has another form."""
    pairs = [text.partition("=") if isinstance(text, str) else ("", "", "") for text in renames]
    for text, (before, _, after) in zip(renames, pairs, strict=True):
        if not before.strip() or not after.strip():
            raise InputError(f"{key}: expected entries such as 'PER=person', found {printable(repr(text), 60)}")
    return {before.strip(): after.strip() for before, _, after in pairs}


def _renamed(text: SpanText, renamed: Mapping[str, str]) -> SpanText:
    return text._replace(spans=tuple((start, stop, renamed.get(kind, kind)) for start, stop, kind in text.spans))


def _text(numbered_row: tuple[int, str, dict[str, Any]], columns: Columns, labelled: bool) -> SpanText:
    number, where, row = numbered_row
    for name in (columns.text, columns.label)[: 1 + labelled]:
        if name not in row:
            raise InvalidRow(f"{where}: expected a field {name!r}{did_you_mean(name, row)}", "a missing field")
    words = row[columns.text]
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        shown = printable(repr(words), 60)
        raise InvalidRow(f"{where}: expected a list of words in {columns.text!r}, found {shown}", "no list of words")
    check_utf8(where, *words)
    spans = row[columns.label] if labelled else []
    if not isinstance(spans, list):
        shown = type(spans).__name__
        raise InvalidRow(f"{where}: expected a list of spans in {columns.label!r}, found {shown}", "no list of spans")
    return SpanText(number, tuple(words), tuple(_span(where, columns.label, span, len(words)) for span in spans))


def _span(where: str, name: str, span: Any, count: int) -> tuple[int, int, str]:
    if isinstance(span, list) and len(span) == 3:
        first, last, kind = span
        fits = type(first) is int and type(last) is int and 0 <= first <= last < count
        if fits and isinstance(kind, str) and kind.strip():
            check_utf8(where, kind)
            return first, last + 1, kind.strip()
    raise InvalidRow(
        f"{where}: expected [first, last, type] with words 0 to {count - 1} in {name!r}, found "
        f"{printable(repr(span), 60)}", "an invalid span",
    )  # fmt: skip


def _of_tags(spec: str, sentence: Sentence, labelled: bool) -> SpanText:
    """Return a tagged sentence as a text with the spans that its tags mark."""
    tags = sentence.tags if labelled and sentence.tags else ()
    return SpanText(sentence.line, sentence.words, tuple(_marked(spec, sentence, tags)))


def _marked(spec: str, sentence: Sentence, tags: tuple[str, ...]) -> Iterator[tuple[int, int, str]]:
    names = tuple(sorted(set(tags) - {"O"}))
    if not names:
        return
    scheme = read_scheme(names)
    if scheme is None:
        where = place(spec, sentence.line)
        raise InvalidRow(f"{where}: expected O or tags like B-PER, found {', '.join(names[:5])}", "tags of no scheme")
    kinds = {"O": (OUTSIDE, "")} | {
        name: (int(kind), scheme.type_names[number])
        for name, kind, number in zip(names, scheme.kinds, scheme.types, strict=True)
    }
    start, before = None, (OUTSIDE, "")
    for i, now in enumerate([*(kinds[tag] for tag in tags), (OUTSIDE, "")]):
        goes_on = now[1] == before[1] and before[0] in (BEGIN, INSIDE) and now[0] in (INSIDE, END)
        if start is not None and not goes_on:
            yield start, i, before[1]
            start = None
        if start is None and now[0] != OUTSIDE:
            start = i
        before = now


def type_counts(texts: list[SpanText]) -> dict[str, int]:
    """Return type -> number of spans, by name."""
    types, counts = np.unique([kind for text in texts for _, _, kind in text.spans], return_counts=True)
    return dict(zip(types.tolist(), counts.tolist(), strict=True))
