"""Invalid input rows: each is reported by its line, and all are counted by reason.

A reader passes its rows through `InvalidRows.each` once for each check, and last through `InvalidRows.fitting`, which
reports the result.
"""

import collections
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, cast

from bert_jax.errors import InputError, logger

_Row = TypeVar("_Row")
RULES = ("strict", "skip")  # values of `data.invalid_rows` and --invalid-rows
IN_MEMORY = ("DataFrame", "list of rows")  # names of tables in memory in messages
_LARGEST = 3.4e38  # the largest float32
_DECIMAL_COMMA = re.compile(r"([+-]?\d+),(\d+)")
_NAMED = 5  # the number of skipped rows that get a warning each; later ones are only counted
_log = logger(__name__)


class InvalidRow(InputError):
    """An invalid row: the message says where, what was expected and what was found.

    Attributes:
        reason: what is wrong, as a phrase that completes "3 rows with"; rows are counted by reason.
        name: the id of the row, or "" where it has none or it is not known.
        kept: the columns of the row that are copied to its prediction.
    """

    kept: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, message: str, reason: str, name: str = ""):
        super().__init__(message)
        self.reason, self.name = reason, name


class InvalidRows:
    """The invalid rows of one file: an error or skipped, and counted.

    Args:
        spec: the file.
        rule: `strict`: invalid rows are an error, which names the first and counts the others; `skip`: they are
            skipped, the first few with a warning each.
        noun: the word for a row in messages.
        skipping: the option or key with which a user skips invalid rows; "" where there is none.
        keeping: whether an InvalidRow is yielded in place of each skipped row.
    """

    def __init__(self, spec: str, rule: str = "strict", noun: str = "row", skipping: str = "", keeping: bool = False):
        if rule not in RULES:
            raise InputError(f"invalid_rows: expected {' or '.join(RULES)}, found {rule!r}")
        self._spec, self._strict, self._noun = spec, rule == "strict", noun
        self._skipping, self._keeping = skipping, keeping
        self._counts: collections.Counter[str] = collections.Counter()
        self._first: InvalidRow | None = None

    def place(self, line: int) -> str:
        """Name a row of the file in messages, as the function `place` does."""
        return place(self._spec, line)

    def each(self, items: Iterable[Any], read: Callable[[Any], _Row]) -> Iterator[_Row]:
        """Yield `read(item)` for each item, without those for which it raises InvalidRow."""
        for item in items:
            if isinstance(item, InvalidRow):  # an earlier check has put it in place of a skipped row
                yield cast(_Row, item)
                continue
            try:
                row = read(item)
            except InvalidRow as error:
                self._add(error)
                if not self._keeping:
                    continue
                row = cast(_Row, error)
            yield row

    def kept(self, rows: Iterable[_Row]) -> Iterator[_Row]:
        """Yield the rows; where the rule is `strict`, read those after the first invalid row only to count errors."""
        for row in rows:
            if not self._failed:
                yield row

    def fitting(self, rows: Iterable[_Row]) -> Iterator[_Row]:
        """Yield the rows as `kept` does, and report the invalid ones after the last row.

        Raises:
            InputError: after the last row: some are invalid and the rule is `strict`, or none is valid. An error while
                reading, such as for a truncated file, is raised first.
        """
        count = 0
        for row in self.kept(rows):
            count += not isinstance(row, InvalidRow)
            yield row
        bad = self._counts.total()
        if self._failed:
            notes = [f"and {bad - 1:,} more invalid {self._noun}s"] if bad > 1 else []
            notes += [f"{self._skipping} skips {'them' if bad > 1 else 'it'}"] if self._skipping else []
            raise InputError(f"{self._first}" + (f" ({'; '.join(notes)})" if notes else ""))
        if not count:
            kind, count_text = ("valid ", f"{bad:,} invalid") if bad else ("", "none")
            raise InputError(f"{self._spec}: expected at least one {kind}{self._noun}, found {count_text}")
        if bad:
            reasons = ", ".join(f"{number:,} with {reason}" for reason, number in self._counts.most_common())
            total = f"{bad:,} of {count + bad:,} {self._noun}s"
            _log.warning("%s: skipped %s: %s", self._spec, total, reasons)

    @property
    def _failed(self) -> bool:
        return self._strict and self._first is not None

    def _add(self, error: InvalidRow) -> None:
        self._first = self._first or error
        self._counts[error.reason] += 1
        if not self._strict and self._counts.total() <= _NAMED:
            _log.warning("%s; skipped", error)


class RowNumber(int):
    """The number of a row, from 1, in a file whose rows are not lines, such as a JSON array."""


def place(spec: str, line: int) -> str:
    """Name a row in messages: by its 1-based line, by a RowNumber, or by its index in a TFDS data set."""
    is_row = isinstance(line, RowNumber) or spec.endswith((".parquet", *IN_MEMORY))
    return f"{spec}: {'example' if spec.startswith('tfds:') else 'row' if is_row else 'line'} {line}"


def check_texts(where: str, texts: Mapping[str, str]) -> None:
    """Raise InvalidRow when one of a row's texts (column -> text) is empty or only whitespace."""
    for name, text in texts.items():
        if not text.strip():
            raise InvalidRow(
                f"{where}: expected a text in {name!r}, found {'spaces' if text else 'none'}", "an empty text"
            )


def number_of(where: str, label: str | None) -> float:
    """Return a label as a number; a decimal comma is allowed unless it may be a thousands separator.

    Raises:
        InvalidRow: it is not a finite float32.
    """
    text = (label or "").strip()
    comma = _DECIMAL_COMMA.fullmatch(text)
    decimal = comma is not None and (len(comma[2]) != 3 or comma[1].lstrip("+-") == "0")
    try:
        value = float(text.replace(",", ".") if decimal else text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        hint = "; write it with a decimal point, as its comma may separate thousands" if comma and not decimal else ""
        raise InvalidRow(f"{where}: expected a number as label, found {label!r}{hint}", "a label that is not a number")
    if abs(value) > _LARGEST:
        problem = f"expected a number below {_LARGEST:g} as label, found {label}"
        raise InvalidRow(f"{where}: {problem}", "a label that is not a number")
    return value


def check_utf8(where: str, *texts: str) -> None:
    """Raise InvalidRow when a text holds a lone surrogate.

    Tokenizers reject lone surrogates, which come from bytes that are not UTF-8 or from half a pair in a JSON escape.
    """
    for text in texts:
        if text.isascii():
            continue
        try:
            text.encode()
        except UnicodeEncodeError as error:
            code, offset = ord(text[error.start]), len(text[: error.start].encode())
            byte = code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else 0
            invalid_part = f"byte 0x{byte:02x}" if byte else "half a surrogate pair"
            message = f"{where}: expected UTF-8 text, found {invalid_part} at offset {offset}"
            raise InvalidRow(message, "bytes other than UTF-8") from None
