"""The verb `generate`: write texts with a model of masked diffusion, or fill in the masks of texts."""

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

from bert_jax.cli import shards
from bert_jax.cli.ask import add_text_flags, answers_of, run_over_texts
from bert_jax.cli.output import print_table
from bert_jax.cli.verbs import add_verb
from bert_jax.errors import InputError

_PROMPTS_AT_ONCE = 256  # prompts that one call of a pipeline takes
_ORDERS = ("confidence", "entropy", "margin", "random", "left-to-right")
# Option -> whether it is for --fill; otherwise it is for answers.
_OF_FILLING = {"gap_lengths": True, "max_new_tokens": False, "samples": False, "block_length": False, "length": False,
               "min_new_tokens": False, "prefix": False, "truncation": False}  # fmt: skip


def add_verbs(verbs: Any) -> None:
    """Declare the verbs of this module."""
    parser = add_verb(
        verbs,
        "generate",
        run_generate,
        "write answers to prompts, or fill in the masks of texts",
        "Needs a model trained by masked diffusion (the recipes masked_diffusion and diffusion_base); --fill works "
        "with any masked LM. For an empty prompt, the model writes a text without one.",
        """bert-jax generate runs/write/model "translate: the cat sleeps" --steps 8
           bert-jax generate runs/base/model "" --samples 5 --temperature 0.9 --top-p 0.95 --seed 1
           bert-jax generate runs/base/model "She [MASK] [MASK] [MASK] the door." --fill --live
           bert-jax generate runs/write/model --file prompts.txt --json""",
    )
    shards.add_answer_files(parser)
    add_text_flags(parser, "prompt")
    add = parser.add_argument
    add("--fill", action="store_true", help="fill in the mask tokens of the texts instead of writing answers")
    add("--steps", type=int, default=0, metavar="N",
        help="forward passes (default: half as many as tokens)")  # fmt: skip
    add("--order", choices=_ORDERS, default="confidence",
        help="which predicted tokens a pass keeps: those of the highest probability (the default), of the lowest "
        "entropy, of the largest margin to the second token, random ones, or the leftmost")  # fmt: skip
    add("--temperature", type=float, default=0.0, metavar="T",
        help="temperature of the distribution from which tokens are drawn (default: 0 = the likeliest)")  # fmt: skip
    add("--top-k", type=int, default=0, metavar="K", help="draw among the K likeliest tokens (default: all)")
    add("--top-p", type=float, default=1.0, metavar="P",
        help="draw among the likeliest tokens that have probability P together (default: 1)")  # fmt: skip
    add("--remasking", type=float, default=0.0, metavar="SHARE",
        help="share of the kept tokens, the least probable, that each pass masks again (default: 0)")  # fmt: skip
    add("--seed", type=int, default=0, metavar="N", help="seed of the random numbers (default: 0)")
    add("--forbid", action="append", default=[], metavar="WORD", help="a word, of one token, not to write; repeatable")
    add("--max-new-tokens", type=int, metavar="N",
        help="most tokens of an answer (default: as in the model's training, else 64)")  # fmt: skip
    add("--min-new-tokens", type=int, metavar="N", help="fewest tokens of an answer")
    add("--length", metavar="LENGTH",
        help="free = the model ends an answer; a number of tokens; sampled = as in the model's training (default: "
        "as the model was trained)")  # fmt: skip
    add("--block-length", type=int, metavar="N",
        help="fill blocks of N tokens from left to right (default: all tokens together)")  # fmt: skip
    add("--prefix", metavar="TEXT", help="beginning of each answer")
    add("--samples", type=int, metavar="N", help="answers to each prompt (default: 1)")
    add("--truncation", action="store_true", default=None, help="cut prompts that leave no room for an answer")
    add("--gap-lengths", metavar="N,N",
        help="with --fill, numbers of tokens to try for each gap; the text with the best score is printed")  # fmt: skip
    add("--live", action="store_true", help="show the texts after each forward pass, where _ is a token to come")


def run_generate(args: argparse.Namespace) -> int:
    """Print generated texts."""
    if args.live and args.shards:
        raise InputError("--live: expected no --shards, found it")
    return run_over_texts(args, "generate", _generate)


def _generate(args: argparse.Namespace) -> None:
    options = _options(args)

    def ask(pipe: Any, prompts: list[str]) -> Any:
        with _live(args.live) as on_pass:
            # Another seed for each call, since the random numbers of a prompt depend on its place in the call.
            return pipe(prompts, on_pass=on_pass, seed=args.seed + args.counted, **options)

    task = "fill-in" if args.fill else "text-generation"
    for prompt, found in answers_of(args, task, ask, _PROMPTS_AT_ONCE):
        if args.json:
            args.emit({"text": prompt, **found} if args.fill else {"prompt": prompt, "answers": found})
            continue
        text = "sequence" if args.fill else "generated_text"
        rows = [(f"{answer['score']:.3f}", answer[text]) for answer in ([found] if args.fill else found)]
        print_table(prompt or "(no prompt)", ("log-probability", "text"), rows)


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the pipeline. Raises InputError where one is for the other pipeline."""
    given = {name: value for name in _OF_FILLING if (value := getattr(args, name)) is not None}
    for name in given:
        if _OF_FILLING[name] != args.fill:
            expected = "--fill too" if _OF_FILLING[name] else "no --fill"
            raise InputError(
                f"--{name.replace('_', '-')}: expected {expected}, found {'none' if not args.fill else 'it'}"
            )
    if "samples" in given:
        given["num_return_sequences"] = given.pop("samples")
    if "length" in given and given["length"].isdigit():
        given["length"] = int(given["length"])
    if "gap_lengths" in given:
        parts = given["gap_lengths"].split(",")
        if not all(part.isdigit() for part in parts):
            raise InputError(f"--gap-lengths: expected numbers such as 1,2,3, found {given['gap_lengths']!r}")
        given["gap_lengths"] = tuple(map(int, parts))
    names = ("steps", "order", "temperature", "top_k", "top_p", "remasking")
    return given | {name: getattr(args, name) for name in names} | {"forbidden": tuple(args.forbid)}


@contextlib.contextmanager
def _live(shown: bool) -> Iterator[Any]:
    """Yield a function that shows texts on stderr, or None."""
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
