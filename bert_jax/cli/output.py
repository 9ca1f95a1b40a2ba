"""Print to stdout and stderr: JSON keeps the exact text, text and tables have control characters escaped."""

import functools
import json
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from bert_jax.errors import MAX_MESSAGE, printable, printable_json, printable_lines

if TYPE_CHECKING:
    from rich.console import Console

_FILE_WIDTH = 80  # width in characters that rich assumes if the output is not a terminal
_NAMES_A_LINE = 300  # maximum characters in a line of names


def say(text: str) -> None:
    """Print one or more lines on stdout, with control characters escaped."""
    print(printable_lines(text))


def complain(text: str) -> None:
    """Print one or more lines on stderr, with control characters escaped, and flush."""
    print(printable_lines(text), file=sys.stderr, flush=True)


def print_exception(*error: Any) -> None:
    """Print the traceback of an error on stderr, as `sys.excepthook` does, with control characters escaped."""
    complain("".join(traceback.format_exception(*error)).rstrip())


def print_unraisable(unraisable: Any) -> None:
    """Print an error that no caller can catch, as `sys.unraisablehook` does, unless the command reports it itself.

    The command reports signals, which may raise within a callback of the garbage collector, and checkpoints that could
    not be read or written, which leave unfinished tasks of TensorStore.
    """
    error = unraisable.exc_value
    if not isinstance(error, KeyboardInterrupt | SystemExit) and str(error) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)


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
    """Print an object as one line of JSON, with control characters as JSON escapes."""
    print(printable_json(value))


def print_table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table with a title and named columns."""
    say(title)
    if not sys.stdout.isatty() and (drawn := _drawn(columns, rows)):
        print(drawn)
        return
    from rich.table import Table

    table = Table(*columns)
    for row in rows:
        table.add_row(*row)
    console().print(table)


def print_scores(scores: Mapping[str, float], title: str, as_json: bool) -> None:
    """Print metrics and counts as a table, or as one JSON object."""
    if as_json:
        print(json.dumps(dict(scores)))
        return
    from rich.table import Table

    table = Table("metric", title=title, title_justify="left")
    table.add_column("value", justify="right")
    for name, value in scores.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else f"{value:.4f}")
    console().print(table)


def _drawn(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Draw a table as rich does without styles, but 40 times as fast, which matters for many texts.

    Returns:
        The lines, or "" if the table is wider than _FILE_WIDTH, or a cell has tabs or several lines.
    """
    from rich.cells import cell_len

    cells = [tuple(map(printable, row)) for row in (columns, *rows)]
    lengths = [[len(cell) if cell.isascii() else cell_len(cell) for cell in row] for row in cells]
    widths = tuple(map(max, zip(*lengths, strict=True)))
    if sum(widths) + 3 * len(widths) + 1 > _FILE_WIDTH or any("\n" in cell or "\t" in cell for cell in chain(*cells)):
        return ""
    above, below_names, below = _borders(widths)
    head, *body = (
        [f" {cell}{' ' * (width - length)} " for cell, length, width in zip(row, row_lengths, widths, strict=True)]
        for row, row_lengths in zip(cells, lengths, strict=True)
    )
    return "\n".join([above, f"┃{'┃'.join(head)}┃", below_names, *(f"│{'│'.join(row)}│" for row in body), below])


@functools.lru_cache(maxsize=64)
def _borders(widths: tuple[int, ...]) -> tuple[str, str, str]:
    """Return the lines above a table, below its column names, and below the table."""
    thick, thin = ["━" * (width + 2) for width in widths], ["─" * (width + 2) for width in widths]
    return f"┏{'┳'.join(thick)}┓", f"┡{'╇'.join(thick)}┩", f"└{'┴'.join(thin)}┘"


def console() -> "Console":
    """Return a rich console on stdout that escapes control characters and does not parse strings as markup."""
    from rich.console import Console
    from rich.text import Text

    class PrintableConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return Text(printable(text), style=options.get("style", ""))

    rich_console = PrintableConsole(highlight=False)
    rich_console.width = min(rich_console.width, MAX_MESSAGE)
    return rich_console
