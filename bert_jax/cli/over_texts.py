"""Shared by verbs that run a pipeline over texts: their arguments, and the loop over texts and answers."""

import argparse
import copy
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.cli import answer_tables, shards, stream
from bert_jax.cli.output import complain, print_json
from bert_jax.cli.verbs import add_batching, add_dtype
from bert_jax.errors import InputError, TextError

TEXTS_AT_ONCE = 4096  # number of texts in one call of a pipeline


def add_text_flags(parser: Any, what: str = "text") -> None:
    """Declare the arguments of a verb that runs a pipeline over texts, or over questions."""
    parser.add_argument("model", metavar="MODEL", help="a model directory")
    stream.add_flags(parser, what)
    parser.add_argument("--json", action="store_true", help=f"print one JSON object per {what} instead of tables")
    add_batching(parser, what)
    add_dtype(parser)
    shards.add_shards(parser, f"{what}s, as for --file")
    parser.set_defaults(emit=print_json, pipe=None, counted=0, live=False)


def run_over_texts(
    args: argparse.Namespace,
    verb: Callable[[argparse.Namespace], None],
    columns: answer_tables.AnswerColumns | None,
    suffix: Callable[[], str] = lambda: ".jsonl",
) -> int:
    """Run a verb over its texts, or over the texts of each file of --shards, and return the exit status.

    Args:
        args: the arguments of `add_text_flags`, and of `shards.add_answer_files` or a similar function.
        verb: function that prints an answer for each text, or calls `args.emit` with it.
        columns: column -> type in a Parquet file of answers; None = the verb itself writes the file `args.out`.
        suffix: function that returns the suffix of answer files if --format is not given.
    """
    if args.shards and (args.texts or args.file):
        raise InputError("--shards: expected neither texts nor --file, found both")
    if not shards.is_over_shards(args, "format", *([] if columns is None else ["out"])):
        verb(args)
        return 0

    def answer(shard: shards.ShardFiles) -> int:
        part = copy.copy(args)
        part.file, part.out, part.json, part.counted = str(shard.source), str(shard.out), True, 0
        shard.out.parent.mkdir(parents=True, exist_ok=True)
        if columns is None:
            verb(part)
        else:
            with answer_tables.open_answers(shard.out, columns) as part.emit:
                verb(part)
        args.pipe = part.pipe
        return int(part.counted)

    return shards.over_shards(args, f".{args.format}" if args.format else suffix(), answer)


def open_pipeline(args: argparse.Namespace, task: str) -> Any:
    """Return the pipeline of the verb; it is opened on the first call."""
    if args.pipe is None:
        from bert_jax.inference import pipeline

        device = "all" if args.shards or args.file else None
        options = {"device": device, "batch_invariant": args.batch_invariant}
        args.pipe = pipeline(task, args.model, args.dtype, args.batch_size, **options)
        if args.shards:  # so that answers do not depend on which files this process has read before
            args.pipe.use_every_length()
    return args.pipe


def answers_of(
    args: argparse.Namespace, task: str, predict: Callable[[Any, list[str]], Any], at_once: int | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield each input text with the pipeline's answer; `predict` is called with `at_once` texts at a time."""
    at_once = at_once or TEXTS_AT_ONCE
    if args.batch_size is not None and args.batch_size < 1:
        raise InputError(f"--batch-size: expected a positive integer, found {args.batch_size}")
    texts = stream.Texts(args, may_be_empty=bool(args.shards))
    left = iter(texts)
    chunk = list(itertools.islice(left, at_once))  # read before the model is opened, so that errors in texts come first
    pipe = open_pipeline(args, task)
    with stream.counting(not (args.shards or args.live) and (args.json or bool(args.out))) as done:
        while chunk:
            yield from _answered(texts, chunk, functools.partial(predict, pipe))
            done(len(chunk))
            args.counted += len(chunk)
            chunk = list(itertools.islice(left, at_once))
    if texts.skipped:
        complain(f"bert-jax: {texts.skipped:,} {'text' if texts.skipped == 1 else 'texts'} skipped")


def _answered(
    texts: stream.Texts, chunk: list[tuple[str, str]], predict: Callable[[list[str]], Any]
) -> Iterator[tuple[str, Any]]:
    """Yield texts with their answers; texts that the model rejects go to `texts.skip`."""
    while chunk:
        chunk_texts = [text for _, text in chunk]
        try:
            answers = predict(chunk_texts)
        except TextError as error:
            where, _ = chunk.pop(error.number)
            texts.skip(InputError(f"{where}: {error.problem}"))
            continue
        yield from zip(chunk_texts, answers, strict=True)
        return
