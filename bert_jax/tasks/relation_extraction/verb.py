"""The verb `relations`: find the entities of texts and the relations between them."""

import argparse
import functools
from typing import Any

from bert_jax.cli import shards
from bert_jax.cli.answer_tables import SCORED, SPAN
from bert_jax.cli.output import print_table
from bert_jax.cli.over_texts import add_text_flags, answers_of, run_over_texts
from bert_jax.cli.verbs import Verbs, add_verb

_ENTITY = {"text": "string", "type": "string"} | SPAN
_COLUMNS = {"text": "string", "relations": [{"head": _ENTITY, "relation": "string", "tail": _ENTITY} | SCORED]}


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb of this module."""
    relations = add_verb(
        verbs,
        "relations",
        run_relations,
        "find the relations between the entities of texts",
        "A tagger finds the entities, and the model classifies each ordered pair of them. For files whose entities are "
        "known (TACRED, DocRED), see `bert-jax predict`.",
        """bert-jax relations runs/tacred/model "Merkel met Obama in Berlin." --tagger runs/conll2003/model
           bert-jax relations runs/tacred/model --file articles.txt --json --tagger path/to/gliner \\
               --labels person,city""",
    )
    relations.add_argument("--tagger", required=True, metavar="DIR",
        help="model directory of a tagger, which finds the entities: token classification, or a GLiNER with "
        "--labels")  # fmt: skip
    relations.add_argument("--labels", metavar="NAME,NAME", help="types of entities that a GLiNER finds")
    shards.add_answer_files(relations)
    add_text_flags(relations)


def run_relations(args: argparse.Namespace) -> int:
    """Print the triples of each text."""
    args.open_tagger = functools.cache(lambda: _open_tagger(args))  # opened once for all files of --shards
    return run_over_texts(args, _relations, _COLUMNS)


def _relations(args: argparse.Namespace) -> None:
    def predict(pipe: Any, texts: list[str]) -> Any:
        return pipe(texts, tagger=args.open_tagger())

    for text, triples in answers_of(args, "relation-extraction", predict):
        if args.json:
            args.emit({"text": text, "relations": triples})
            continue
        rows = [
            (triple["head"]["text"], triple["relation"], triple["tail"]["text"], f"{triple['score']:.4f}")
            for triple in triples
        ]
        print_table(text, ("head", "relation", "tail", "score"), rows)


def _open_tagger(args: argparse.Namespace) -> Any:
    from bert_jax.inference import pipeline

    options: dict[str, Any]
    if args.labels is None:
        task, options = "token-classification", {"aggregation_strategy": "first"}
    else:
        task, options = "zero-shot-ner", {"labels": args.labels}
    options |= {"device": "all" if args.shards or args.file else None, "batch_invariant": args.batch_invariant}
    tagger = pipeline(task, args.tagger, args.dtype, args.batch_size, **options)
    if args.shards:
        tagger.use_every_length()
    return tagger
