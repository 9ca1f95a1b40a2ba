"""The verb `rerank`: rank the texts of a corpus for a query with a cross-encoder."""

import argparse
from collections.abc import Iterator
from typing import Any

from bert_jax.cli import answer_tables, shards
from bert_jax.cli.ranking import add_corpus, corpus_texts, print_ranking, prompt_options, ranking_pipeline
from bert_jax.cli.verbs import Verbs, add_batching, add_dtype, add_prompts, add_verb
from bert_jax.errors import InputError

_COLUMNS = {"query": "string", "answers": [{"corpus_id": "int64", "text": "string"} | answer_tables.SCORED]}


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb of this module."""
    rerank = add_verb(
        verbs,
        "rerank",
        run_rerank,
        "rank the texts of a file by relevance to a query",
        "A cross-encoder reads each text together with each query, which is slower than `bert-jax search` and more "
        "accurate. With --shards, each row has a query and a list of texts.",
        """bert-jax rerank runs/relevance/model "how do cats sleep?" --corpus found.txt
           bert-jax rerank runs/relevance/model --shards found/ --out ranked/""",
    )
    rerank.add_argument("model", metavar="MODEL", help="a model directory")
    rerank.add_argument("texts", metavar="QUERY", nargs="*", help="text to search for")
    add_corpus(rerank)
    rerank.add_argument("--top-k", type=int, default=10, metavar="K", help="texts per query (default: %(default)s)")
    rerank.add_argument("--json", action="store_true", help="print JSON lines instead of tables")
    add_prompts(rerank, "queries")
    rerank.add_argument("--query-field", default="query", metavar="NAME",
        help="with --shards: field or column of the query (default: %(default)s)")  # fmt: skip
    rerank.add_argument("--texts-field", default="texts", metavar="NAME",
        help="with --shards: field or column of the list of texts (default: %(default)s)")  # fmt: skip
    shards.add_answer_files(rerank)
    rerank.add_argument("--skip", action="store_true", help="with --shards: skip invalid rows and report each")
    add_batching(rerank)
    add_dtype(rerank)
    shards.add_shards(rerank, "rows with a query and its texts: JSON lines or Parquet")


def run_rerank(args: argparse.Namespace) -> int:
    """Print the most relevant texts for each query, or write them for each row of the files of --shards."""
    has_options = bool(args.texts), args.corpus is not None
    if any(has_options) if args.shards else not all(has_options):
        raise InputError("rerank: expected QUERY and --corpus FILE, or --shards FILES without them")
    if shards.is_over_shards(args, "out", "format"):
        return _rerank_shards(args)
    rerank = ranking_pipeline(args, "rerank")
    for query in args.texts:
        corpus = corpus_texts(args.corpus, args.text_column)
        print_ranking(args, query, rerank(query, corpus, top_k=args.top_k, **prompt_options(args)))
    return 0


def _rerank_shards(args: argparse.Namespace) -> int:
    """Write the most relevant texts for each row of each file."""
    rerank = ranking_pipeline(args, "rerank", device="all")
    rerank.use_every_length()  # so that answers do not depend on which files this process has read before

    def answer(shard: shards.ShardFiles) -> int:
        shard.out.parent.mkdir(parents=True, exist_ok=True)
        count = 0
        with answer_tables.open_answers(shard.out, _COLUMNS) as write:
            for query, texts in _queries(args, str(shard.source)):
                answers = rerank(query, texts, top_k=args.top_k, **prompt_options(args)) if texts else []
                write({"query": query, "answers": answers})
                count += 1
        return count

    return shards.over_shards(args, f".{args.format or 'jsonl'}", answer)


def _queries(args: argparse.Namespace, source: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the query and the texts of each row of a file.

    Raises:
        InputError: a row is invalid; with `--skip`, it is reported and left out.
    """
    from bert_jax.data.invalid_rows import InvalidRow, InvalidRows
    from bert_jax.data.json_files import json_objects

    def query_and_texts(row: tuple[int, str, dict[str, Any]]) -> tuple[str, list[str]]:
        _, where, values = row
        query, texts = values.get(args.query_field), values.get(args.texts_field)
        if isinstance(query, str) and isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            return query, texts
        expected = f"expected a text in {args.query_field!r} and a list of texts in {args.texts_field!r}"
        raise InvalidRow(f"{where}: {expected}, found {values!r:.80}", "no query or no texts")

    bad = InvalidRows(source, "skip" if args.skip else "strict", skipping="--skip")
    return bad.fitting(bad.each(json_objects(source, bad), query_and_texts))
