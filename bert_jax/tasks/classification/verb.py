"""The verb `classify`: classify texts into the model's or into given classes."""

import argparse
from typing import Any

from bert_jax.cli import shards
from bert_jax.cli.answer_tables import SCORED
from bert_jax.cli.output import print_table
from bert_jax.cli.over_texts import add_text_flags, answers_of, run_over_texts
from bert_jax.cli.signatures import ParameterFlags
from bert_jax.cli.verbs import Verbs, add_verb
from bert_jax.errors import InputError

_WINDOWS = ParameterFlags(
    "bert_jax.tasks.classification.pipeline.TextClassification.__call__", "doc_stride", max_seq_length="max_length"
)
_TEMPLATE = ParameterFlags(
    "bert_jax.tasks.classification.zero_shot.ZeroShotClassification.__call__", template="hypothesis_template"
)
_COLUMNS = {"text": "string", "scores": [{"label": "string"} | SCORED]}


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb of this module."""
    classify = add_verb(
        verbs,
        "classify",
        run_classify,
        "classify texts with a fine-tuned model",
        "For tables with columns, see `bert-jax predict`.",
        """bert-jax classify runs/sst2/model "a gripping, funny film" "two hours lost"
           cat reviews.txt | bert-jax classify runs/sst2/model --json
           bert-jax classify runs/mnli/model "the match ended in a draw" --labels sport,politics""",
    )
    classify.add_argument("--long-texts", choices=("cut", "windows"),
        help="what to do with texts over the model's limit: cut them, or average the logits of overlapping windows "
        "(default: an error)")  # fmt: skip
    _WINDOWS.declare(classify.add_argument_group("windows (--long-texts windows)"))
    zero_shot = classify.add_argument_group("zero-shot classification")
    zero_shot.add_argument("--labels", metavar="NAME,NAME",
        help="classes to choose from; needs an entailment (NLI) model")  # fmt: skip
    _TEMPLATE.declare(zero_shot)
    shards.add_answer_files(classify)
    add_text_flags(classify)


def run_classify(args: argparse.Namespace) -> int:
    """Print the classes of each text, the most likely first."""
    return run_over_texts(args, _classify, _COLUMNS)


def _classify(args: argparse.Namespace) -> None:
    def zero_shot(pipe: Any, texts: list[str]) -> list[list[dict[str, Any]]]:
        answers = pipe(texts, args.labels, **_TEMPLATE.values(args))
        return [
            [{"label": label, "score": score} for label, score in zip(answer["labels"], answer["scores"], strict=True)]
            for answer in answers
        ]

    def trained(pipe: Any, texts: list[str]) -> list[list[dict[str, Any]]]:
        long_text_options = {"truncation": args.long_texts == "cut", "windows": args.long_texts == "windows"}
        answers: list[list[dict[str, Any]]] = pipe(texts, top_k=None, **long_text_options, **_WINDOWS.values(args))
        return answers

    if args.labels and args.long_texts:
        raise InputError("--long-texts: expected none with --labels, which classifies pairs of texts, found both")
    task, predict = ("zero-shot-classification", zero_shot) if args.labels else ("text-classification", trained)
    for text, scores in answers_of(args, task, predict):
        if args.json:
            from bert_jax.inference.scoring import short

            rounded = [{"label": score["label"], "score": short(score["score"])} for score in scores]
            args.emit({"text": text, "scores": rounded})
        else:
            print_table(text, ("label", "score"), [(score["label"], f"{score['score']:.4f}") for score in scores])
