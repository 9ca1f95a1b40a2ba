"""Print to stdout and stderr: JSON lines unchanged, text and tables with control characters escaped."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bert_jax.errors import MAX_MESSAGE, printable, printable_lines

if TYPE_CHECKING:
    from rich.console import Console

_NAMES_A_LINE = 300  # characters in a line of names


def say(text: str) -> None:
    """Print one or more lines on stdout, with control characters escaped."""
    print(printable_lines(text))


def complain(text: str) -> None:
    """Print one or more lines on stderr, with control characters escaped, and flush."""
    print(printable_lines(text), file=sys.stderr, flush=True)


def say_names(what: str, names: Iterable[str]) -> None:
    """Print names separated by commas, wrapped into lines that each begin with `what`."""
    line = ""
    for name in names:
        if line and len(line) + len(name) > _NAMES_A_LINE:
            say(f"{what}: {line}")
            line = ""
        line += f"{', ' if line else ''}{name}"
    if line:
        say(f"{what}: {line}")


def print_json(value: dict[str, Any]) -> None:
    """Print an object as one line of JSON."""
    print(json.dumps(value, ensure_ascii=False))


def print_table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table with a title and named columns."""
    from rich.table import Table

    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def console() -> "Console":
    """Return a rich console on stdout that escapes control characters and does not parse strings as markup."""
    from rich.console import Console
    from rich.text import Text

    class PrintableConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return Text(printable(text), style=options.get("style", ""))

    made = PrintableConsole(highlight=False)
    made.width = min(made.width, MAX_MESSAGE)
    return made
