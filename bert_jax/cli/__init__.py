"""The command line `bert-jax VERB`: each verb parses arguments, calls one library function and prints its result.

Nothing heavy is imported before a verb runs, so that `bert-jax --help` answers at once.
"""

import argparse
import contextlib
import difflib
import importlib
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import bert_jax
from bert_jax import compilers, program_cache
from bert_jax.cli import config, demo, export, models, plan, prune, quantize, score, serve, text, train
from bert_jax.cli.output import complain
from bert_jax.cli.verbs import Verbs
from bert_jax.errors import InputError, did_you_mean, one_line, printable
from bert_jax.process import default_environment, may_have_accelerators
from bert_jax.tasks import TASKS

# Modules with verbs; the verbs of tasks are listed between them.
_FIRST = (demo, text, config, train, plan, score)
_LAST = (serve, models, prune, quantize, export)
_OUTPUTS = ("out", "report", "destination")  # options, of any verb, that name a file or directory to write
_NO_PATHS = ("text", "texts", "overrides", "command_line")  # parsed arguments that are never a path
EXIT_BAD_INPUT = 2
_EXIT_INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


class _Parser(argparse.ArgumentParser):
    """An argument parser with one-line errors; a first argument without a flag gets the flag in `first_word`."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        first = self.get_default("first_word")
        if first and args and not args[0].startswith("-"):
            args = [first, *args]
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def build_parser(used: str | None = None) -> tuple["_Parser", dict[str, "_Parser"]]:
    """Return the parser of the whole command line, and a dict from each verb to its parser.

    Args:
        used: the only verb whose flags are declared, "" for no verb; None = every verb's flags are declared.
    """
    # No abbreviations: a misspelt flag is an error that suggests the right one.
    parser = _Parser(
        prog="bert-jax",
        description="BERT in JAX: pretrain, fine-tune, run inference, and exchange weights with PyTorch.",
        epilog="`bert-jax VERB --help` shows the flags of a verb, with examples.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=28),
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"bert-jax {bert_jax.__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = Verbs(parser.add_subparsers(title="verbs", metavar="VERB", required=True), used)
    of_tasks = (_add_verbs_of(task.name, name) for task in TASKS.values() for name in task.verbs)
    for add_verbs in (*(module.add_verbs for module in _FIRST), *of_tasks, *(module.add_verbs for module in _LAST)):
        add_verbs(verbs)
    return parser, verbs.parsers


def _add_verbs_of(task: str, module: str) -> Callable[[Verbs], None]:
    """Return `add_verbs` of a task's module. Raises InputError when the module cannot be imported."""
    try:
        add_verbs: Callable[[Verbs], None] = importlib.import_module(module).add_verbs
    except Exception as error:
        raise InputError(f"task {task!r}: verbs of {module}: {type(error).__name__}: {error}") from error
    return add_verbs


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line, and return its exit status: 0 or what the verb returns, 2 for bad input, 130 when
    interrupted. Changed settings of the process are restored (`process_settings`)."""
    argv = list(sys.argv[1:] if argv is None else argv)
    with process_settings():
        return _run(argv)


def _run(argv: list[str]) -> int:
    try:
        args = _parse(argv)
        _check_outputs(args)
        status = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe (`bert-jax ... | head`): discard the rest of the buffer.
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


@contextlib.contextmanager
def process_settings() -> Iterator[None]:
    """Apply the command line's process-wide settings within the block, and restore the old ones afterwards.

    The TPU compiler gets a larger stack, and is not loaded on a machine without accelerators. Compiled programs are
    cached for later processes. Clients of object stores and hubs make no needless requests and print no needless
    messages. Logs and warnings have control characters escaped.
    """
    defaults = {
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # gcsfs would make a gRPC request for the type of each bucket
        "HF_HUB_VERBOSITY": "error",  # no message for each retry; a final failure is reported in one line
        "TF_CPP_MIN_LOG_LEVEL": "3",  # no messages from TensorFlow during `export`
        "EPATH_USE_TF": "false",  # no use of TensorFlow's file client, even if TensorFlow is installed
    }
    if folder := program_cache.default_directory():
        defaults["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    named = os.environ.get("JAX_COMPILATION_CACHE_DIR", "")
    if "://" not in named and not program_cache.is_private(named):
        defaults["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # JAX does not check who owns the programs that it loads
    if "JAX_PLATFORMS" not in os.environ and not may_have_accelerators():
        defaults["JAX_PLATFORMS"] = "cpu"
    with compilers.larger_stacks(), default_environment(defaults), _printable_logs(), _printable_warnings():
        yield


@contextlib.contextmanager
def _printable_logs() -> Iterator[None]:
    root, gcsfs, silent = logging.getLogger(), logging.getLogger("gcsfs"), logging.NullHandler()
    lines = _LogLines() if not root.handlers else None  # only in a program that has not set up logging
    propagate = gcsfs.propagate
    if lines is not None:
        root.addHandler(lines)
    gcsfs.propagate = False  # errors are reported here in one line, without gcsfs's tracebacks
    gcsfs.addHandler(silent)
    try:
        yield
    finally:
        gcsfs.removeHandler(silent)
        gcsfs.propagate = propagate
        if lines is not None:
            root.removeHandler(lines)


@contextlib.contextmanager
def _printable_warnings() -> Iterator[None]:
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"bert-jax: {printable(one_line(str(message)))}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


class _LogLines(logging.Handler):
    """A logging handler that writes to the current `sys.stderr`.

    It drops what Orbax and its asyncio tasks log about a checkpoint that could not be read or written, since the verb
    reports that in one line. If Orbax is loaded, no other library uses asyncio. It also drops what other libraries log
    below a warning: bm25s sets the level of its own logger to DEBUG.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING and not record.name.startswith("bert_jax"):
            return
        if "orbax" not in record.pathname and not (record.name == "asyncio" and "orbax" in sys.modules):
            complain(self.format(record))


def _check_outputs(args: argparse.Namespace) -> None:
    """Raise InputError when an output path of the verb is also one of its input paths."""
    outputs = {name: value for name in _OUTPUTS if (value := getattr(args, name, None))}
    if not outputs:
        return
    from bert_jax import storage

    inputs = []
    for name, value in vars(args).items():
        for word in value if isinstance(value, list) else [value]:
            if name not in _OUTPUTS and name not in _NO_PATHS and isinstance(word, str):
                # A corpus may be KIND:PATH or PATH:FIELD.
                inputs += [word, word.partition(":")[2], word.rpartition(":")[0]]
    for out in outputs.values():
        storage.check_output(out, *filter(None, inputs))


def _parse(argv: list[str]) -> argparse.Namespace:
    if not argv:
        argv = ["--help"]
    verb = next((word for word in argv if not word.startswith("-")), "")
    parser, verbs = build_parser(verb)
    if verb and verb not in verbs:
        raise InputError(f"no verb {verb!r}{did_you_mean(verb, verbs)}")
    args, unknown = parser.parse_known_args(argv)
    if hasattr(args, "texts"):  # argparse leaves TEXT... unparsed if a flag comes between MODEL and the texts
        args.texts += [word for word in unknown if not word.startswith("-")]
        unknown = [word for word in unknown if word.startswith("-")]
    # The verbs that take a recipe read `--config.a.b=value` from the unparsed arguments.
    takes_recipe, flags = hasattr(args, "overrides"), verbs[verb]._option_string_actions if verb else ()
    for word in unknown:
        name = word.split("=")[0]
        is_near = bool(difflib.get_close_matches(name, flags, n=1, cutoff=0.8))
        if not takes_recipe or (is_near and not name.startswith("--config.")):
            hint = did_you_mean(name, flags) if name.startswith("--") else ""
            raise InputError(f"{verb}: {name!r} was not expected{hint}")
    args.overrides, args.command_line = unknown, argv
    return args


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return one_line(str(error)) or type(error).__name__
