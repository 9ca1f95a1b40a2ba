"""The verb `generate`: write texts with a model of masked diffusion, or fill in the masks of texts."""

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

from bert_jax.cli import shards
from bert_jax.cli.answer_tables import SCORED
from bert_jax.cli.output import print_table
from bert_jax.cli.over_texts import add_text_flags, answers_of, run_over_texts
from bert_jax.cli.signatures import ParameterFlags
from bert_jax.cli.verbs import Verbs, add_verb
from bert_jax.errors import InputError

_PROMPTS_AT_ONCE = 256  # prompts per call of a pipeline
_CALL = "bert_jax.tasks.masked_diffusion.generation.TextGeneration.__call__"
_PASSES = ParameterFlags(_CALL, "steps", "seed")
_UNMASKING = ParameterFlags(
    "bert_jax.tasks.masked_diffusion.unmasking.Unmasking", "order", "temperature", "top_k", "top_p", "remasking"
)
_ANSWERS = ParameterFlags(
    _CALL, "max_new_tokens", "min_new_tokens", "block_length", "prefix", "truncation",
    unset=True, samples="num_return_sequences",
)  # fmt: skip
_COLUMNS = {"prompt": "string", "answers": [{"generated_text": "string", "num_tokens": "int64"} | SCORED]}
_FILLED_COLUMNS = {"text": "string", "sequence": "string", "tokens": ["string"]} | SCORED


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb of this module."""
    parser = add_verb(
        verbs,
        "generate",
        run_generate,
        "write answers to prompts, or fill in the masks of texts",
        "Needs a model trained by masked diffusion (the recipes masked_diffusion and diffusion_base); --fill works "
        "with any masked LM. With an empty prompt, the model writes a text of its own.",
        """bert-jax generate runs/write/model "translate: the cat sleeps" --steps 8
           bert-jax generate runs/base/model "" --samples 5 --temperature 0.9 --top-p 0.95 --seed 1
           bert-jax generate runs/base/model "She [MASK] [MASK] [MASK] the door." --fill --live
           bert-jax generate runs/write/model --file prompts.txt --json""",
    )
    add = parser.add_argument
    add("--fill", action="store_true", help="fill in the mask tokens of the texts instead of writing answers")
    _PASSES.declare(parser)
    _UNMASKING.declare(parser)
    add("--forbid", action="append", default=[], metavar="WORD",
        help="a word of one token that must not be generated; repeatable")  # fmt: skip
    add("--gap-lengths", metavar="N,N",
        help="with --fill, numbers of tokens to try for each gap; the text with the best score is printed")  # fmt: skip
    add("--live", action="store_true", help="show the texts after each forward pass; _ marks a token not yet generated")
    answers = parser.add_argument_group("answers (without --fill)")
    _ANSWERS.declare(answers)
    answers.add_argument("--length", metavar="LENGTH",
        help="free = the model ends each answer; a number of tokens; sampled = drawn from training lengths "
        "(default: as the model was trained)")  # fmt: skip
    shards.add_answer_files(parser)
    add_text_flags(parser, "prompt")


def run_generate(args: argparse.Namespace) -> int:
    """Print generated texts."""
    if args.live and args.shards:
        raise InputError("--live: expected no --shards, found both")
    return run_over_texts(args, _generate, _FILLED_COLUMNS if args.fill else _COLUMNS)


def _generate(args: argparse.Namespace) -> None:
    options = _options(args)

    def predict(pipe: Any, prompts: list[str]) -> Any:
        with _live(args.live) as on_pass:
            # Each call gets its own seed, since the random numbers of a prompt depend on its position in the call.
            return pipe(prompts, on_pass=on_pass, **options | {"seed": args.seed + args.counted})

    task = "fill-in" if args.fill else "text-generation"
    for prompt, answers in answers_of(args, task, predict, _PROMPTS_AT_ONCE):
        if args.json:
            args.emit({"text": prompt, **answers} if args.fill else {"prompt": prompt, "answers": answers})
            continue
        text = "sequence" if args.fill else "generated_text"
        rows = [(f"{answer['score']:.3f}", answer[text]) for answer in ([answers] if args.fill else answers)]
        print_table(prompt or "(no prompt)", ("log-probability", "text"), rows)


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the pipeline. Raises InputError when a flag belongs to the other pipeline."""
    options = _PASSES.values(args) | _UNMASKING.values(args) | {"forbidden": tuple(args.forbid)}
    if args.fill:
        for flag in (*_ANSWERS.flags_set(args), *(["--length"] if args.length is not None else [])):
            raise InputError(f"{flag}: expected no --fill, found both")
        return options | ({} if args.gap_lengths is None else {"gap_lengths": _numbers(args.gap_lengths)})
    if args.gap_lengths is not None:
        raise InputError("--gap-lengths: expected --fill too, found none")
    if args.length is not None:
        options["length"] = int(args.length) if args.length.isdigit() else args.length
    return options | _ANSWERS.values(args)


def _numbers(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isdigit() for part in parts):
        raise InputError(f"--gap-lengths: expected numbers such as 1,2,3, found {text!r}")
    return tuple(map(int, parts))


@contextlib.contextmanager
def _live(shown: bool) -> Iterator[Any]:
    """Yield a function that shows texts on stderr, or None without `shown`."""
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:

        def show(texts: list[str]) -> None:
            live.update(Text("\n".join(texts)), refresh=True)

        yield show
