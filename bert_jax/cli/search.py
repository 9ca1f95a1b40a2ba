"""The verbs `similarity`, `search`, `index` and `rerank`: compare texts, and rank the texts of a corpus for a query."""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from bert_jax.cli import answer_tables, shards
from bert_jax.cli.output import print_json, print_scores, print_table, say
from bert_jax.cli.vectors import vector_sizes
from bert_jax.cli.verbs import add_batching, add_dtype, add_kind, add_prompts, add_vector_sizes, add_verb
from bert_jax.errors import InputError


def add_verbs(verbs: Any) -> None:
    """Declare the verbs of this module."""
    similarity = add_verb(
        verbs,
        "similarity",
        run_similarity,
        "compute the similarity of two texts",
        "Prints the cosine of their embeddings, from -1 to 1, or the similarity function set in the model's files "
        "(dot product or a negative distance).",
        'bert-jax similarity all-MiniLM-L6-v2/ "a cat on a mat" "a kitten on a rug"',
    )
    search = add_verb(
        verbs,
        "search",
        run_search,
        "find the texts of a file that are most similar to a query",
        "Compares the embedding of the query with that of every text in the file, by cosine or by the similarity "
        "function set in the model's files. The file may be larger than memory.",
        """bert-jax search all-MiniLM-L6-v2/ "how do cats sleep?" "tax law" --corpus documents.txt --top-k 3
           bert-jax search all-MiniLM-L6-v2/ "how do cats sleep?" --corpus pages.jsonl.gz --text-column body --json
           bert-jax search splade/ "how do cats sleep?" --index index""",
    )
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
    index = add_verb(
        verbs,
        "index",
        run_index,
        "write an index of the texts of a file, for search",
        "Embeds each text once. `bert-jax search --index DIR` then finds the texts that are most similar to a query, "
        "exactly, with the index mapped into memory: vectors of sentence embeddings, an inverted index of sparse "
        "embeddings, or the vectors of tokens with centroids that bound them.",
        """bert-jax index splade/ --corpus documents.txt --max-active-dims 256 --out index
           bert-jax index colbert/ --corpus pages.jsonl.gz --text-column body --precision int8 --out pages_index""",
    )
    scored = add_verb(
        verbs,
        "evaluate-search",
        run_evaluate_search,
        "evaluate search on a retrieval set",
        "Ranks the documents of a retrieval set for its queries, and prints the metrics of trec_eval. The directory is "
        "in the layout of BEIR: corpus.jsonl, queries.jsonl and qrels/test.tsv, or the Parquet files of the Hugging "
        "Face hub. Needs `pip install 'bert-jax[retrieval]'`.",
        """bert-jax evaluate-search all-MiniLM-L6-v2/ --data scifact/
           bert-jax evaluate-search all-MiniLM-L6-v2/ --data scifact/ --reranker runs/relevance/model --run-file run.txt
           bert-jax evaluate-search all-MiniLM-L6-v2/ --data nfcorpus/ --split dev --metrics ndcg@10,recall@1000""",
    )
    for parser in (similarity, search, rerank, scored, index):
        parser.add_argument("model", metavar="MODEL", help="a model directory")
        add_dtype(parser)
        if parser is not rerank:
            add_vector_sizes(parser)
    add_prompts(index)
    index.add_argument("--out", required=True, metavar="DIR", help="a new directory for the index")
    index.add_argument("--precision", choices=("float32", "float16", "int8"), default="float32",
        help="precision of the vectors of tokens; int8: of their differences from centroids (default: "
             "%(default)s)")  # fmt: skip
    index.add_argument("--centroids", type=int, metavar="N",
        help="number of centroids of the vectors of tokens (default: about 4 times the root of their "
             "number)")  # fmt: skip
    for parser in (similarity, search, rerank, scored):
        parser.add_argument("--json", action="store_true", help="print JSON lines instead of tables")
        add_prompts(parser, "texts" if parser is similarity else "queries")
    for parser in (search, scored, index):
        add_kind(parser)
    for name, what in (("--corpus-prompt-name", "NAME"), ("--corpus-prompt", "TEXT")):
        for parser in (search, scored):
            words = f"like {name.replace('-corpus', '')}, for the texts of the corpus"
            parser.add_argument(name, metavar=what, help=words)
    similarity.add_argument("first", metavar="A", help="a text")
    similarity.add_argument("second", metavar="B", help="another text")
    search.add_argument("texts", metavar="QUERY", nargs="+", help="text to search for")
    _add_rerank_flags(rerank)
    search.add_argument("--index", metavar="DIR", help="index of a corpus, as `bert-jax index` writes it")
    for parser in (search, rerank, index):
        add = parser.add_argument
        add("--corpus", required=parser is index, metavar="FILE",
            help="file with one text per line, or a table; may be compressed")  # fmt: skip
        add("--text-column", default="", metavar="NAME",
            help="column of the texts; required if FILE is a table: .tsv, .csv, .jsonl or tfds:NAME")  # fmt: skip
        if parser is not index:
            add("--top-k", type=int, default=10, metavar="K", help="texts per query (default: %(default)s)")
        add_batching(parser)
    add = scored.add_argument
    add("--data", required=True, metavar="DIR", help="directory of a retrieval set")
    add("--split", default="test", metavar="NAME", help="split of the judgements (default: %(default)s)")
    add("--metrics", default="", metavar="NAME[,NAME]",
        help="metrics to print: ndcg@K, mrr@K, map@K, recall@K, precision@K (default: "
             "ndcg@10,mrr@10,map@100,recall@100)")  # fmt: skip
    add("--top-k", type=int, default=1000, metavar="K", help="documents to rank for each query (default: %(default)s)")
    add("--reranker", default="", metavar="DIR", help="cross-encoder that scores the best documents again")
    add("--rerank-top-k", type=int, default=100, metavar="K",
        help="documents per query that the cross-encoder reads (default: %(default)s)")  # fmt: skip
    add("--keep-same-id", action="store_true",
        help="rank documents with the id of the query though they are not relevant; BEIR leaves them out")  # fmt: skip
    add("--run-file", default="", metavar="FILE", help="file for the rankings, in the format of TREC runs")
    add_batching(scored)


def _add_rerank_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("texts", metavar="QUERY", nargs="*", help="text to search for")
    parser.add_argument("--query-field", default="query", metavar="NAME",
        help="with --shards: field or column of the query (default: %(default)s)")  # fmt: skip
    parser.add_argument("--texts-field", default="texts", metavar="NAME",
        help="with --shards: field or column of the list of texts (default: %(default)s)")  # fmt: skip
    shards.add_answer_files(parser)
    parser.add_argument("--skip", action="store_true", help="with --shards: skip invalid rows and report each")
    shards.add_shards(parser, "rows with a query and its texts: JSON lines or Parquet")


def run_similarity(args: argparse.Namespace) -> None:
    """Print the similarity of two texts."""
    from bert_jax.inference import pipeline
    from bert_jax.inference.scoring import short

    compare = pipeline("similarity", args.model, args.dtype)
    score = compare(args.first, args.second, **_options(args), **vector_sizes(args, compare.head))
    found = {"texts": [args.first, args.second], "score": short(score)}
    print(json.dumps(found) if args.json else f"{score:.4f}")


def run_search(args: argparse.Namespace) -> None:
    """Print the most similar texts for each query."""
    if (args.corpus is None) == (args.index is None):
        raise InputError("search: expected a corpus, as --corpus FILE or as --index DIR")
    search = _pipeline(args, f"{args.kind}-search" if args.kind else "search")
    options = _options(args, "corpus_prompt_name", "corpus_prompt") | vector_sizes(args, search.head)
    if args.index is not None:
        for name in ("truncate_dim", "max_active_dims", "corpus_prompt_name", "corpus_prompt"):
            if getattr(args, name) is not None:
                raise InputError(
                    f"--{name.replace('_', '-')}: expected none with --index, which has its own, found one"
                )
        search.open_index(args.index)
    found = search(
        args.texts,
        corpus=None if args.index else corpus_texts(args.corpus, args.text_column),
        top_k=args.top_k,
        **options,
    )
    for query, answers in zip(args.texts, found, strict=True):
        _show(args, query, answers)


def run_index(args: argparse.Namespace) -> None:
    """Write an index of the texts of a file."""
    check_counts(args, "batch_size", "centroids")
    search = _pipeline(args, f"{args.kind}-search" if args.kind else "search")
    options = _options(args) | vector_sizes(args, search.head)
    count = search.write_index(
        corpus_texts(args.corpus, args.text_column),
        args.out,
        precision=args.precision,
        centroids=args.centroids,
        **options,
    )
    say(f"{args.out}: index of {count:,} texts")


def run_rerank(args: argparse.Namespace) -> int:
    """Print the most relevant texts for each query, or write those of each row of each file of --shards."""
    given = bool(args.texts), args.corpus is not None
    if any(given) if args.shards else not all(given):
        raise InputError("rerank: expected QUERY and --corpus FILE, or --shards FILES without them")
    if shards.is_over_shards(args, "out", "format"):
        return _rerank_shards(args)
    rerank = _pipeline(args, "rerank")
    for query in args.texts:
        corpus = corpus_texts(args.corpus, args.text_column)
        _show(args, query, rerank(query, corpus, top_k=args.top_k, **_options(args)))
    return 0


def _rerank_shards(args: argparse.Namespace) -> int:
    """Write the most relevant texts for each row of each file."""
    rerank = _pipeline(args, "rerank", device="all")
    rerank.use_every_length()  # so that answers do not depend on which files this process has read before

    def answer(shard: shards.ShardFiles) -> int:
        shard.out.parent.mkdir(parents=True, exist_ok=True)
        count = 0
        with answer_tables.open_answers(shard.out, answer_tables.answer_columns("rerank", args)) as write:
            for query, texts in _queries(args, str(shard.source)):
                answers = rerank(query, texts, top_k=args.top_k, **_options(args)) if texts else []
                write({"query": query, "answers": answers})
                count += 1
        return count

    return shards.over_shards(args, f".{args.format or 'jsonl'}", answer)


def _queries(args: argparse.Namespace, source: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the query and the texts of each row of a file.

    Raises:
        InputError: a row has another form; with `--skip`, it is reported and left out.
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


def run_evaluate_search(args: argparse.Namespace) -> None:
    """Print the metrics of a model on a retrieval set."""
    check_counts(args, "top_k", "rerank_top_k", "batch_size")
    from bert_jax.evaluation.search import evaluate_search

    given = (
        "split", "top_k", "reranker", "rerank_top_k", "keep_same_id", "run_file", "batch_size", "batch_invariant",
        "dtype", "kind",
    )  # fmt: skip
    scores = evaluate_search(
        args.model,
        args.data,
        metric_names=tuple(args.metrics.split(",")) if args.metrics else (),
        **{name: getattr(args, name) for name in given},
        **_options(args, "truncate_dim", "max_active_dims", "corpus_prompt_name", "corpus_prompt"),
    )
    print_scores(scores, f"{args.model} on {args.data}", args.json)


def _options(args: argparse.Namespace, *more: str) -> dict[str, Any]:
    return {name: getattr(args, name) for name in ("prompt_name", "prompt", *more)}


def _pipeline(args: argparse.Namespace, task: str, device: str | None = None) -> Any:
    check_counts(args, *(name for name in ("top_k", "batch_size") if hasattr(args, name)))
    from bert_jax.inference import pipeline

    return pipeline(task, args.model, args.dtype, args.batch_size, device=device, batch_invariant=args.batch_invariant)


def check_counts(args: argparse.Namespace, *names: str) -> None:
    """Raise InputError when an option that is given is no positive integer."""
    for name in names:
        value = getattr(args, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')}: expected a positive integer, found {value}")


def corpus_texts(corpus: str, column: str = "") -> Iterator[str]:
    """Yield the texts of a file: its lines, or a column of a table."""
    from bert_jax.data.finetuning.tables import Columns, read_examples
    from bert_jax.data.lines import read_lines

    if column:
        return (row.text for row in read_examples(corpus, Columns(column)))
    return read_lines(corpus)


def _show(args: argparse.Namespace, query: str, answers: list[dict[str, Any]]) -> None:
    if args.json:
        from bert_jax.inference.scoring import short

        print_json({"query": query, "answers": [answer | {"score": short(answer["score"])} for answer in answers]})
    else:
        rows = [(f"{answer['score']:.4f}", str(answer["corpus_id"]), answer["text"]) for answer in answers]
        print_table(query, ("score", "number", "text"), rows)
