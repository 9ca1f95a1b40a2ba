"""Read labels from cells; find classes that differ only in spelling, and labels such as `-` for missing ones."""

import ast
import collections
import dataclasses
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.data.finetuning.columns import Columns, recipe_key
from bert_jax.data.invalid_rows import InvalidRow
from bert_jax.data.listing import list_counts, list_names
from bert_jax.errors import InputError, logger, printable

NEAR_DUPLICATE_RULES = ("keep", "merge")  # rules for classes that differ only in spelling
MISSING_RULES = ("keep", "drop")  # rules for rows whose label, such as `-`, means a missing one
MAX_CLASSES = 50_000
_MAX_LABEL = 1000  # characters of a label: a longer one is a text
_MOSTLY_DISTINCT = 1000  # a column with more distinct labels than this and than half its rows does not hold classes
_COMMON = 10  # if the most frequent class has this many rows, classes with a single row cause a warning
_MAX_LIST = 1 << 20  # characters of a list written as text
_MISSING = frozenset({"", "-", "?", "nan", "none", "null", "n/a", "na", "<na>"})
_MARKS = frozenset({"0", "1", "0.0", "1.0", "false", "true"})  # values of a list with a 0 or 1 for each class
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?")
_ARRAY = re.compile(r"\[\s*[01]\.?(\s+[01]\.?)+\s*\]")  # such a list as NumPy prints it
_GENERIC = re.compile(r"label_(\d{1,9})", re.IGNORECASE)
_QUOTES = {'"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb", "`": "`"}
_log = logger(__name__)


@dataclasses.dataclass(frozen=True)
class LabelRules:
    """How to treat labels that are probably not meant as separate classes.

    Attributes:
        near_duplicates: how to treat classes that differ only in case, spaces, quotes, Unicode form or spelling of a
            number. `keep`: only warn; `merge`: replace them by the most frequent of them.
        missing: how to treat labels that mean a missing label, such as SNLI's `-`, and empty labels. `keep`: the former
            are classes, with a warning, and rows with the latter are invalid; `drop`: rows with either are left out.
        names: the classes in their order, which allows class numbers as labels; () = the labels found.
    """

    near_duplicates: str = "keep"
    missing: str = "keep"
    names: tuple[str, ...] = ()


class Cell(NamedTuple):
    """The labels of one row.

    Attributes:
        labels: as they are written, without surrounding spaces.
        is_list: whether they were written as a list, so that `[1, 0]` may be a 1 or 0 for each of two classes.
    """

    labels: tuple[str, ...]
    is_list: bool

    @property
    def is_of_marks(self) -> bool:
        """Whether the cell may be a 0 or 1 for each class."""
        return self.is_list and len(self.labels) > 1 and {label.lower() for label in self.labels} <= _MARKS


def read_cell(where: str, text: str, columns: Columns) -> Cell:
    """Return the labels in a cell: one, several joined by a separator, or a list as JSON, Python or NumPy writes it.

    Raises:
        InvalidRow: a list does not hold one label where rows have one label; a label contains the separator; or a label
            has more than a thousand characters.
    """
    labels = _list_in(text.strip())
    if labels is None:
        parts = text.split(columns.separator) if columns.separator else [text]
        cell = Cell(tuple(part.strip() for part in parts), False)
        if columns.separator:
            cell = Cell(tuple(filter(None, cell.labels)), False)
    else:
        cell = Cell(tuple(label for label in labels if label or not columns.separator), True)
    for label in cell.labels:
        if len(label) > _MAX_LABEL:
            found = f"a text of {len(label):,} characters"
            raise InvalidRow(f"{where}: expected a label in {columns.label!r}, found {found}", "a text for a label")
        if columns.separator and columns.separator in label:
            expected = f"labels that are texts without {columns.separator!r}"
            message = f"{where}: expected {expected} in {columns.label!r}, found {label!r}"
            raise InvalidRow(message, "a field of another kind")
    if columns.separator or len(cell.labels) == 1:
        return cell
    hint = f"{recipe_key('task_type', 'multi_label')} trains on several labels per row"
    if cell.is_of_marks:
        hint = f"if it is a 0 or 1 for each class, write the row's class number; {hint}"
    message = f"{where}: expected one label in {columns.label!r}, found a list of {len(cell.labels)} ({hint})"
    raise InvalidRow(message, "several labels")


def _refuse_marks(spec: str, cells: Iterable[Cell], columns: Columns, names: Sequence[str] | None) -> None:
    """Raise InputError if all lists may be either a 0 or 1 for each class (of `names`, if known) or class numbers."""
    lists = [cell for cell in cells if cell.is_list]
    lengths = {len(cell.labels) for cell in lists}
    if len(lengths) != 1 or not all(cell.is_of_marks for cell in lists):
        return
    if names is None or lengths == {len(names)}:
        raise InputError(
            f"{spec}: expected lists of labels or of numbers of classes in {columns.label!r}, found a 0 or 1 for each "
            f"of {lengths.pop()} classes; write the numbers of those with a 1: [0, 2] for [1, 0, 1]"
        )


def _list_in(text: str) -> list[str] | None:
    """Return the labels of a list written as text; None where the text is not a list of texts and numbers."""
    if not (text.startswith("[") and text.endswith("]")) or len(text) > _MAX_LIST:
        return None
    if _ARRAY.fullmatch(text):
        return [item.rstrip(".") for item in text[1:-1].split()]
    for parse in (json.loads, ast.literal_eval):
        try:
            items = parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(items, list) and all(item is None or isinstance(item, str | int | float) for item in items):
            return [label_text(item) for item in items]
        return None
    return None


def label_text(value: Any) -> str:
    """Return a label of JSON, Parquet or a table in memory as text: a number or a list as JSON writes it."""
    return value.strip() if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


class Labelling:
    """The mapping of a file's labels to classes, determined from all of its cells.

    Args:
        spec: the file.
        cells: the cells of all of its rows.
        columns: its columns.
        rules: how to treat labels that are probably not meant as classes.
        known: the classes, in their order; None: the labels found.
    """

    def __init__(
        self, spec: str, cells: Sequence[Cell], columns: Columns, rules: LabelRules, known: Sequence[str] | None
    ):
        self._spec, self._columns, self._rules = spec, columns, rules
        names = known if known is not None else rules.names or None
        _refuse_marks(spec, cells, columns, names)
        counts = collections.Counter(label for cell in cells for label in cell.labels)
        self.missing = _missing_in(counts) - set(names or ())
        self._map: Mapping[str, str] = {}
        if names is None:
            self._map = self._merged(counts)
        else:
            self._map, said = match_labels(counts, names)
            if said:
                _log.warning("%s: labels are read as classes: %s", spec, printable(said, 300))
            unknown = [label for label in counts if label not in self._map and label not in self.missing]
            self._unknown = f"; not known: {list_names(unknown)}" if len(unknown) > 1 else ""
        self.names = tuple(names) if names is not None else None

    def labels_of(self, where: str, cell: Cell) -> tuple[str, ...] | None:
        """Return the classes of a row; None where the row is left out.

        Raises:
            InvalidRow: the row has no label or an unknown one.
        """
        labels = cell.labels
        if self._rules.missing == "drop":
            left = tuple(label for label in labels if label not in self.missing)
            if not left and (labels or not self._columns.separator):
                return None
            labels = left
        for label in labels:
            if not label and not self._columns.separator:
                raise InvalidRow(f"{where}: expected a label, found an empty column", "an empty label")
            if self.names is not None and label not in self._map:
                message = f"{where}: expected a label of {list_names(self.names)}, found {label!r}{self._unknown}"
                if label in self.missing:
                    message += f" (if it marks a missing label, use {recipe_key('missing_labels', 'drop')})"
                raise InvalidRow(message, "a label that is not known")
        return tuple(dict.fromkeys(self._map.get(label, label) for label in labels))

    def _merged(self, counts: Mapping[str, int]) -> dict[str, str]:
        """Return spelling -> class; different spellings have the same class where near duplicates are merged."""
        merge = self._rules.near_duplicates == "merge"
        groups = collections.defaultdict(list)
        for label in sorted(counts, key=lambda label: (-counts[label], label)):
            if label not in self.missing or self._rules.missing == "keep":
                groups[spelling_key(label)].append(label)
        near = [group for group in groups.values() if len(group) > 1]
        quoted = [group[0] for group in groups.values() if _unquoted(group[0]) != group[0]]
        # A log collapses runs of spaces, so the spaces of a label are written out.
        spellings = [
            ", ".join(f"{label!r} ({counts[label]:,})".replace("  ", " \\x20") for label in group) for group in near
        ]
        if spellings:
            what = "merged" if merge else "probably meant as one class"
            self._say(f"{what}: {'; '.join(spellings)}", "" if merge else recipe_key("near_duplicate_labels", "merge"))
        if quoted and not merge:
            self._say(
                f"classes with quotes around them: {list_names(quoted)}", recipe_key("near_duplicate_labels", "merge")
            )
        return {label: _unquoted(group[0]) for group in groups.values() for label in group} if merge else {}

    def warn(self, counts: Mapping[str, int], dropped: Mapping[str, int]) -> None:
        """Warn about suspicious classes, given class -> number of rows, and about rows that were left out."""
        if dropped:
            self._say(f"left out {sum(dropped.values()):,} rows without a label: {list_counts(dropped)}")
        marks = {label: count for label, count in counts.items() if label in self.missing}
        if marks:
            option = recipe_key("missing_labels", "drop")
            self._say(f"classes that may mark a missing label: {list_counts(marks)}", option)
        single = [label for label, count in counts.items() if count == 1]
        if single and max(counts.values()) >= _COMMON:
            self._say(f"{len(single):,} of {len(counts):,} classes have a single row: {list_names(single)}")
        numbers = [label for label in counts if _NUMBER.fullmatch(label.lower())]
        if len(numbers) == len(counts) > 2 and not all(float(label).is_integer() for label in numbers):
            self._say("labels are numbers, read as classes", recipe_key("task_type", "regression"))

    def _say(self, what: str, option: str = "") -> None:
        _log.warning("%s", printable(f"{self._spec}: {what}" + (f" (see {option})" if option else "")))


def check_count(spec: str, labels: Iterable[str], rows: int, columns: Columns) -> None:
    """Raise InputError where a column has too many distinct labels for classes, as texts, names or numbers do."""
    labels = set(labels)
    if len(labels) <= MAX_CLASSES and (len(labels) <= _MOSTLY_DISTINCT or len(labels) <= rows / 2):
        return
    numbers = all(_NUMBER.fullmatch(label.lower()) for label in labels)
    hint = f"for numbers use {recipe_key('task_type', 'regression')}" if numbers else "it looks like a text or an id"
    raise InputError(
        f"{spec}: expected a small number of classes in {columns.label!r}, found {len(labels):,} different labels "
        f"in {rows:,} "
        f"rows, such as {printable(repr(min(labels)), 60)}; {hint}, or is another column meant "
        f"({columns.naming({'label': 'NAME'})})?"
    )


def ordered(labels: Iterable[str]) -> tuple[str, ...]:
    """Sort labels in the order of their classes: by value if all are numbers (10 after 9), otherwise by text."""
    labels = sorted(labels)
    if all(label.isascii() and label.isdigit() for label in labels):
        labels.sort(key=lambda label: (len(label.lstrip("0")), label.lstrip("0")))
    return tuple(labels)


def match_labels(labels: Iterable[str], names: Sequence[str]) -> tuple[dict[str, str], str]:
    """Return label -> class, and a message about labels that are not spelled like their class.

    A label matches the class that equals it; else one that differs only in case, spacing, quotes, Unicode form or
    spelling of a number; else the class with its number, `1` or `LABEL_1`. A label that matches several or no classes
    is left out.
    """
    exact = set(names)
    by_key: dict[str, list[str]] = collections.defaultdict(list)
    for name in names:
        by_key[spelling_key(name)].append(name)
    generic = list(names) == [str(i) for i in range(len(names))]
    numeric = any(_NUMBER.fullmatch(key) for key in by_key)
    matched, said = {}, []
    for label in labels:
        if label in exact:
            matched[label] = label
            continue
        near = by_key.get(spelling_key(label), [])
        number = _number_of(label, numeric and not generic, numeric)
        if len(near) == 1:
            matched[label] = near[0]
        elif not near and number is not None and number < len(names):
            matched[label] = names[number]
        else:
            continue
        said.append(f"{label!r} as {matched[label]!r}")
    return matched, ", ".join(sorted(said))


def _number_of(label: str, no_generic: bool, no_plain: bool) -> int | None:
    """Return the class number of `LABEL_1` or `1`; None for other labels, or where such a label may be a name."""
    generic = None if no_generic else _GENERIC.fullmatch(label)
    if generic:
        return int(generic[1])
    plain = re.fullmatch(r"\d{1,9}(\.0+)?", label, re.ASCII)
    return None if no_plain or plain is None else int(float(label))


def spelling_key(label: str) -> str:
    """Normalize the spelling of a label: case, spaces, quotes, Unicode form, and how a number is written."""
    key = " ".join(_unquoted(unicodedata.normalize("NFKC", label)).split()).casefold()
    if len(key) <= 40 and _NUMBER.fullmatch(key):
        value = float(key)
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return key


def _unquoted(label: str) -> str:
    label = label.strip()
    while len(label) > 2 and _QUOTES.get(label[0]) == label[-1]:
        label = label[1:-1].strip()
    return label


def is_missing(label: str) -> bool:
    """Return whether a label is empty or, like `-`, means a missing label."""
    return _unquoted(label).casefold() in _MISSING


def _missing_in(counts: Mapping[str, int]) -> set[str]:
    """Return the labels that mean a missing label, including -1 if the others are 0, 1, ... or words.

    A ClassLabel of the `datasets` library has -1 for a missing label and names for the others.
    """
    missing = {label for label in counts if is_missing(label)}
    others = {spelling_key(label) for label in counts if label not in missing} - {"-1"}
    indices = "0" in others and all(key.isdigit() for key in others)
    if indices or not any(map(_NUMBER.fullmatch, others)):
        missing |= {label for label in counts if spelling_key(label) == "-1"}
    return missing
