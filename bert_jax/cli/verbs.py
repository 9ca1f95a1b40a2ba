"""Declare a verb: its flags, its example, and the function that runs it."""

import argparse
from collections.abc import Callable
from typing import Any

from bert_jax.errors import InputError


class UnusedParser:
    """A stand-in for the parser of a verb that does not run: it ignores all declarations, to save time."""

    def __getattr__(self, name: str) -> Callable[..., "UnusedParser"]:
        return lambda *args, **options: self


class Verbs:
    """The verbs of a command line."""

    def __init__(self, subparsers: Any, used: str | None = None) -> None:
        """Create a command line without verbs.

        Args:
            subparsers: the result of `ArgumentParser.add_subparsers`.
            used: the only verb whose flags are declared, "" for no verb; None = every verb's flags are declared.
        """
        self.parsers: dict[str, Any] = subparsers.choices
        self._add, self._used = subparsers.add_parser, used

    def add(self, name: str, summary: str, **options: Any) -> Any:
        """Add a verb; return its parser, or an `UnusedParser`. Raises InputError for a name that is taken."""
        if name in self.parsers:
            raise InputError(f"verb {name!r}: expected a new name, found that of another verb")
        if self._used not in (None, name):
            self._add(name, help=summary)
            return UnusedParser()
        return self._add(name, help=summary, **options)


def add_verb(
    verbs: Verbs, name: str, run: Callable[[argparse.Namespace], int | None], summary: str, details: str, examples: str
) -> Any:
    """Add a verb and return its parser, an `argparse.ArgumentParser` or an `UnusedParser`.

    Args:
        verbs: the argument of the module's `add_verbs`.
        name: the verb.
        run: function of the parsed arguments that returns the exit status; None means 0.
        summary: one line, shown in the list of verbs.
        details: a paragraph shown above the flags in the verb's own help.
        examples: command lines shown under the flags; a continued line ends with a backslash.
    """
    lines = [line.strip() for line in examples.strip().splitlines()]
    continued = [False, *(line.endswith("\\") for line in lines)]
    indented = "".join(f"{'      ' if inner else '  '}{line}\n" for inner, line in zip(continued, lines, strict=False))
    parser = verbs.add(
        name,
        summary,
        description=f"{summary[0].upper()}{summary[1:]}. {details}",
        epilog=f"examples:\n{indented}",
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    # Declared again so that --debug works after the verb too; a default would override a --debug before the verb.
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser


class _Formatter(argparse.HelpFormatter):
    """A help formatter that wraps the description and keeps the lines of the examples."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=28)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        return super()._fill_text(text, width, indent)


def check_counts(args: argparse.Namespace, *names: str) -> None:
    """Raise InputError when an option is given and is not a positive integer."""
    for name in names:
        value = getattr(args, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')}: expected a positive integer, found {value}")


def add_dtype(parser: Any) -> None:
    """Declare `--dtype`."""
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto",
        help="dtype of matrix products (default: auto = bfloat16 on accelerators, float32 on CPU)")  # fmt: skip


def add_batching(parser: Any, what: str = "text") -> None:
    """Declare `--batch-size` and `--batch-invariant`."""
    parser.add_argument("--batch-size", type=int, metavar="N",
        help=f"number of {what}s per forward pass (default: chosen for the device)")  # fmt: skip
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
        help="keep the N largest weights of each sparse vector (default: from the model's files)")  # fmt: skip


def add_kind(parser: Any) -> None:
    """Declare `--kind`."""
    parser.add_argument("--kind", choices=("sparse", "multi-vector"),
        help="kind of embeddings to compute, for a model with several, such as BGE-M3, or a masked LM (default: from "
        "the model's files)")  # fmt: skip
