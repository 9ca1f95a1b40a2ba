"""The verb `tag`: find the entities of texts."""

import argparse
from typing import Any

from bert_jax.cli import shards
from bert_jax.cli.answer_tables import SCORED, SPAN, AnswerColumns
from bert_jax.cli.output import print_table
from bert_jax.cli.over_texts import add_text_flags, answers_of, run_over_texts
from bert_jax.cli.verbs import Verbs, add_verb
from bert_jax.errors import InputError


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb of this module."""
    tag = add_verb(
        verbs,
        "tag",
        run_tag,
        "find the entities in texts with a fine-tuned model",
        "Finds whatever the model was trained to tag: entities, parts of speech. For files of tokenized sentences "
        "(CoNLL), see `bert-jax predict`.",
        """bert-jax tag runs/conll2003/model "Angela Merkel met Barack Obama in Berlin."
           bert-jax tag runs/conll2003/model --file articles.txt --json
           bert-jax tag path/to/gliner "Angela Merkel met Barack Obama in Berlin." --labels person,city""",
    )
    tag.add_argument("--strategy", default="first", metavar="NAME",
                     help="how to merge tokens into entities, like aggregation_strategy in transformers: none, "
                     "simple, first (the default), average or max")  # fmt: skip
    # Not ParameterFlags, since these are for the pipeline of another task, which may be absent.
    tag.add_argument("--labels", metavar="NAME,NAME",
        help="zero-shot: types of entities to find; needs a GLiNER")  # fmt: skip
    tag.add_argument("--threshold", type=float, default=0.5, metavar="P",
        help="zero-shot: probability above which a span is an entity (default: %(default)s)")  # fmt: skip
    tag.add_argument("--nested", action="store_true", help="zero-shot: allow entities inside others")
    tag.add_argument("--multi-label", action="store_true", help="zero-shot: allow several types for an entity")
    shards.add_answer_files(tag)
    add_text_flags(tag)


def run_tag(args: argparse.Namespace) -> int:
    """Print the entities of each text and their character ranges."""
    return run_over_texts(args, _tag, _columns(args))


def _columns(args: argparse.Namespace) -> AnswerColumns:
    if args.labels is not None:
        entity = {"label": "string", "text": "string"}
    elif args.strategy == "none":
        entity = {"entity": "string", "word": "string", "index": "int64"}
    else:
        entity = {"entity_group": "string", "word": "string"}
    return {"text": "string", "entities": [entity | SCORED | SPAN]}


def _tag(args: argparse.Namespace) -> None:
    def trained(pipe: Any, texts: list[str]) -> Any:
        return pipe(texts, aggregation_strategy=args.strategy)

    def zero_shot(pipe: Any, texts: list[str]) -> Any:
        return pipe(texts, args.labels, args.threshold, not args.nested, args.multi_label)

    if args.labels is None and (args.nested or args.multi_label):
        raise InputError("--labels: expected types of entities with --nested and --multi-label, found none")
    task, predict = ("token-classification", trained) if args.labels is None else ("zero-shot-ner", zero_shot)
    for text, entities in answers_of(args, task, predict):
        if args.json:
            args.emit({"text": text, "entities": entities})
            continue
        rows = [
            (answer.get("label") or answer.get("entity_group") or answer["entity"], f"{answer['score']:.4f}",
             answer.get("text") or answer["word"], f"{answer['start']}-{answer['end']}")
            for answer in entities
        ]  # fmt: skip
        print_table(text, ("entity", "score", "text", "characters"), rows)
