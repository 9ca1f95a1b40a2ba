"""Answers on stdout: JSON lines and tables."""

import json
from collections.abc import Sequence
from typing import Any


def print_json(value: dict[str, Any]) -> None:
    """An object in a line."""
    print(json.dumps(value, ensure_ascii=False))


def print_table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Rows under a title and the names of their columns."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Text: a user's words may hold what rich would take for markup, such as [MASK].
    table = Table(*columns, title=Text(title), title_justify="left")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)
