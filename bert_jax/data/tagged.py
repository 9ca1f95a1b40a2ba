"""Sentences as words with a tag each: CoNLL files, JSON lines (plain or compressed), and TFDS data sets.

`read_sentences` streams them one at a time. Every complaint is an InputError that names the file and the line.
"""

from collections.abc import Iterator
from typing import Any

from bert_jax import storage
from bert_jax.data.bad_rows import BadRow, BadRows, check_utf8, place
from bert_jax.data.conll import CONLL_FORMATS, Sentence, read_conll
from bert_jax.data.examples import Columns, open_tfds, plain
from bert_jax.data.json_files import json_objects
from bert_jax.errors import InputError, did_you_mean

JSON_FORMATS = (".jsonl", ".json", ".ndjson")
COLUMNS = Columns(
    "tokens", "", "tags"
)  # of JSON and TFDS, where the caller names none; of CoNLL the first and the last


def read_sentences(spec: str, columns: Columns, tagged: bool = True, bad: BadRows | None = None) -> Iterator[Sentence]:
    """Yields the sentences of a file in order.

    Args:
        spec: a CoNLL file (`CONLL_FORMATS`) or JSON lines (`JSON_FORMATS`), maybe compressed (`storage.COMPRESSED`), or
            `tfds:NAME[:SPLIT]` (split `train`). CoNLL has a word a line, its columns apart by tabs or spaces, and a
            blank line after a sentence. JSON lines hold an object with two lists of strings each.
        columns: `text`, of the words, and `label`, of the tags: numbers of columns from 0 in CoNLL (by default the
            first and the last), names elsewhere (by default `tokens` and `tags`).
        tagged: whether tags are wanted; otherwise they need not be there.
        bad: counts sentences that do not fit, of a caller that lets what is left through `bad.fitting`; None: they are
            an error.

    Raises:
        InputError: the file is missing, without sentences, cut short or not of its format; or sentences do not fit:
            they are not UTF-8, a line has another number of columns than the first, a word is empty, or words and tags
            differ in number. Reading is lazy: so is the complaint.
    """
    own = bad or BadRows(spec, noun="sentence")
    sentences = _sentences(spec, columns, tagged, own)
    return sentences if bad else own.fitting(sentences)


def _sentences(spec: str, columns: Columns, tagged: bool, bad: BadRows) -> Iterator[Sentence]:
    if columns.pair:
        raise InputError(f"{spec}: expected single sentences, found a column {columns.pair!r} for pairs")
    name = storage.without_compression(spec).lower()
    if spec.startswith("tfds:"):
        yield from _from_tfds(spec, columns.filled(COLUMNS), tagged, bad)
    elif name.endswith(JSON_FORMATS):
        yield from _from_json(spec, columns.filled(COLUMNS), tagged, bad)
    elif name.endswith(CONLL_FORMATS):
        yield from read_conll(spec, columns.text, columns.label, tagged, bad)
    else:
        raise InputError(
            f"{spec}: expected a file named {', '.join((*CONLL_FORMATS, *JSON_FORMATS))} "
            f"(maybe with {', '.join(storage.COMPRESSED)}), or tfds:NAME:SPLIT"
        )


def _from_json(spec: str, columns: Columns, tagged: bool, bad: BadRows) -> Iterator[Sentence]:
    def sentence(found: tuple[int, str, dict[str, Any]]) -> Sentence:
        number, where, row = found
        for name in (columns.text, columns.label)[: 1 + tagged]:
            if name not in row:
                raise BadRow(f"{where}: expected a field {name!r}{did_you_mean(name, row)}", "a missing field")
        return _sentence(where, number, row, columns, tagged)

    return bad.each(json_objects(spec, bad), sentence)


def _from_tfds(spec: str, columns: Columns, tagged: bool, bad: BadRows) -> Iterator[Sentence]:
    names = (columns.text, columns.label)[: 1 + tagged]
    source, features = open_tfds(spec, names)
    for name in names:
        if not hasattr(features[name], "feature"):
            raise InputError(f"{spec}: expected a sequence in {name!r}, found {type(features[name]).__name__}")

    def sentence(index: int) -> Sentence:
        row = {name: [plain(value, features[name].feature) for value in source[index][name]] for name in names}
        return _sentence(place(spec, index), index, row, columns, tagged)

    return bad.each(range(len(source)), sentence)


def _sentence(where: str, line: int, row: dict[str, Any], columns: Columns, tagged: bool) -> Sentence:
    words = _strings(where, columns.text, row[columns.text])
    tags = _strings(where, columns.label, row[columns.label]) if tagged else None
    if tags is not None and len(tags) != len(words):
        message = f"{where}: expected a tag for each word, found {len(words)} words and {len(tags)} tags"
        raise BadRow(message, "other numbers of words than of tags")
    return Sentence(line, words, tags)


def _strings(where: str, name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        message = f"{where}: expected a list of strings in {name!r}, found {type(value).__name__}"
        raise BadRow(message, "a field of another kind")
    if not value:
        raise BadRow(f"{where}: expected at least one string in {name!r}, found none", "no words")
    for i, item in enumerate(value):
        if not isinstance(item, str) or not item:
            found = "an empty one" if item == "" else type(item).__name__
            message = f"{where}: expected strings in {name!r}, found {found} at place {i}"
            raise BadRow(message, "a field of another kind")
    check_utf8(where, *value)
    return tuple(value)
