"""The verb `mine-negatives`: write a table of hard negatives for training."""

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bert_jax.cli.output import say
from bert_jax.cli.ranking import corpus_texts
from bert_jax.cli.signatures import ParameterFlags
from bert_jax.cli.verbs import (
    Verbs,
    add_batching,
    add_dtype,
    add_prompts,
    add_truncate_dim,
    add_verb,
    check_counts,
)
from bert_jax.errors import InputError, printable_json

if TYPE_CHECKING:
    from bert_jax.tasks.embedding.hard_negatives import MinedNegatives

_OPTIONS = ParameterFlags(
    "bert_jax.tasks.embedding.hard_negatives.MiningOptions",
    "num_negatives", "range_min", "range_max", "max_score", "min_score", "absolute_margin", "relative_margin",
    "sampling", "seed", "reranker_scale",
)  # fmt: skip


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb `mine-negatives`."""
    mine = add_verb(
        verbs,
        "mine-negatives",
        run_mine,
        "mine hard negatives for training",
        "For each query, finds passages that a model of sentence embeddings finds similar to it, without the passages "
        "that are known to answer it. Writes rows of query, positive, negative and margin (the score of the positive "
        "minus that of the negative), which the losses in_batch_negatives, triplet and margin_mse learn from. With "
        "--format labeled-list, rows of query, passages, labels and scores. Scores of a reranker are its logits.",
        """bert-jax mine-negatives all-MiniLM-L6-v2/ --data questions.jsonl --corpus passages.txt --out triplets.jsonl
           bert-jax mine-negatives all-MiniLM-L6-v2/ --data questions.jsonl --out triplets.jsonl \\
             --relative-margin 0.05 --range-min 5 --sampling random
           bert-jax mine-negatives all-MiniLM-L6-v2/ --data pairs.tsv --query-column a --positive-column b \\
             --out scored.jsonl --num-negatives 7 --reranker runs/relevance/model --format labeled-list""",
    )
    add = mine.add_argument
    add("model", metavar="MODEL", help="a model directory")
    add("--data", required=True, metavar="FILE", help="table of queries, each with a passage that answers it")
    add("--out", required=True, metavar="FILE", help="a new .jsonl file")
    add("--query-column", default="query", metavar="NAME", help="column of the queries (default: %(default)s)")
    add("--positive-column", default="positive", metavar="NAME", help="column of the passages (default: %(default)s)")
    add("--corpus", default="", metavar="FILE",
        help="further passages to mine from: one per line, or a table (default: only those of --data)")  # fmt: skip
    add("--corpus-column", default="", metavar="NAME",
        help="column of the passages of the corpus; required if it is a table")  # fmt: skip
    add("--format", choices=("triplet", "n-tuple", "labeled-list", "labeled-pair"), default="triplet",
        help="triplet = a row for each negative; n-tuple = a row for each pair with enough negatives; labeled-list = a "
        "row for each pair with lists of passages, labels and scores; labeled-pair = a row for each passage, with its "
        "label and score (default: %(default)s)")  # fmt: skip
    _OPTIONS.declare(mine)
    add(
        "--reranker",
        default="",
        metavar="DIR",
        help="cross-encoder whose scores replace those of the model; rows have its logits",
    )
    add_prompts(mine, "queries")
    for name, what in (("--corpus-prompt-name", "NAME"), ("--corpus-prompt", "TEXT")):
        add(name, metavar=what, help=f"like {name.replace('-corpus', '')}, for the passages")
    add_truncate_dim(mine)
    add_batching(mine)
    add_dtype(mine)


def run_mine(args: argparse.Namespace) -> None:
    """Write the table, and print the number of its rows."""
    check_counts(args, "num_negatives", "range_max", "batch_size", "truncate_dim")
    from bert_jax import storage
    from bert_jax.data.finetuning.columns import Columns
    from bert_jax.inference import pipeline
    from bert_jax.tasks.embedding.hard_negatives import MiningOptions, mine_hard_negatives
    from bert_jax.tasks.embedding.text_pairs import read_pairs

    if not args.out.endswith(".jsonl"):
        raise InputError(f"--out: expected a file named .jsonl, found {args.out}")
    options = MiningOptions(**_OPTIONS.values(args))
    storage.check_writable(args.out)
    names = (args.query_column, args.positive_column)
    rows = read_pairs(args.data, Columns(*names, roles={"text": "query", "pair": "positive"}))
    options_of_model = {"dtype": args.dtype, "batch_size": args.batch_size, "batch_invariant": args.batch_invariant}
    mined = mine_hard_negatives(
        pipeline("search", args.model, **options_of_model),
        [(row[names[0]], row[names[1]]) for _, row in rows],
        corpus_texts(args.corpus, args.corpus_column) if args.corpus else (),
        options,
        reranker=pipeline("rerank", args.reranker, **options_of_model) if args.reranker else None,
        **{
            name: getattr(args, name)
            for name in ("prompt_name", "prompt", "corpus_prompt_name", "corpus_prompt", "truncate_dim")
        },
    )
    lines = [printable_json(row) for row in _rows(mined, names, args)]
    if not lines:
        raise InputError(f"{args.data}: expected negatives within the range, score limits and margins, found none")
    storage.write_atomically(args.out, "".join(f"{line}\n" for line in lines))
    few = sum(len(row.negatives) < args.num_negatives for row in mined)
    say(f"{args.out}: {len(lines):,} rows from {len(mined):,} pairs, of which {few:,} have fewer than "
        f"{args.num_negatives} negatives")  # fmt: skip


def _rows(
    mined: "Sequence[MinedNegatives]", names: tuple[str, str], args: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    from bert_jax.inference.scoring import short
    from bert_jax.tasks.embedding.hard_negatives import labelled_lists, labelled_pairs, triplets

    query_name, positive_name = names
    match args.format:
        case "triplet":
            for query, passage, negative, margin in triplets(mined):
                yield {query_name: query, positive_name: passage, "negative": negative, "margin": short(margin)}
        case "labeled-list":
            for query, passages, scores in labelled_lists(mined):
                labels = [1] + [0] * (len(passages) - 1)
                yield {query_name: query, "passages": passages, "labels": labels, "scores": [short(x) for x in scores]}
        case "labeled-pair":
            for query, passage, label, score in labelled_pairs(mined):
                yield {query_name: query, "passage": passage, "label": label, "score": short(score)}
        case _:
            for row in mined:
                if len(row.negatives) == args.num_negatives:
                    negatives = {f"negative_{number}": text for number, text in enumerate(row.negatives, 1)}
                    yield {query_name: row.query, positive_name: row.positive, **negatives}
