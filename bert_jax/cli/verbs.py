"""Declare a verb: its flags, its example, and the function that runs it."""

import argparse
from collections.abc import Callable
from typing import Any


def add_verb(
    verbs: Any, name: str, run: Callable[[argparse.Namespace], int | None], summary: str, details: str, examples: str
) -> argparse.ArgumentParser:
    """Adds one verb to argparse's subparsers and returns its parser, to be given its flags.

    Args:
        verbs: what `ArgumentParser.add_subparsers` returned.
        name: the verb.
        run: called with the parsed arguments; returns the exit status, None for 0.
        summary: one line, shown in the list of verbs.
        details: a paragraph shown above the flags in the verb's own help.
        examples: command lines shown under the flags; one that goes on in the next line ends with a backslash.
    """
    lines = [line.strip() for line in examples.strip().splitlines()]
    goes_on = [False, *(line.endswith("\\") for line in lines)]
    indented = "".join(f"{'      ' if inner else '  '}{line}\n" for inner, line in zip(goes_on, lines, strict=False))
    parser = verbs.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}. {details}",
        epilog=f"examples:\n{indented}",
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser


class _Formatter(argparse.HelpFormatter):
    """Fills the description, and leaves the lines of the examples as they are."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=28)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        return super()._fill_text(text, width, indent)


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """Declares `--dtype`, with one default for all verbs."""
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto",
        help="of matrix products (default: bfloat16 on accelerators)")  # fmt: skip


def add_prompts(parser: Any, of: str = "texts") -> None:
    """Declares the options that put a prompt before texts."""
    parser.add_argument("--prompt-name", metavar="NAME",
        help=f"which of the model's prompts to put before {of} (default: its own default; '' = none)")  # fmt: skip
    parser.add_argument("--prompt", metavar="TEXT", help="the prompt itself, in place of a name")


def add_truncate_dim(parser: Any) -> None:
    """Declares `--truncate-dim`."""
    parser.add_argument("--truncate-dim", type=int, metavar="N",
        help="numbers of a vector to keep (default: as the model's files say)")  # fmt: skip
