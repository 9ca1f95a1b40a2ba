"""Printing to stdout and stderr: JSON lines unchanged, text and tables made printable."""

import json
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bert_jax.errors import MAX_MESSAGE, printable, printable_lines

if TYPE_CHECKING:
    from rich.console import Console

_NAMES_A_LINE = 300  # characters of a line that lists names


def say(text: str) -> None:
    """Print text of one line or more, each printable, on stdout."""
    print(printable_lines(text))


def complain(text: str) -> None:
    """Print text as `say`, on stderr and at once."""
    print(printable_lines(text), file=sys.stderr, flush=True)


def print_exception(*error: Any) -> None:
    """Print the traceback of an error on stderr, as `sys.excepthook` does, but fit for a terminal."""
    complain("".join(traceback.format_exception(*error)).rstrip())


def say_names(what: str, names: Iterable[str]) -> None:
    """Print a list of any number of names, on as many lines as it takes; each begins with `what`."""
    line = ""
    for name in names:
        if line and len(line) + len(name) > _NAMES_A_LINE:
            say(f"{what}: {line}")
            line = ""
        line += f"{', ' if line else ''}{name}"
    if line:
        say(f"{what}: {line}")


def print_json(value: dict[str, Any]) -> None:
    """Print an object in a line."""
    print(json.dumps(value, ensure_ascii=False))


def print_table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows under a title and the names of their columns."""
    from rich.table import Table

    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def console() -> "Console":
    """Return what prints tables on stdout. Each string in them is printable, and never parsed as rich's markup."""
    from rich.console import Console
    from rich.text import Text

    class PrintableConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return Text(printable(text), style=options.get("style", ""))

    made = PrintableConsole(highlight=False)
    made.width = min(made.width, MAX_MESSAGE)
    return made
