"""The verb `score`: sentences scored and ranked by a masked language model."""

import argparse
from typing import Any

from bert_jax.cli import shards
from bert_jax.cli.ask import add_text_flags, answers_of, run_over_texts
from bert_jax.cli.output import print_table
from bert_jax.cli.verbs import add_verb

# Value of --sort -> field of an answer, and whether the greatest comes first.
_ORDERS = {"score": ("score", True), "perplexity": ("pseudo_perplexity", False)}


def add_verbs(verbs: Any) -> None:
    """Declare the verb of this module."""
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
        help="order of the texts: the highest score first, the lowest pseudo-perplexity first, or that of the input "
        "(default: by score; with --json and --shards none). All but none hold every text in memory")  # fmt: skip
    score.add_argument("--within-word", choices=("all", "left-to-right"), default="all",
        help="tokens of its own word that a masked token sees: all others, or those to its left (default: "
        "%(default)s)")  # fmt: skip
    score.add_argument("--tokens", action="store_true", help="show the score of each token too")
    shards.add_answer_files(score)
    add_text_flags(score)


def run_score(args: argparse.Namespace) -> int:
    """Print the pseudo-log-likelihood of each text."""
    return run_over_texts(args, "score", _score)


def _score(args: argparse.Namespace) -> None:
    def ask(pipe: Any, texts: list[str]) -> list[dict[str, Any]]:
        return pipe(texts, within_word=args.within_word, tokens=args.tokens)

    answers: Any = ({"text": text} | answer for text, answer in answers_of(args, "pseudo-log-likelihood", ask))
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
