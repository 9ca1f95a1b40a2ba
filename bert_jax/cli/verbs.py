"""Declare a verb: its flags, its example, and the function that runs it."""

import argparse
from collections.abc import Callable
from typing import Any


def add_verb(
    verbs: Any, name: str, run: Callable[[argparse.Namespace], int | None], summary: str, details: str, examples: str
) -> argparse.ArgumentParser:
    """Add a verb to argparse's subparsers and return its parser.

    Args:
        verbs: the result of `ArgumentParser.add_subparsers`.
        name: the verb.
        run: function of the parsed arguments that returns the exit status; None means 0.
        summary: one line, shown in the list of verbs.
        details: a paragraph shown above the flags in the verb's own help.
        examples: command lines shown under the flags; a continued line ends with a backslash.
    """
    lines = [line.strip() for line in examples.strip().splitlines()]
    continued = [False, *(line.endswith("\\") for line in lines)]
    indented = "".join(f"{'      ' if inner else '  '}{line}\n" for inner, line in zip(continued, lines, strict=False))
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
    """A help formatter that wraps the description and keeps the lines of the examples."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=28)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        return super()._fill_text(text, width, indent)


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """Declare `--dtype`."""
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto",
        help="dtype of matrix products (default: auto = bfloat16 on accelerators, float32 on CPU)")  # fmt: skip


def add_batching(parser: argparse.ArgumentParser, what: str = "text") -> None:
    """Declare `--batch-size` and `--batch-invariant`."""
    parser.add_argument("--batch-size", type=int, metavar="N",
        help=f"{what}s in a forward pass (default: chosen for the device)")  # fmt: skip
    parser.add_argument("--batch-invariant", action="store_true",
        help=f"make answers bitwise independent of the other {what}s; one {what} takes as long as a batch")  # fmt: skip


def add_prompts(parser: Any, of: str = "texts") -> None:
    """Declare `--prompt-name` and `--prompt`."""
    parser.add_argument("--prompt-name", metavar="NAME",
        help=f"name of the model's prompt to put before {of} (default: the model's default; '' = none)")  # fmt: skip
    parser.add_argument("--prompt", metavar="TEXT", help=f"text to put before {of}, instead of a named prompt")


def add_truncate_dim(parser: Any) -> None:
    """Declare `--truncate-dim`."""
    parser.add_argument("--truncate-dim", type=int, metavar="N",
        help="keep the first N dimensions of each vector (default: from the model's files)")  # fmt: skip


def add_vector_sizes(parser: Any) -> None:
    """Declare `--truncate-dim` and `--max-active-dims`."""
    add_truncate_dim(parser)
    parser.add_argument("--max-active-dims", type=int, metavar="N",
        help="keep the N greatest weights of each sparse vector (default: from the model's files)")  # fmt: skip


def add_kind(parser: Any) -> None:
    """Declare `--kind`."""
    parser.add_argument("--kind", choices=("sparse", "multi-vector"),
        help="kind of embeddings, of a model that has several, such as BGE-M3, or of a masked LM (default: that of the "
        "model's files)")  # fmt: skip
