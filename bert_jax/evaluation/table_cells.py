"""Escape the cells of CSV and TSV files, so that spreadsheets run no formulas and terminals no control characters."""

import re
from typing import Any

from bert_jax import storage
from bert_jax.errors import escape_controls, logger, printable_json

# The first characters of a formula, and their full-width and small forms, which East Asian spreadsheets accept.
_SIGNS = "=+\\-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b"
# What a spreadsheet may drop before the first character: white space, quotes, and characters without width.
_DROPPED = (
    "\\s\"'\u2018\u2019\u201c\u201d\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
)
_FORMULA = re.compile(rf"[{_DROPPED}]*(?=[{_SIGNS}])")
_NUMBER = re.compile(r"[+-](\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# A spreadsheet whose columns are separated by semicolons splits a cell here, even between quotes.
_PART = re.compile("[^;\r\n]+")
_BLANK_START = re.compile("'*[\t\r\n]")
_log = logger(__name__)


class TableCells:
    """Convert fields to the text of cells of one table, and count the cells that are changed.

    By the rule of OWASP ("CSV injection"), an apostrophe is written before a text that a spreadsheet would run as a
    formula: one that begins with `=`, `+`, `-` or `@`, their full-width forms, a tab or a line end, also after spaces
    and quotes. The same holds within a cell after a semicolon or a line end. Numbers are not changed, nor texts
    without letters and digits, such as the label `+`. Control characters are written as escapes such as `\\x1b`.

    Args:
        for_spreadsheets: whether apostrophes are written; else only control characters are changed.
    """

    def __init__(self, for_spreadsheets: bool = True) -> None:
        self._for_spreadsheets = for_spreadsheets
        self._formulas = self._escaped = 0

    def text(self, field: Any) -> str:
        """Return a field as the text of a cell: empty for None, JSON for objects other than text and numbers."""
        if field is None or isinstance(field, int | float):
            return "" if field is None else printable_json(field)
        text = field if isinstance(field, str) else printable_json(field, default=str)
        guarded = _guard(text) if self._for_spreadsheets else text
        self._formulas += guarded != text
        guarded = guarded.replace("\r\n", "\n").replace("\r", "\n")
        escaped = escape_controls(guarded)
        self._escaped += escaped != guarded
        return escaped

    def one_line(self, field: Any) -> str:
        """Return `text` for a table without quotes: runs of tabs and line ends within a field become spaces."""
        return re.sub(r"[\t\n]+", " ", self.text(field))

    def log_changes(self, path: storage.PathLike) -> None:
        """Log one line with the number of cells that were changed, if any."""
        changes = {
            "an apostrophe before what a spreadsheet would run as a formula": self._formulas,
            "control characters written as escapes": self._escaped,
        }
        counted = [
            f"{change} in {count:,} {'cell' if count == 1 else 'cells'}" for change, count in changes.items() if count
        ]
        if counted:
            _log.warning("%s: %s (.jsonl has the exact text)", path, "; ".join(counted))


def _guard(text: str) -> str:
    """Return `text` with an apostrophe before each part that a spreadsheet would run as a formula."""
    guarded = _PART.sub(lambda part: f"'{part.group()}" if _is_formula(part.group()) else part.group(), text)
    first = _PART.match(text)
    is_guarded = first is not None and _is_formula(first.group())
    return f"'{guarded}" if _BLANK_START.match(text) and not is_guarded else guarded


def _is_formula(part: str) -> bool:
    formula = _FORMULA.match(part)
    if formula is None:
        return False
    # A part with anything before the sign, even an apostrophe, gets one: apostrophes before formulas are always ours.
    return formula.end() > 0 or (any(map(str.isalnum, part)) and not _NUMBER.fullmatch(part))
