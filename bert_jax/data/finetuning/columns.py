"""The columns of a table that a user names, and suggestions for misspelt names."""

import dataclasses
import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bert_jax.errors import did_you_mean, printable

# Common names of columns, the likeliest first.
_COMMON_NAMES = {
    "text": ("sentence", "text", "review", "comment", "content", "message", "body", "tweet", "document", "description",
             "sentence1", "question", "premise", "title"),
    "pair": ("sentence2", "text2", "text_pair", "hypothesis", "question2", "answer", "passage"),
    "label": ("label", "labels", "class", "category", "target", "sentiment", "intent", "topic", "emotion", "stars",
              "rating", "score", "gold_label", "tag", "tags", "y"),
}  # fmt: skip
_ID_NAMES = ("id", "idx", "index", "guid", "uid", "uuid")
_ID_ENDING = re.compile(r".*([_ -]id|[a-z]I[dD])")  # review_id, reviewId
_NEAR = 0.75  # similarity above which a name is probably a misspelling
_MAX_SHOWN = 12  # columns in a message


def command_line(name: str, value: str) -> str:
    """Return the option of `evaluate` and `predict` that sets `name` to `value`: `--text-column review`."""
    return f"--{name.replace('_', '-')} {shlex.quote(value)}"


def recipe_key(name: str, value: str) -> str:
    """Return the option that sets a key of a recipe's data section: `--config.data.text_column=review`."""
    return f"--config.data.{name}={shlex.quote(value)}"


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a table by their roles: names of the header, or numbers from 0 when `has_header` is False.

    Attributes:
        text: the column of the (first) text.
        pair: the column of the second text; "" when there is none.
        label: the column of the label; "" when it is not read.
        has_header: whether the first line of a TSV or CSV names the columns.
        more: the columns of further texts.
        texts: the column of a list of texts, in JSON lines, Parquet and TFDS data sets; "" when there is none.
        separator: the text between the labels of a row that may have any number of them; "" = each row has one label.
        delimiter: the character between the columns of a CSV; "" = detected in its first lines.
        encoding: the encoding of a TSV, CSV or JSON lines; "" = UTF-8, or the encoding of a byte order mark.
        optional_label: whether a row may have no label, which is then read as "".
        keep: columns that are copied to the predictions unchanged.
        keep_others: other columns to copy: `none`, `ids` (named in `_ID_NAMES`, or like `review_id`) or `all`.
        option: formats the option that sets a column, for messages: `command_line` or `recipe_key`.
        roles: `text`, `pair` or `label` -> its name in options, where it differs.
    """

    text: str = ""
    pair: str = ""
    label: str = ""
    has_header: bool = True
    more: tuple[str, ...] = ()
    texts: str = ""
    separator: str = ""
    delimiter: str = ""
    encoding: str = ""
    optional_label: bool = False
    keep: tuple[str, ...] = ()
    keep_others: str = dataclasses.field(default="none", compare=False)
    option: Callable[[str, str], str] = dataclasses.field(default=command_line, compare=False)
    roles: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)

    def filled(self, usual: "Columns") -> "Columns":
        """Return these columns, completed with the default columns `usual`.

        If no column is set here, `has_header` is also False where it is False in `usual`.
        """
        filled: dict[str, Any] = {
            name: getattr(self, name) or getattr(usual, name) for name in ("text", "pair", "label", "delimiter")
        }
        if not self.wanted:
            filled["has_header"] = self.has_header and usual.has_header
        if not self.more and not self.texts:
            filled |= {"more": usual.more, "texts": usual.texts}
        return dataclasses.replace(self, **filled)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The columns that a table must have."""
        return tuple(name for name in (self.text, self.pair, self.label, *self.more, self.texts) if name)

    @property
    def keeps(self) -> bool:
        """Whether any columns are copied to the predictions."""
        return bool(self.keep) or self.keep_others != "none"

    def kept(self, found: Iterable[str]) -> tuple[str, ...]:
        """Return the columns to copy to the predictions, given the columns of the table."""
        if self.keep_others == "all":
            return tuple(found)
        ids = []
        if self.keep_others == "ids":
            ids = [name for name in found if name.lower() in _ID_NAMES or _ID_ENDING.fullmatch(name)]
        return tuple(dict.fromkeys((*(name for name in ids if name not in self.wanted), *self.keep)))

    def carried(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the input columns to copy into a row's prediction: name -> value."""
        return {name: values[name] for name in self.kept(values) if name in values} if self.keeps else {}

    def naming(self, columns: Mapping[str, str]) -> str:
        """Return the options that set columns (role -> name): `--text-column review --label-column stars`."""
        return " ".join(self.option(f"{self.roles.get(role, role)}_column", name) for role, name in columns.items())

    def absent(self, name: str, header: Sequence[str]) -> str:
        """Return the hint after `expected a column NAME`: the table's columns, and the options for likely ones."""
        roles = {role: getattr(self, role) for role in ("text", "pair", "label") if getattr(self, role)}
        if name not in roles.values():
            return did_you_mean(name, header)
        near = difflib.get_close_matches(name, header, n=1, cutoff=_NEAR)
        suggested = self._suggested(roles, header)
        role = next(role for role, column in roles.items() if column == name)
        if near and suggested.get(role) in (None, near[0]):
            return f"; did you mean {near[0]!r}? ({self.naming({role: near[0]})})"
        shown = ", ".join(map(repr, header[:_MAX_SHOWN]))
        shown += f" and {len(header) - _MAX_SHOWN} more" if len(header) > _MAX_SHOWN else ""
        return f", found {printable(shown, 300)}" + (f"; use {self.naming(suggested)}" if suggested else "")

    def _suggested(self, roles: Mapping[str, str], header: Sequence[str]) -> dict[str, str]:
        """Return role -> column with a similar or a common name, for the roles whose columns are missing."""
        free = [name for name in header if name and name not in roles.values()]
        suggested: dict[str, str] = {}
        for role, name in roles.items():
            lowered = {column.lower(): column for column in reversed(free)}
            common = [lowered[column] for column in _COMMON_NAMES[role] if column in lowered]
            near = difflib.get_close_matches(name, free, n=1, cutoff=_NEAR)
            if name not in header and (columns := near or common):
                suggested[role] = columns[0]
                free.remove(columns[0])
        return suggested
