"""Shared by verbs that rank the texts of a corpus for queries: their arguments, and the printed answers."""

import argparse
from collections.abc import Iterator
from typing import Any

from bert_jax.cli.output import print_json, print_table
from bert_jax.cli.verbs import check_counts
from bert_jax.errors import InputError


def add_corpus(parser: Any, required: bool = False) -> None:
    """Declare `--corpus` and `--text-column`."""
    parser.add_argument("--corpus", required=required, metavar="FILE",
        help="file with one text per line, or a table; may be compressed")  # fmt: skip
    parser.add_argument("--text-column", default="", metavar="NAME",
        help="column of the texts; required if FILE is a table: .tsv, .csv, .jsonl or tfds:NAME")  # fmt: skip


def corpus_texts(corpus: str, column: str = "") -> Iterator[str]:
    """Yield the texts of a file: its lines, or a column of a table."""
    from bert_jax.data.finetuning.tables import Columns, read_examples
    from bert_jax.data.lines import read_lines

    if column:
        return (row.text for row in read_examples(corpus, Columns(column)))
    return read_lines(corpus)


def corpus_rows(corpus: str, text_column: str, id_column: str) -> Iterator[tuple[str, str]]:
    """Yield the text and the id of each row of a table. Raises InputError when a column is not named."""
    from bert_jax.data.finetuning.tables import Columns, read_examples

    if not text_column:
        raise InputError("--id-column: expected --text-column with it, as the columns of one table, found none")
    return ((row.text, row.label or "") for row in read_examples(corpus, Columns(text_column, label=id_column)))


def prompt_options(args: argparse.Namespace, *more: str) -> dict[str, Any]:
    """Return the pipeline options `prompt_name`, `prompt` and `more` from the flags of the same names."""
    return {name: getattr(args, name) for name in ("prompt_name", "prompt", *more)}


def ranking_pipeline(args: argparse.Namespace, task: str, device: str | None = None) -> Any:
    """Return a pipeline with the options of `add_batching` and `add_dtype`."""
    check_counts(args, *(name for name in ("top_k", "batch_size") if hasattr(args, name)))
    from bert_jax.inference import pipeline

    return pipeline(task, args.model, args.dtype, args.batch_size, device=device, batch_invariant=args.batch_invariant)


def print_ranking(args: argparse.Namespace, query: str, answers: list[dict[str, Any]]) -> None:
    """Print the texts that were found for a query, best first."""
    if args.json:
        from bert_jax.inference.scoring import short

        print_json({"query": query, "answers": [answer | {"score": short(answer["score"])} for answer in answers]})
    else:
        # An answer from an index may have an id, and the best chunk of the text.
        rows = [(f"{answer['score']:.4f}", str(answer.get("id", answer["corpus_id"])),
                 answer.get("chunk", answer["text"])) for answer in answers]  # fmt: skip
        named = "id" if any("id" in answer for answer in answers) else "number"
        print_table(query, ("score", named, "text"), rows)
