"""The verbs `fill-mask` and `score`: predict masked tokens, and score sentences, with a masked language model."""

import argparse
from typing import Any

from bert_jax.cli import shards
from bert_jax.cli.answer_tables import SCORED, SPAN, AnswerColumns
from bert_jax.cli.output import print_table
from bert_jax.cli.over_texts import add_text_flags, answers_of, run_over_texts
from bert_jax.cli.signatures import ParameterFlags
from bert_jax.cli.verbs import Verbs, add_verb

_FILL_MASK = ParameterFlags("bert_jax.tasks.pretraining.fill_mask.FillMask.__call__", "top_k")
_SCORE = ParameterFlags("bert_jax.tasks.pretraining.likelihood.PseudoLogLikelihood.__call__", "within_word", "tokens")
# Value of --sort -> field of an answer, and whether the greatest comes first.
_ORDERS = {"score": ("score", True), "perplexity": ("pseudo_perplexity", False)}
_FILLED_TOKEN = SCORED | {"token": "int64", "token_str": "string", "sequence": "string"}
_SCORES = {"text": "string"} | SCORED | {"num_tokens": "int64", "pseudo_perplexity": "double"}
_SCORED_TOKEN = {"word": "string", "token": "int64"} | SCORED | SPAN


def add_verbs(verbs: Verbs) -> None:
    """Declare the verbs of this module."""
    fill = add_verb(
        verbs,
        "fill-mask",
        run_fill_mask,
        "predict the masked tokens of a text",
        "Each text contains the model's mask token ([MASK] for BERT) once or more.",
        'bert-jax fill-mask runs/base/model "Paris is the [MASK] of France."',
    )
    _FILL_MASK.declare(fill)
    score = add_verb(
        verbs,
        "score",
        run_score,
        "score and rank sentences by their pseudo-log-likelihood",
        "Masks each token in turn and sums the log probabilities of the true tokens (Salazar et al. 2020): the higher "
        "the score, the more likely the sentence is to the masked LM.",
        """bert-jax score path/to/bert "the cat sat on the tree" "the cat sat on the the"
           bert-jax score path/to/bert --file sentences.txt --json --sort perplexity
           bert-jax score path/to/bert "a souvenir" --within-word left-to-right --tokens""",
    )
    score.add_argument("--sort", choices=(*_ORDERS, "none"),
        help="order of the texts: score = highest first, perplexity = lowest first, none = as in the input (default: "
        "score; with --json and --shards none). score and perplexity hold every text in memory")  # fmt: skip
    _SCORE.declare(score)
    for parser in (fill, score):
        shards.add_answer_files(parser)
        add_text_flags(parser)


def run_fill_mask(args: argparse.Namespace) -> int:
    """Print the most likely tokens for each [MASK]."""
    return run_over_texts(args, _fill_mask, {"text": "string", "masks": [[_FILLED_TOKEN]]})


def _fill_mask(args: argparse.Namespace) -> None:
    for text, blanks in answers_of(args, "fill-mask", lambda pipe, texts: pipe(texts, **_FILL_MASK.values(args))):
        blanks = blanks if isinstance(blanks[0], list) else [blanks]
        if args.json:
            args.emit({"text": text, "masks": blanks})
            continue
        for number, answers in enumerate(blanks, 1):
            title = text if len(blanks) == 1 else f"{text}  (blank {number})"
            rows = [(f"{answer['score']:.1%}", answer["token_str"], answer["sequence"]) for answer in answers]
            print_table(title, ("probability", "token", "text"), rows)


def run_score(args: argparse.Namespace) -> int:
    """Print the pseudo-log-likelihood of each text."""
    columns: AnswerColumns = _SCORES | ({"tokens": [_SCORED_TOKEN]} if args.tokens else {})
    return run_over_texts(args, _score, columns)


def _score(args: argparse.Namespace) -> None:
    def predict(pipe: Any, texts: list[str]) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = pipe(texts, **_SCORE.values(args))
        return answers

    answers: Any = ({"text": text} | answer for text, answer in answers_of(args, "pseudo-log-likelihood", predict))
    sort = args.sort or ("none" if args.json else "score")
    if sort != "none":
        field, greatest = _ORDERS[sort]
        answers = sorted(answers, key=lambda answer: answer[field], reverse=greatest)
    if args.json:
        for answer in answers:
            args.emit(answer)
    elif args.tokens:
        for answer in answers:
            rows = [
                (f"{token['score']:.4f}", token["word"], f"{token['start']}-{token['end']}")
                for token in answer["tokens"]
            ]
            print_table(f"{_line(answer)}  {answer['text']}", ("score", "token", "characters"), rows)
    else:
        rows = [
            (f"{a['score']:.4f}", f"{a['num_tokens']:,}", f"{a['pseudo_perplexity']:.2f}", a["text"]) for a in answers
        ]
        print_table("pseudo-log-likelihoods", ("score", "tokens", "pseudo-perplexity", "text"), rows)


def _line(answer: dict[str, Any]) -> str:
    return f"score {answer['score']:.4f}, pseudo-perplexity {answer['pseudo_perplexity']:.2f}"
