"""Generate docs/command_line.md from the parser: `python -m bert_jax.cli.describe`."""

import argparse
import textwrap
from collections.abc import Mapping, Sequence

from bert_jax.cli import EXIT_BAD_INPUT, EXIT_BROKEN_PIPE, build_parser
from bert_jax.training.stopping import EXIT_INTERRUPTED

_HEAD = f"""# Command line

`bert-jax VERB --help` prints the same in a terminal, and `bert-jax --version` prints the version. Options may come
before or after the arguments, cannot be abbreviated, and are all optional unless their description says *required*.

| option of every verb | |
|---|---|
| `-h`, `--help` | show the verb's options and examples, and exit |
| `--debug` | show the traceback of an error |

| exit status | |
|---|---|
| 0 | done |
| 1 | `plan`: the recipe does not fit on the slice |
| {EXIT_BAD_INPUT} | bad input: one line on stderr says what was expected, what was found and where |
| {EXIT_INTERRUPTED}, 143 | interrupted by Ctrl-C, or by SIGTERM; a training run has saved a checkpoint first |
| {EXIT_BROKEN_PIPE} | the program that read the output has ended |

[Troubleshooting](troubleshooting.md) explains error messages. To find an option with the search of this site, type it
without dashes.

This page is written by `make docs` from the parser.
"""


def as_page() -> str:
    """Return the text of docs/command_line.md: every verb with its arguments, options and examples."""
    _, verbs = build_parser()
    return "".join([_HEAD, *_summary(verbs), *(_section(name, parser) for name, parser in verbs.items())])


def _summary(verbs: Mapping[str, argparse.ArgumentParser]) -> list[str]:
    """Return a table of the verbs: name and first sentence."""
    rows = [f"| [`{name}`](#{name}) | {_cell(_sentences(parser)[0])} |\n" for name, parser in verbs.items()]
    return ["\n## Verbs\n\n| verb | |\n|---|---|\n", *rows]


def _sentences(parser: argparse.ArgumentParser) -> tuple[str, str]:
    """Return the first sentence of a verb's description, and the rest of it."""
    first, _, rest = (parser.description or "").partition(". ")
    return first.rstrip("."), rest


def _section(name: str, parser: argparse.ArgumentParser) -> str:
    first, details = _sentences(parser)
    parts = [f"\n## {name}\n", f"{first}. {details}".strip()]
    for group in parser._action_groups:
        if rows := _rows(group._group_actions, parser):
            title = {"positional arguments": "argument", "options": "option"}.get(group.title or "", group.title)
            parts.append("\n".join([f"| {title} | |", "|---|---|", *rows]))
    examples = textwrap.dedent((parser.epilog or "").removeprefix("examples:\n")).strip()
    parts.append(f"```bash\n{examples}\n```\n")
    return "\n".join([parts[0], "\n\n".join(parts[1:])])


def _rows(actions: Sequence[argparse.Action], parser: argparse.ArgumentParser) -> list[str]:
    """Return a line of the table for each argument that is shown in the help, except `--help`."""
    return [
        f"| {_names(action)} | {_meaning(action, parser)} |"
        for action in actions
        if action.help is not argparse.SUPPRESS and "--help" not in action.option_strings
    ]


def _names(action: argparse.Action) -> str:
    """Return the syntax of an argument: `--top-k K`, or `TEXT ...`."""
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if action.choices is not None:
        value = "|".join(map(str, action.choices))
    if not action.option_strings:
        repeated = {"*": f"[{value} ...]", "+": f"{value} [{value} ...]", "?": f"[{value}]"}
        return _code(repeated.get(str(action.nargs), value))
    return ", ".join(_code(name if action.nargs == 0 else f"{name} {value}") for name in action.option_strings)


def _meaning(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    text = _cell((action.help or "") % (vars(action) | {"prog": parser.prog}))
    return f"*required*: {text}" if action.option_strings and action.required else text


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


if __name__ == "__main__":
    print(as_page(), end="")
