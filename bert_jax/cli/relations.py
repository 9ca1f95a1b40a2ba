"""The verb `relations`: the entities of texts and the relations between them."""

import argparse
from typing import Any

from bert_jax.cli import shards
from bert_jax.cli.ask import add_text_flags, answers_of, run_over_texts
from bert_jax.cli.output import print_table
from bert_jax.cli.verbs import add_verb


def add_verbs(verbs: Any) -> None:
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
    relations.set_defaults(tagging=None)


def run_relations(args: argparse.Namespace) -> int:
    """Print the triples of each text."""
    return run_over_texts(args, "relations", _relations)


def _relations(args: argparse.Namespace) -> None:
    def ask(pipe: Any, texts: list[str]) -> Any:
        if args.tagging is None:
            args.tagging = _open_tagger(args)
        return pipe(texts, tagger=args.tagging)

    for text, triples in answers_of(args, "relation-extraction", ask):
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

    if args.labels is None:
        task, options = "token-classification", {"aggregation_strategy": "first"}
    else:
        task, options = "zero-shot-ner", {"labels": args.labels}
    device = "all" if args.shards or args.file else None
    tagging = pipeline(
        task, args.tagger, args.dtype, args.batch_size, device=device, batch_invariant=args.batch_invariant, **options
    )
    if args.shards:
        tagging.use_every_length()
    return tagging
