"""Run a verb over many files: the answers for each become a file of the same name in a directory.

An answer file is written whole or not at all, and existing ones are not computed again. So a killed command is resumed
by repeating it. Several processes divide the files by number and need no connection.
"""

import argparse
import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_jax.cli.hosts import place_among_hosts
from bert_jax.cli.output import complain, say
from bert_jax.errors import InputError

if TYPE_CHECKING:
    from bert_jax import storage

_SETTINGS = "shards.json"  # file in the output directory that records the options of the verb
# Arguments that are not recorded, since they do not change the answers or are recorded in another form.
_FREE = frozenset(("verb", "run", "command_line", "shards", "out", "num_processes", "process_id", "skip",
                   "distributed", "invalid_rows", "texts", "file", "data", "json",
                   "pipe", "counted"))  # fmt: skip


class ShardFiles(NamedTuple):
    """A file of inputs, and the file for its answers."""

    source: "storage.Path"
    out: "storage.Path"


def add_shards(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare `--shards` and the flags by which several processes share the files."""
    many = parser.add_argument_group("many files (repeat the command to resume; --out is a directory)")
    many.add_argument("--shards", nargs="+", metavar="FILE",
        help=f"files, folders or patterns of {what}; the answers for each become a file of the same name in "
        "--out")  # fmt: skip
    many.add_argument("--distributed", action="store_true",
        help="share the files among the hosts that JAX detects (Cloud TPU, Slurm, Open MPI)")  # fmt: skip
    many.add_argument("--num-processes", type=int, default=1, metavar="N",
        help="number of processes that share the files (default: %(default)s)")  # fmt: skip
    many.add_argument("--process-id", type=int, default=0, metavar="I",
        help="number of this process, from 0 (default: %(default)s)")  # fmt: skip


def add_answer_files(parser: argparse.ArgumentParser) -> None:
    """Declare the flags for the directory and the format of a verb's answers with `--shards`."""
    parser.add_argument("--out", metavar="DIR", help="with --shards: directory for the answers")
    parser.add_argument("--format", choices=("jsonl", "parquet"),
        help="with --shards: format of the files (default: jsonl)")  # fmt: skip


def is_over_shards(args: argparse.Namespace, *options: str) -> bool:
    """Return whether `--shards` is given; with `--distributed`, first set the process id and the number of processes.

    Call it before JAX touches a device.

    Args:
        args: the arguments of `add_shards`.
        options: options that need `--shards`.

    Raises:
        InputError: an option or `--distributed` lacks `--shards`; `--distributed` comes with `--num-processes` or
            `--process-id`; or the hosts cannot be found.
    """
    for option in options:
        if getattr(args, option) and not args.shards:
            raise InputError(f"--{option}: expected --shards too, found none")
    if args.distributed:
        if not args.shards or (args.process_id, args.num_processes) != (0, 1):
            raise InputError("--distributed: expected --shards, and neither --num-processes nor --process-id")
        args.process_id, args.num_processes = place_among_hosts()
    return bool(args.shards)


def over_shards(args: argparse.Namespace, suffix: str, answer: Callable[[ShardFiles], int]) -> int:
    """Call `answer` for each of this process's files that have no answers yet, and return the exit status.

    Args:
        args: the arguments of `add_shards`, with `out` and with `skip`, whether to skip files that cannot be read.
        suffix: suffix of the answer files.
        answer: function that reads a source, writes its answers, and returns their number.

    Raises:
        InputError: the files, the directory or the settings are invalid; or, without `skip`, a file cannot be read.
    """
    if not args.out:
        raise InputError("--out: expected a directory with --shards, found none")
    if args.num_processes < 1 or not 0 <= args.process_id < args.num_processes:
        raise InputError(f"--process-id: expected 0 to {args.num_processes - 1}, found {args.process_id}")
    from bert_jax import storage

    folder = storage.Path(args.out)
    sources = _files(args.shards, folder)
    root = _common_folder(sources)
    shards = _named(sources, root, folder, suffix)
    written = _written(folder)
    _check_settings(args, folder, root, shards, written)
    share = shards[args.process_id :: args.num_processes]
    missing = [shard for shard in share if str(shard.out) not in written]
    rows, failed = 0, 0
    with _progress(len(share), len(share) - len(missing)) as done:
        for shard in missing:
            try:
                count = answer(shard)
            except InputError as error:
                if not args.skip:
                    raise
                complain(f"bert-jax: {error}; the file is left out")
                failed += 1
                continue
            rows += count
            done(count)
    say(f"{args.out}: {len(share) - failed:,} of {len(shards):,} files, {rows:,} answers in this run")
    if failed:
        complain(f"bert-jax: {failed:,} files have no answers; repeat the command to try them again")
    return int(failed > 0)


def _files(patterns: Sequence[str], out: "storage.Path") -> list["storage.Path"]:
    """Return the files that match the patterns, sorted and without duplicates."""
    from bert_jax import storage

    by_name: dict[str, storage.Path] = {}
    for pattern in patterns:
        path = storage.Path(pattern)
        files = storage.find_files(pattern)
        if path.is_dir():
            if out == path or path in out.parents:
                raise InputError(f"--out: expected a directory outside of {pattern}, whose files are read, found {out}")
            files = [file for file in files if not file.name.startswith("_")]  # skip marker files such as _SUCCESS
        elif not files and not storage.is_pattern(pattern):
            storage.existing(pattern)  # raises an error that says what is wrong
        if not files:
            raise InputError(f"{pattern}: expected files, found none")
        by_name |= {str(file): file for file in files}
    return [by_name[name] for name in sorted(by_name)]


def _common_folder(files: Sequence["storage.Path"]) -> str:
    """Return the innermost folder that has all files below it, as a path that ends in a slash."""
    first, last = (str(file).split("/")[:-1] for file in (min(files, key=str), max(files, key=str)))
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(f"{part}/" for part, _ in same)


def _named(sources: Sequence["storage.Path"], root: str, folder: "storage.Path", suffix: str) -> list[ShardFiles]:
    """Pair each source with its answer file, which has the same path in `folder` as the source in `root`."""
    from bert_jax import storage

    shards: dict[str, ShardFiles] = {}
    for source in sources:
        name = storage.without_compression(str(source).removeprefix(root))
        if name.startswith("/") or "://" in name:
            raise InputError(f"--shards: expected files below one folder, found {sources[0]} and {sources[-1]}")
        name = str(storage.Path(name).with_suffix(suffix))
        if name in shards:
            raise InputError(f"--shards: expected names that differ without their suffixes, found {source} and "
                             f"{shards[name].source}")  # fmt: skip
        shards[name] = ShardFiles(source, folder / name)
    return list(shards.values())


def _check_settings(
    args: argparse.Namespace, folder: "storage.Path", root: str, shards: Sequence[ShardFiles], written: set[str]
) -> None:
    """Write the settings into the directory of answers, or compare them with those of an earlier run there."""
    from bert_jax import storage

    for shard in shards:
        if folder in shard.source.parents:
            raise InputError(f"--out: expected a directory other than that of {shard.source}, found {args.out}")
    settings = {name: value for name, value in vars(args).items() if name not in _FREE and not callable(value)}
    settings = json.loads(json.dumps(settings | {"folder of the files": root}, default=str))
    path = folder / _SETTINGS
    if str(path) not in written:
        if written:
            raise InputError(
                f"{folder}: expected a new or empty directory, or that of an earlier run, found other files"
            )
        folder.mkdir(parents=True, exist_ok=True)
        storage.write_atomically(path, json.dumps(settings, indent=2, sort_keys=True) + "\n")
        return
    before = storage.read_json(path)
    for name in sorted(before.keys() | settings.keys()):
        if before.get(name) != settings.get(name):
            raise InputError(
                f"{folder} belongs to another run: {name} was {before.get(name)!r}, is now {settings.get(name)!r}; use "
                "another --out"
            )


def _written(folder: "storage.Path") -> set[str]:
    """Return the finished files in a directory, which may not exist; remove unfinished ones of killed processes."""
    from bert_jax import storage

    shards = set()
    for file in folder.files_below() if folder.is_dir() else ():
        if file.name.startswith("."):
            storage.remove_leftovers(file.with_name(file.name[1:].rsplit(".", 2)[0]))
        else:
            shards.add(str(file))
    return shards


@contextlib.contextmanager
def _progress(files: int, done: int) -> Iterator[Callable[[int], None]]:
    """Show progress on a terminal; yield a function to call with the number of answers of each finished file."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns: tuple[Any, ...] = (BarColumn(), MofNCompleteColumn(), TextColumn("files  {task.fields[rows]:,} answers"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task, rows = bar.add_task("", total=files, completed=done, rows=0), 0

        def finished(count: int) -> None:
            nonlocal rows
            rows += count
            bar.update(task, advance=1, rows=rows)

        yield finished
