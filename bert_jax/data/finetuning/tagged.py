"""Read sentences whose words have tags: CoNLL files, JSON files and TFDS data sets.

`read_sentences` yields them one at a time. Every error is an InputError that names the file and the line.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax import storage
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.conll import CONLL_FORMATS, Sentence, read_conll
from bert_jax.data.finetuning.records import plain_value
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows, check_utf8, place
from bert_jax.data.json_files import json_objects
from bert_jax.data.table_formats import has_registered_format
from bert_jax.data.tfds_sets import open_tfds
from bert_jax.errors import InputError, did_you_mean, logger

JSON_FORMATS = (".jsonl", ".json", ".ndjson", ".parquet")  # .parquet needs pyarrow
# The default columns of JSON and TFDS; CoNLL's are the first and the last.
TAGGED_COLUMNS = Columns("tokens", "", "tags")
_OTHER_LABEL = "ner_tags"  # the default label column of JSON objects without `tags`, as Hugging Face names it
_NAMES_SHOWN = 4
_LONGEST_NUMBER = 9  # digits in a class number
_log = logger(__name__)


def read_sentences(
    spec: str,
    columns: Columns,
    tagged: bool = True,
    bad: InvalidRows | None = None,
    names: Sequence[str] = (),
    keep_lines: bool = False,
) -> Iterator[Sentence]:
    """Yield the sentences of a file in order.

    Args:
        spec: a CoNLL file (`CONLL_FORMATS`) or JSON (`JSON_FORMATS`), possibly compressed (`storage.COMPRESSED`), or
            `tfds:NAME[:SPLIT]` (split `train`). CoNLL has one word per line, columns separated by tabs or spaces, and
            a blank line after a sentence (`finetuning.conll`). JSON lines, or one array, hold objects with two lists.
        columns: `text`, the column of the words, and `label`, the column of the tags: in CoNLL as for `read_conll`,
            otherwise names (default: `tokens`, and `tags` or, in JSON, `ner_tags`).
        tagged: whether tags are read; otherwise the file needs none.
        bad: counts invalid sentences; the caller passes the yielded sentences through `bad.fitting`. None: invalid
            sentences are an error.
        names: the names of the classes, in their order, where tags are numbers; () where tags are names.
        keep_lines: whether sentences keep their lines (`Sentence.source`); the file must then be CoNLL-U.

    Raises:
        InputError: the file is missing, without sentences, cut short or not of its format; or sentences are invalid:
            not UTF-8, a line has another number of columns than the first, a word is empty, or words and tags differ
            in number. As reading is lazy, the error is raised during iteration.
    """
    own = bad or InvalidRows(spec, noun="sentence")
    numbers = _TagNumbers(names)
    sentences = own.each(
        _sentences(spec, columns, tagged, own, bool(names), keep_lines), lambda found: numbers.named(spec, found)
    )
    return sentences if bad else own.fitting(sentences)


def _sentences(
    spec: str, columns: Columns, tagged: bool, bad: InvalidRows, by_numbers: bool, keep_lines: bool
) -> Iterator[Sentence]:
    if columns.pair:
        raise InputError(f"{spec}: expected single sentences, found a column {columns.pair!r} for pairs")
    name = storage.without_compression(spec).lower()
    if keep_lines and not name.endswith(CONLL_FORMATS):
        raise InputError(f"{spec}: expected CoNLL-U, as its lines are kept, found another format")
    if spec.startswith("tfds:"):
        yield from _from_tfds(spec, columns.filled(TAGGED_COLUMNS), tagged, bad)
    elif name.endswith(JSON_FORMATS) or has_registered_format(spec):
        yield from _from_json(spec, columns, tagged, bad, by_numbers)
    elif name.endswith(CONLL_FORMATS):
        yield from read_conll(spec, columns.text, columns.label, tagged, bad, keep_lines)
    else:
        raise InputError(
            f"{spec}: expected a file named {', '.join((*CONLL_FORMATS, *JSON_FORMATS))} "
            f"(optionally with {', '.join(storage.COMPRESSED)}), or tfds:NAME:SPLIT"
        )


class _TagNumbers:
    """Convert tags that are numbers to names; log the first conversion."""

    def __init__(self, names: Sequence[str]):
        self._names, self._known, self._said = tuple(names), frozenset(names), False

    def named(self, spec: str, sentence: Sentence) -> Sentence:
        """Return the sentence with names of tags. Raises InvalidRow where a number is not that of a class."""
        if not self._names or not sentence.tags or self._known.issuperset(sentence.tags):
            return sentence
        tags = tuple(self._name(place(spec, sentence.line), tag) for tag in sentence.tags)
        if tags != sentence.tags and not self._said:
            shown = ", ".join(f"{number} = {name}" for number, name in enumerate(self._names[:_NAMES_SHOWN]))
            _log.warning("%s: tags are numbers, read as classes: %s, ...", spec, shown)
            self._said = True
        return sentence._replace(tags=tags)

    def _name(self, where: str, tag: str) -> str:
        if tag in self._known or not (tag.isascii() and tag.isdigit()):
            return tag
        if len(tag) > _LONGEST_NUMBER or int(tag) >= len(self._names):
            names = len(self._names)
            message = f"{where}: expected a tag from 0 to {names - 1} (there are {names} names), found {tag}"
            raise InvalidRow(message, "a tag that is not known")
        return self._names[int(tag)]


def _from_json(spec: str, columns: Columns, tagged: bool, bad: InvalidRows, by_numbers: bool) -> Iterator[Sentence]:
    defaults = columns.filled(TAGGED_COLUMNS)
    other = defaults if columns.label else dataclasses.replace(defaults, label=_OTHER_LABEL)

    def sentence(found: tuple[int, str, dict[str, Any]]) -> Sentence:
        number, where, row = found
        own = defaults if defaults.label in row or other.label not in row else other
        for name in (own.text, own.label)[: 1 + tagged]:
            if name not in row:
                raise InvalidRow(f"{where}: expected a field {name!r}{did_you_mean(name, row)}", "a missing field")
        if tagged:
            row = row | {own.label: _numbers_as_text(where, own.label, row[own.label], by_numbers)}
        return _sentence(where, number, row, own, tagged)

    return bad.each(json_objects(spec, bad), sentence)


def _numbers_as_text(where: str, column: str, tags: Any, by_numbers: bool) -> Any:
    """Convert the numbers in a list of tags to text. Raises InvalidRow where the names of the classes are not known."""
    numbers = [tag for tag in tags if type(tag) is int] if isinstance(tags, list) else []
    if not numbers:
        return tags
    if not by_numbers:
        hint = "the names of the classes in their order (data.tag_names, --tag-names)"
        message = f"{where}: expected strings in {column!r}, or {hint}, found the number {numbers[0]}"
        raise InvalidRow(message, "tags that are numbers without names")
    return [str(tag) if type(tag) is int else tag for tag in tags]


def _from_tfds(spec: str, columns: Columns, tagged: bool, bad: InvalidRows) -> Iterator[Sentence]:
    names = (columns.text, columns.label)[: 1 + tagged]
    source, features = open_tfds(spec, names)
    for name in names:
        if not hasattr(features[name], "feature"):
            raise InputError(f"{spec}: expected a sequence in {name!r}, found {type(features[name]).__name__}")

    def sentence(index: int) -> Sentence:
        row = {name: [plain_value(value, features[name].feature) for value in source[index][name]] for name in names}
        return _sentence(place(spec, index), index, row, columns, tagged)

    return bad.each(range(len(source)), sentence)


def _sentence(where: str, line: int, row: dict[str, Any], columns: Columns, tagged: bool) -> Sentence:
    words = _strings(where, columns.text, row[columns.text])
    tags = _strings(where, columns.label, row[columns.label]) if tagged else None
    if tags is not None and len(tags) != len(words):
        message = f"{where}: expected a tag for each word, found {len(words)} words and {len(tags)} tags"
        raise InvalidRow(message, "different numbers of words and tags")
    return Sentence(line, words, tags)


def _strings(where: str, name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        message = f"{where}: expected a list of strings in {name!r}, found {type(value).__name__}"
        raise InvalidRow(message, "a field of another kind")
    if not value:
        raise InvalidRow(f"{where}: expected at least one string in {name!r}, found none", "no words")
    for i, item in enumerate(value):
        if not isinstance(item, str) or not item:
            found = "an empty one" if item == "" else type(item).__name__
            message = f"{where}: expected strings in {name!r}, found {found} at index {i}"
            raise InvalidRow(message, "a field of another kind")
    check_utf8(where, *value)
    return tuple(value)
