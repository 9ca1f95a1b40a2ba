"""The command line `bert-jax VERB`: each verb parses arguments, calls one library function and prints its result.

Nothing heavy is imported before a verb runs, so that `bert-jax --help` answers at once.
"""

import argparse
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import NoReturn

import bert_jax
from bert_jax import compilers
from bert_jax.cli import ask, config, demo, models, plan, score, search, text, train
from bert_jax.cli.output import complain
from bert_jax.errors import InputError, did_you_mean, one_line, printable

GROUPS = (demo, text, config, train, plan, score, ask, search, models)
_OUTPUTS = ("out", "report", "destination")  # options of all verbs that name a file or directory to write
_NO_PATHS = ("text", "texts", "overrides", "command_line")  # and that are never a path
EXIT_BAD_INPUT = 2
_EXIT_INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


class _Parser(argparse.ArgumentParser):
    """argparse whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def build_parser() -> tuple["_Parser", dict[str, "_Parser"]]:
    """The parser of the whole command line, and that of each verb by its name."""
    # No abbreviations: a misspelt flag is answered, not guessed at.
    parser = _Parser(
        prog="bert-jax",
        description="BERT in JAX: pretrain, fine-tune, ask, and trade weights with PyTorch.",
        epilog="`bert-jax VERB --help` tells each verb's flags, with an example.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=28),
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"bert-jax {bert_jax.__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for group in GROUPS:
        group.add_verbs(verbs)
    for verb in verbs.choices.values():
        # Here too, so that it may stand after the verb; no default, which would undo one before it.
        verb.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser, verbs.choices


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit status: 0 or what the verb returns, 2 for bad input, 130 when
    interrupted."""
    argv = list(sys.argv[1:] if argv is None else argv)
    _configure_libraries()
    _print_only_printable_text()
    try:
        args = _parse(argv)
        _check_outputs(args)
        status = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone (`bert-jax ... | head`); what is left in the buffer has nowhere to go either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        complain("bert-jax: interrupted")
        return _EXIT_INTERRUPTED
    except (InputError, OSError) as error:
        if "--debug" in argv:
            complain(traceback.format_exc().rstrip())
        complain(f"bert-jax: {_one_line(error)}")
        return EXIT_BAD_INPUT
    return status or 0


def _print_only_printable_text() -> None:
    """Makes what others print fit for a terminal: logs of libraries, warnings, and the traceback of a bug."""
    logging.basicConfig(handlers=[_LogLines()])  # does nothing in a program that has set its logging up
    warnings.formatwarning = lambda message, *_, **__: f"bert-jax: {printable(one_line(str(message)))}\n"
    sys.excepthook = lambda *error: complain("".join(traceback.format_exception(*error)).rstrip())


class _LogLines(logging.Handler):
    """Writes records to what stderr is at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(self.format(record))


def _check_outputs(args: argparse.Namespace) -> None:
    """Raises InputError, before a verb reads anything, where a file that it writes is one that it reads."""
    outputs = {name: value for name in _OUTPUTS if (value := getattr(args, name, None))}
    if not outputs:
        return
    from bert_jax import storage

    inputs = []
    for name, value in vars(args).items():
        for word in value if isinstance(value, list) else [value]:
            if name not in _OUTPUTS and name not in _NO_PATHS and isinstance(word, str):
                # A corpus may have its kind before the path, and a field behind it.
                inputs += [word, word.partition(":")[2], word.rpartition(":")[0]]
    for out in outputs.values():
        storage.check_output(out, *filter(None, inputs))


def _configure_libraries() -> None:
    """Gives the TPU's compiler the stack it needs, and keeps the clients of object stores from printing and from
    asking more than is needed."""
    compilers.give_compiler_room()
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # a gRPC service, for each bucket's kind
    os.environ.setdefault("EPATH_USE_TF", "false")  # TensorFlow's client, where TensorFlow happens to be installed
    logging.getLogger("gcsfs").propagate = False  # tracebacks of what is answered here in one line
    logging.getLogger("gcsfs").addHandler(logging.NullHandler())


def _parse(argv: list[str]) -> argparse.Namespace:
    parser, verbs = build_parser()
    verb = next((word for word in argv if not word.startswith("-")), "")
    if verb and verb not in verbs:
        raise InputError(f"no verb {verb!r}{did_you_mean(verb, verbs)}")
    args, unknown = parser.parse_known_args(argv)
    if hasattr(args, "texts"):  # argparse gives up on TEXT... where a flag stands between MODEL and the texts
        args.texts += [word for word in unknown if not word.startswith("-")]
        unknown = [word for word in unknown if word.startswith("-")]
    # The verbs that take a recipe get `--config.a.b=value` from what is left over.
    if unknown and not hasattr(args, "overrides"):
        flags = verbs[verb]._option_string_actions if verb else ()
        name = unknown[0].split("=")[0]
        hint = did_you_mean(name, flags) if name.startswith("--") else ""
        raise InputError(f"{verb}: {name!r} was not expected{hint}")
    args.overrides, args.command_line = unknown, argv
    return args


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return one_line(str(error)) or type(error).__name__
