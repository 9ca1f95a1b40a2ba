"""Labelled texts in tables: TSV, CSV and JSON lines (plain or compressed), and TFDS data sets prepared on this machine.

`read_examples` streams them one at a time, so that a file larger than memory can be predicted. Every complaint is an
InputError that names the file and the line.
"""

import csv
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bert_jax import storage
from bert_jax.data.bad_rows import BadRow, BadRows, check_utf8, place
from bert_jax.data.json_files import json_objects
from bert_jax.data.lines import numbered_lines
from bert_jax.errors import InputError, did_you_mean

FORMATS = (".tsv", ".csv", ".jsonl", ".json", ".ndjson")
# The csv module refuses longer fields; documents of a few megabytes are not an error here.
_LONGEST_CSV_FIELD = 1 << 24
_OTHER_KIND = "a field of another kind"  # why a row does not fit


@dataclasses.dataclass(frozen=True)
class Columns:
    """Which columns of a table hold what: names of the header, or numbers from 0 when `has_header` is False.

    Attributes:
        text: the (first) text.
        pair: the second text; "" when there is none.
        label: the label; "" when it is not wanted.
        has_header: whether the first line of a TSV or CSV names the columns.
        more: further texts.
        texts: a list of texts, which JSON lines and TFDS data sets can hold; "" when there is none.
        separator: what stands between the labels of a row that may have several, or none; "" = each has one.
    """

    text: str = ""
    pair: str = ""
    label: str = ""
    has_header: bool = True
    more: tuple[str, ...] = ()
    texts: str = ""
    separator: str = ""

    def filled(self, usual: "Columns") -> "Columns":
        """These columns, and the usual ones where they name none."""
        filled = {name: getattr(self, name) or getattr(usual, name) for name in ("text", "pair", "label")}
        return dataclasses.replace(self, **filled)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The columns that must be there."""
        return tuple(name for name in (self.text, self.pair, self.label, *self.more, self.texts) if name)


class Example(NamedTuple):
    """One row: where it stands (1-based line, or TFDS index) and its columns; None for a column that is not wanted."""

    line: int
    text: str
    pair: str | None
    label: str | None


def read_examples(spec: str, columns: Columns, bad: BadRows | None = None) -> Iterator[Example]:
    """Yields the rows of a table in order.

    Args:
        spec: a `.tsv`, `.csv` or `.jsonl` file, maybe compressed (`storage.COMPRESSED`), or `tfds:NAME[:SPLIT]`
            (split `train`).
            TSV is read as GLUE writes it: no quoting, a `"` is a character. CSV has quotes and may have newlines in
            them. JSON lines hold one object each; a boolean or number becomes its JSON text, a list of labels one text
            with the separator between them.
        columns: which columns to read.
        bad: counts rows that do not fit, of a caller that lets what is left through `bad.fitting`; None: they are an
            error.

    Raises:
        InputError: the file is missing, empty, cut short or not of its format, or a column is missing; or rows do not
            fit: they are not UTF-8 or not of the format, or have another number of columns than the first line. Reading
            is lazy: so is the complaint.
    """
    own = bad or BadRows(spec)
    rows = own.each(_rows(spec, columns, own), lambda row: _example(row, columns))
    return rows if bad else own.fitting(rows)


def _example(row: tuple[int, dict[str, Any]], columns: Columns) -> Example:
    line, values = row
    return Example(line, values[columns.text], values.get(columns.pair), values.get(columns.label))


def read_rows(spec: str, columns: Columns, bad: BadRows | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """As `read_examples`, but yields the line and every wanted column by its name: text, or a list of texts."""
    own = bad or BadRows(spec)
    rows = _rows(spec, columns, own)
    return rows if bad else own.fitting(rows)


def _rows(spec: str, columns: Columns, bad: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
    name = storage.without_compression(spec).lower()
    if spec.startswith("tfds:"):
        yield from _tfds_rows(spec, columns, bad)
    elif name.endswith(".tsv"):
        yield from _table_rows(spec, _tsv_lines(spec), _tsv_fields, columns, bad)
    elif name.endswith(".csv"):
        yield from _table_rows(spec, _csv_rows(spec), _csv_fields, columns, bad)
    elif name.endswith((".jsonl", ".json", ".ndjson")):
        objects = json_objects(spec, bad)
        yield from bad.each(objects, lambda found: (found[0], _values(found[1], found[2], columns)))
    else:
        raise InputError(
            f"{spec}: expected a file named {', '.join(FORMATS)} (maybe with {', '.join(storage.COMPRESSED)}), "
            "or tfds:NAME:SPLIT"
        )


def _tsv_lines(spec: str) -> Iterator[tuple[int, str]]:
    blank: list[int] = []
    for number, line in numbered_lines(spec):
        line = line.rstrip("\r\n")
        if not line:
            blank.append(number)  # a row of one empty column, unless nothing but such lines follows
            continue
        yield from ((earlier, "") for earlier in blank)
        blank.clear()
        yield number, line


def _tsv_fields(where: str, line: str) -> list[str]:
    check_utf8(where, line)
    return line.split("\t")


def _csv_rows(spec: str) -> Iterator[tuple[int, list[str] | csv.Error]]:
    csv.field_size_limit(_LONGEST_CSV_FIELD)
    reader = csv.reader((line for _, line in numbered_lines(spec)), strict=True)
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "expected after" not in str(error):  # a quote that nothing closes: what is behind it is lost
                raise InputError(f"{spec}: line {reader.line_num}: expected CSV, found: {error}") from None
            yield reader.line_num, error
            continue
        if fields:
            yield reader.line_num, fields


def _csv_fields(where: str, found: list[str] | csv.Error) -> list[str]:
    if isinstance(found, csv.Error):
        raise BadRow(f"{where}: expected CSV, found: {found}", "broken CSV")
    check_utf8(where, *found)
    return found


def _table_rows(
    spec: str,
    rows: Iterator[tuple[int, Any]],
    fields_of: Callable[[str, Any], list[str]],
    columns: Columns,
    bad: BadRows,
) -> Iterator[tuple[int, dict[str, str]]]:
    """Picks the wanted columns of each row; the first line settles where they are and how many a row has."""
    first = next(rows, None)
    if first is None:
        return
    fields = fields_of(place(spec, first[0]), first[1])
    places, width = _places(spec, first[0], fields, columns), len(fields)

    def picked(row: tuple[int, Any]) -> tuple[int, dict[str, str]]:
        where = place(spec, row[0])
        fields = fields_of(where, row[1])
        if len(fields) != width:
            message = f"{where}: expected {width} columns as in the first line, found {len(fields)}"
            raise BadRow(message, "another number of columns")
        return row[0], {name: fields[at] for name, at in places.items()}

    yield from bad.each(rows if columns.has_header else itertools.chain([first], rows), picked)


def _places(spec: str, line: int, first: list[str], columns: Columns) -> dict[str, int]:
    if columns.texts:
        raise InputError(f"{spec}: expected JSON lines or TFDS for a list of texts ({columns.texts!r}), found a table")
    places = {}
    for name in columns.wanted:
        if columns.has_header:
            if name not in first:
                raise InputError(f"{spec}: line {line}: expected a column {name!r}{did_you_mean(name, first)}")
            places[name] = first.index(name)
        elif not name.isascii() or not name.isdigit():
            raise InputError(f"{spec}: columns of a file without header are numbers from 0, found {name!r}")
        elif int(name) >= len(first):
            raise InputError(
                f"{spec}: line {line}: expected a column {name}, found {len(first)} columns (0 is the first)"
            )
        else:
            places[name] = int(name)
    return places


def _values(where: str, row: dict[str, Any], columns: Columns) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in columns.wanted:
        if name not in row:
            raise BadRow(f"{where}: expected a field {name!r}{did_you_mean(name, row)}", "a missing field")
        value = row[name]
        if name == columns.label and columns.separator and isinstance(value, (list, tuple)):
            value = _joined(where, value, columns)
        if name == columns.texts:
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                message = f"{where}: expected a list of texts in {name!r}, found {_described(value)}"
                raise BadRow(message, _OTHER_KIND)
            check_utf8(where, *value)
            values[name] = value
            continue
        is_text = isinstance(value, str)
        if not is_text and (name != columns.label or not isinstance(value, (bool, int, float))):
            raise BadRow(f"{where}: expected text in {name!r}, found {type(value).__name__}", _OTHER_KIND)
        values[name] = value if is_text else json.dumps(value)
        check_utf8(where, values[name])
    return values


def _described(value: Any) -> str:
    others = [type(item).__name__ for item in value if not isinstance(item, str)] if isinstance(value, list) else []
    return f"one with {others[0]}" if others else type(value).__name__


def _joined(where: str, labels: Sequence[Any], columns: Columns) -> str:
    for label in labels:
        if not isinstance(label, str) or not label or columns.separator in label:
            expected = f"labels that are texts without {columns.separator!r}"
            raise BadRow(f"{where}: expected {expected} in {columns.label!r}, found {label!r}", _OTHER_KIND)
    return columns.separator.join(labels)


def open_tfds(spec: str, wanted: Iterable[str]) -> tuple[Any, Any]:
    """The rows, by index, and the features of a TFDS data set that is already prepared in TFDS_DATA_DIR.

    Raises:
        InputError: it is not there, or has not the features `wanted`.
    """
    import tensorflow_datasets as tfds  # here: it takes a second that no other user should wait for

    name, _, split = spec.removeprefix("tfds:").partition(":")
    try:
        source = tfds.data_source(name, split=split or "train", download=False)
    except Exception as error:  # its loaders raise their own assorted types for an absent name, split or directory
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"{spec}: expected a TFDS data set and split prepared on this machine, found: {reason}"
        ) from None
    features = source.dataset_info.features
    for name in wanted:
        if name not in features:
            raise InputError(f"{spec}: expected a feature {name!r}{did_you_mean(name, features)}")
    return source, features


def _tfds_rows(spec: str, columns: Columns, bad: BadRows) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a TFDS data set; integers of a ClassLabel become names."""
    source, features = open_tfds(spec, columns.wanted)

    def read(index: int) -> tuple[int, dict[str, str]]:
        row = source[index]
        named = {name: plain(row[name], features[name]) for name in columns.wanted}
        return index, _values(place(spec, index), named, columns)

    yield from bad.each(range(len(source)), read)


def plain(value: Any, feature: Any) -> Any:
    """A value of a TFDS row as text or number; that of a ClassLabel as its name."""
    if hasattr(feature, "int2str"):
        return feature.int2str(int(value)) if int(value) >= 0 else str(int(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")  # as the lines of files are
    if isinstance(value, list) or getattr(value, "ndim", 0) == 1:  # a sequence
        return [plain(item, None) for item in value]
    return value.item() if hasattr(value, "item") else value
