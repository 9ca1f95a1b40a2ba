"""Read the rows of a labelled table and the classes of their labels."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.labels import (
    MAX_CLASSES,
    Cell,
    Labelling,
    LabelRules,
    check_count,
    is_missing,
    ordered,
    read_cell,
)
from bert_jax.data.finetuning.records import table_name
from bert_jax.data.finetuning.tables import Example, read_examples, texts_of
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows, check_texts, number_of, place
from bert_jax.data.listing import list_names
from bert_jax.errors import InputError, logger

_log = logger(__name__)


def read_labelled(
    spec: Any,
    columns: Columns,
    names: Sequence[str] | None,
    regression: bool,
    bad: InvalidRows | None = None,
    rules: LabelRules = LabelRules(),  # noqa: B008 (frozen)
) -> tuple[list[Example], tuple[str, ...]]:
    """Read the rows of a labelled table for training or evaluation.

    Args:
        spec: a table, as for `read_examples`.
        columns: the columns of the text, of the label and maybe of a pair; with a separator, a row may have several
            labels.
        names: the allowed labels, in the order of their classes; None: the labels found, sorted.
        regression: whether labels are numbers; then there are no names.
        bad: how invalid rows are treated; None: they are an error.
        rules: how to treat labels that are probably not meant as classes.

    Returns:
        The rows, each with the names of its classes as label (joined by the separator), and the names.

    Raises:
        InputError: as `read_examples`; rows have an empty text, an unknown label, or a label that is not a number; all
            labels are lists of a 0 or 1 per class; or there are fewer than two labels, or too many to be classes.
    """
    bad = bad or InvalidRows(table_name(spec))
    spec, table = table_name(spec), spec
    columns = dataclasses.replace(columns, optional_label=rules.missing == "drop")
    seen: set[str] = set()

    def checked(row: Example) -> tuple[Example, Cell]:
        where = place(spec, row.line)
        check_texts(where, texts_of(row, columns))
        label = row.label or ""
        if regression:
            if not (columns.optional_label and is_missing(label)):
                number_of(where, label)
            return row, Cell((label.strip(),), False)
        cell = read_cell(where, label, columns)
        if not columns.separator and cell.labels == ("",) and not columns.optional_label:
            raise InvalidRow(f"{where}: expected a label, found an empty column", "an empty label")
        seen.update(cell.labels)
        if len(seen) > MAX_CLASSES and names is None:
            check_count(spec, seen, len(seen), columns)
        return row, cell

    read = list(bad.kept(bad.each(read_examples(table, columns, bad), checked)))
    if regression:
        return _with_numbers(spec, bad, read), ()
    labelling = Labelling(spec, [cell for _, cell in read], columns, rules, names)
    dropped: collections.Counter[str] = collections.Counter()

    def labelled(example_and_label: tuple[Example, Cell]) -> Example | None:
        row, cell = example_and_label
        labels = labelling.labels_of(place(spec, row.line), cell)
        if labels is None:
            dropped[cell.labels[0] if cell.labels else ""] += 1
            return None
        label = columns.separator.join(labels)
        return row if label == row.label else row._replace(label=label)

    rows = [row for row in bad.fitting(bad.each(read, labelled)) if row is not None]
    if labelling.names is not None:
        labelling.warn({}, dropped)
        return _checked_any(spec, rows), labelling.names
    counts = collections.Counter(label for row in rows for label in _labels_of_row(row, columns))
    check_count(spec, counts, len(rows), columns)
    if len(counts) < 2:
        labels_text = f"only {list_names(sorted(counts))}" if counts else "none"
        raise InputError(f"{spec}: expected at least two labels, found {labels_text}")
    labelling.warn(counts, dropped)
    return rows, ordered(counts)


def read_unlabelled(spec: Any, columns: Columns, bad: InvalidRows | None = None) -> list[Example]:
    """Read the texts of a table without its labels.

    Args:
        spec: a table, as for `read_examples`.
        columns: the columns of the text and maybe of a pair; a label column is not read.
        bad: how invalid rows are treated; None: they are an error.

    Raises:
        InputError: as `read_examples`; rows have an empty text; or there are no rows.
    """
    bad, columns = bad or InvalidRows(table_name(spec)), dataclasses.replace(columns, label="")

    def checked(row: Example) -> Example:
        check_texts(place(table_name(spec), row.line), texts_of(row, columns))
        return row

    rows = list(bad.fitting(bad.each(read_examples(spec, columns, bad), checked)))
    if not rows:
        raise InputError(f"{table_name(spec)}: expected at least one row, found none")
    return rows


def _with_numbers(spec: str, bad: InvalidRows, read: Sequence[tuple[Example, Cell]]) -> list[Example]:
    """Return the rows of a regression table, without rows whose label is missing."""
    rows = list(bad.fitting(row for row, _ in read))
    kept = [row for row in rows if not is_missing(row.label or "")]
    if len(kept) < len(rows):
        _log.warning("%s: left out %s rows without a label", spec, f"{len(rows) - len(kept):,}")
    return _checked_any(spec, kept)


def _checked_any(spec: str, rows: list[Example]) -> list[Example]:
    if not rows:
        raise InputError(f"{spec}: expected at least one row with a label, found none")
    return rows


def labels_of(rows: Sequence[Example], columns: Columns, names: Sequence[str]) -> np.ndarray:
    """Encode the labels of rows of `read_labelled` as `Features.labels`; as float32 targets where `names` is empty."""
    if not names:
        return np.array([number_of("label", row.label) for row in rows], np.float32)
    number = {name: i for i, name in enumerate(names)}
    if not columns.separator:
        return np.array([number[row.label or ""] for row in rows], np.int32)
    labels = np.zeros((len(rows), len(names)), np.float32)
    for i, row in enumerate(rows):
        labels[i, [number[name] for name in _labels_of_row(row, columns)]] = 1
    return labels


def count_classes(rows: Sequence[Example], columns: Columns, names: Sequence[str]) -> dict[str, int]:
    """Return class -> number of rows of `read_labelled` that have it; empty where there are no classes."""
    counts = collections.Counter(label for row in rows for label in _labels_of_row(row, columns)) if names else {}
    return {name: counts[name] for name in names}


def _labels_of_row(row: Example, columns: Columns) -> list[str]:
    if not columns.separator:
        return [row.label or ""]
    return [label.strip() for label in (row.label or "").split(columns.separator) if label.strip()]
