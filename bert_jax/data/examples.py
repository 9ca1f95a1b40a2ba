"""Labelled texts in tables: TSV, CSV and JSON lines (plain or compressed), and TFDS data sets prepared on this machine.

`read_examples` streams them one at a time, so that a file larger than memory can be predicted. Every complaint is an
InputError that names the file and the line.
"""

import csv
import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bert_jax import files
from bert_jax.errors import InputError, did_you_mean

FORMATS = (".tsv", ".csv", ".jsonl", ".json", ".ndjson")
# The csv module refuses longer fields; documents of a few megabytes are not an error here.
_LONGEST_CSV_FIELD = 1 << 24


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


def read_examples(spec: str, columns: Columns) -> Iterator[Example]:
    """Yields the rows of a table in order.

    Args:
        spec: a `.tsv`, `.csv` or `.jsonl` file, maybe compressed (`files.COMPRESSED`), or `tfds:NAME[:SPLIT]`
            (split `train`).
            TSV is read as GLUE writes it: no quoting, a `"` is a character. CSV has quotes and may have newlines in
            them. JSON lines hold one object each; a boolean or number becomes its JSON text, a list of labels one text
            with the separator between them.
        columns: which columns to read.

    Raises:
        InputError: the file is missing, empty, cut short, not UTF-8 or not of its format; a column is missing or a row
            has another number of columns than the first line. Reading is lazy: so is the complaint.
    """
    for line, values in read_rows(spec, columns):
        yield Example(line, values[columns.text], values.get(columns.pair), values.get(columns.label))


def read_rows(spec: str, columns: Columns) -> Iterator[tuple[int, dict[str, Any]]]:
    """As `read_examples`, but yields the line and every wanted column by its name: text, or a list of texts."""
    if spec.startswith("tfds:"):
        rows = _tfds_rows(spec, columns)
    else:
        name = files.without_compression(spec).lower()
        if name.endswith(".tsv"):
            rows = _table_rows(spec, _tsv_fields(spec), columns)
        elif name.endswith(".csv"):
            rows = _table_rows(spec, _csv_fields(spec), columns)
        elif name.endswith((".jsonl", ".json", ".ndjson")):
            rows = _json_rows(spec, columns)
        else:
            raise InputError(
                f"{spec}: expected a file named {', '.join(FORMATS)} (maybe with {', '.join(files.COMPRESSED)}), "
                "or tfds:NAME:SPLIT"
            )
    found = False
    for row in rows:
        found = True
        yield row
    if not found:
        raise InputError(f"{spec}: expected at least one row, found none")


def read_lines(spec: str) -> Iterator[str]:
    """Yields the lines of a text file, maybe compressed, without their ends. Raises InputError as `read_examples`."""
    for _, line in numbered_lines(spec):
        yield line.removesuffix("\n").removesuffix("\r")


def numbered_lines(spec: str) -> Iterator[tuple[int, str]]:
    """Yields (1-based number, line with its newline). Only `\\n` ends a line: U+2028 and its like are text."""
    path = files.existing(spec)
    number = 0
    try:
        with files.open_decompressed(path) as (file, _):
            for number, line in enumerate(file, 1):
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{spec}: line {number}: expected UTF-8 text, found byte 0x{error.object[error.start]:02x}"
            f" at offset {error.start} of the line"
        ) from None
    except files.DamagedError as error:
        raise InputError(f"{spec}: after line {number}: {error}") from None
    if number == 0:
        raise InputError(f"{spec}: expected rows, found an empty file")


def _tsv_fields(spec: str) -> Iterator[tuple[int, list[str]]]:
    blank: list[int] = []
    for number, line in numbered_lines(spec):
        line = line.rstrip("\r\n")
        if not line:
            blank.append(number)  # a row of one empty column, unless nothing but such lines follows
            continue
        yield from ((earlier, [""]) for earlier in blank)
        blank.clear()
        yield number, line.split("\t")


def _csv_fields(spec: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(_LONGEST_CSV_FIELD)
    reader = csv.reader((line for _, line in numbered_lines(spec)), strict=True)
    try:
        for fields in reader:
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        raise InputError(f"{spec}: line {reader.line_num}: expected CSV, found: {error}") from None


def _table_rows(
    spec: str, rows: Iterator[tuple[int, list[str]]], columns: Columns
) -> Iterator[tuple[int, dict[str, str]]]:
    """Picks the wanted columns of each row; the first line settles where they are and how many a row has."""
    places: dict[str, int] | None = None
    width = 0
    for line, fields in rows:
        if places is None:
            places, width = _places(spec, line, fields, columns), len(fields)
            if columns.has_header:
                continue
        if len(fields) != width:
            raise InputError(f"{spec}: line {line}: expected {width} columns as in the first line, found {len(fields)}")
        yield line, {name: fields[place] for name, place in places.items()}


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


def json_objects(spec: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yields the number of each line that is not blank, what to call it in messages, and its object.

    Raises:
        InputError: as `numbered_lines`, or a line is no JSON object.
    """
    for number, line in numbered_lines(spec):
        if not line.strip():
            continue
        where = f"{spec}: line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"{where}: expected a JSON object, found {error.msg} at column {error.colno}") from None
        if not isinstance(row, dict):
            raise InputError(f"{where}: expected a JSON object, found {type(row).__name__}")
        yield number, where, row


def _json_rows(spec: str, columns: Columns) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, where, row in json_objects(spec):
        yield number, _values(where, row, columns)


def _values(where: str, row: dict[str, Any], columns: Columns) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in columns.wanted:
        if name not in row:
            raise InputError(f"{where}: expected a field {name!r}{did_you_mean(name, row)}")
        value = row[name]
        if name == columns.label and columns.separator and isinstance(value, (list, tuple)):
            value = _joined(where, value, columns)
        if name == columns.texts:
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise InputError(f"{where}: expected a list of texts in {name!r}, found {_described(value)}")
            values[name] = value
            continue
        is_text = isinstance(value, str)
        if not is_text and (name != columns.label or not isinstance(value, (bool, int, float))):
            raise InputError(f"{where}: expected text in {name!r}, found {type(value).__name__}")
        values[name] = value if is_text else json.dumps(value)
    return values


def _described(value: Any) -> str:
    others = [type(item).__name__ for item in value if not isinstance(item, str)] if isinstance(value, list) else []
    return f"one with {others[0]}" if others else type(value).__name__


def _joined(where: str, labels: Sequence[Any], columns: Columns) -> str:
    for label in labels:
        if not isinstance(label, str) or not label or columns.separator in label:
            expected = f"labels that are texts without {columns.separator!r}"
            raise InputError(f"{where}: expected {expected} in {columns.label!r}, found {label!r}")
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


def _tfds_rows(spec: str, columns: Columns) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a TFDS data set; integers of a ClassLabel become names."""
    source, features = open_tfds(spec, columns.wanted)
    for index in range(len(source)):
        row = source[index]
        named = {name: plain(row[name], features[name]) for name in columns.wanted}
        yield index, _values(f"{spec}: example {index}", named, columns)


def plain(value: Any, feature: Any) -> Any:
    """A value of a TFDS row as text or number; that of a ClassLabel as its name."""
    if hasattr(feature, "int2str"):
        return feature.int2str(int(value)) if int(value) >= 0 else str(int(value))
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list) or getattr(value, "ndim", 0) == 1:  # a sequence
        return [plain(item, None) for item in value]
    return value.item() if hasattr(value, "item") else value
