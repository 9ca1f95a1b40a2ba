"""The verbs `similarity`, `search`, `index` and `evaluate-search`: compare texts, and search a corpus for a query."""

import argparse
import itertools
import json
from typing import Any

from bert_jax.cli.output import print_scores, say
from bert_jax.cli.ranking import add_corpus, corpus_rows, corpus_texts, print_ranking, prompt_options, ranking_pipeline
from bert_jax.cli.signatures import ParameterFlags
from bert_jax.cli.verbs import (
    Verbs,
    add_batching,
    add_dtype,
    add_kind,
    add_prompts,
    add_vector_sizes,
    add_verb,
    check_counts,
)
from bert_jax.errors import InputError
from bert_jax.tasks.embedding.search import hybrid_verb
from bert_jax.tasks.embedding.vector_files import add_calibration_vectors, calibration_vectors
from bert_jax.tasks.embedding.verb import CHUNKING

_SIZES = ("truncate_dim", "max_active_dims")
_SEARCH = ParameterFlags(
    "bert_jax.tasks.embedding.search.corpus_search.CorpusSearch.__call__", "top_k", "rescore_multiplier"
)
_INDEX = ParameterFlags(
    "bert_jax.tasks.embedding.search.index_writing.IndexWriting.write_index",
    "precision", "rescore_precision", "centroids", "approximate", unset=True,
)  # fmt: skip
_EVALUATION = ParameterFlags(
    "bert_jax.tasks.embedding.search.evaluation.evaluate_search",
    "split", "top_k", "reranker", "rerank_top_k", "keep_same_id", "run_file", "report", "precision",
    "rescore_precision", "approximate",
)  # fmt: skip


def add_verbs(verbs: Verbs) -> None:
    """Declare the verbs of this module."""
    similarity = add_verb(
        verbs,
        "similarity",
        run_similarity,
        "compute the similarity of two texts",
        "Prints the cosine of the texts' embeddings, from -1 to 1, or the similarity function set in the model's files "
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
           bert-jax search splade/ "how do cats sleep?" --index index
           bert-jax search all-MiniLM-L6-v2/ "how do cats sleep?" --with bm25,dense --corpus documents.txt
           bert-jax search bm25 "how do cats sleep?" --corpus documents.txt --reranker runs/relevance/model""",
    )
    index = add_verb(
        verbs,
        "index",
        run_index,
        "write an index of the texts of a file, for search",
        "Embeds each text once. `bert-jax search --index DIR` then finds the texts that are most similar to a query, "
        "exactly, with the index mapped into memory. It holds sentence embeddings, an inverted index of sparse "
        "embeddings, or vectors of tokens with centroids that bound the scores. With --update, adds texts to an index "
        "and deletes others, without embedding again those that it keeps.",
        """bert-jax index splade/ --corpus documents.txt --max-active-dims 256 --out index
           bert-jax index colbert/ --corpus pages.jsonl.gz --text-column body --precision int8 --out pages_index
           bert-jax index all-MiniLM-L6-v2/ --corpus pages.jsonl --text-column body --id-column url --out pages_index
           bert-jax index all-MiniLM-L6-v2/ --update pages_index --corpus new.jsonl --text-column body --id-column url
           bert-jax index all-MiniLM-L6-v2/ --update pages_index --delete https://example.org/old
           bert-jax index all-MiniLM-L6-v2/ --with bm25,dense,splade/ --corpus documents.txt --out index""",
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
           bert-jax evaluate-search all-MiniLM-L6-v2/ --data nfcorpus/ --split dev --metrics ndcg@10,recall@1000
           bert-jax evaluate-search all-MiniLM-L6-v2/ --data scifact/ --with bm25,dense --fusion rrf""",
    )
    for parser in (similarity, search, scored, index):
        without = "" if parser is similarity else "; bm25 = none, for search by BM25"
        parser.add_argument("model", metavar="MODEL", help=f"a model directory{without}")
        add_dtype(parser)
        add_vector_sizes(parser)
    _add_index_flags(index)
    for parser in (index, scored):
        CHUNKING.declare(parser)
    scored.add_argument("--rescore-multiplier", type=int, metavar="N",
        help="candidates per document to rank that are scored again; 0 = none (default: 2)")  # fmt: skip
    for parser in (similarity, search, scored):
        parser.add_argument("--json", action="store_true", help="print JSON lines instead of tables")
        add_prompts(parser, "texts" if parser is similarity else "queries")
    for parser in (search, scored, index):
        add_kind(parser)
        hybrid_verb.add_searchers(parser, fusion=parser is not index, reranker=parser is search)
    for name, what in (("--corpus-prompt-name", "NAME"), ("--corpus-prompt", "TEXT")):
        for parser in (search, scored):
            words = f"like {name.replace('-corpus', '')}, for the texts of the corpus"
            parser.add_argument(name, metavar=what, help=words)
    similarity.add_argument("first", metavar="A", help="a text")
    similarity.add_argument("second", metavar="B", help="another text")
    search.add_argument("texts", metavar="QUERY", nargs="+", help="text to search for")
    search.add_argument("--index", metavar="DIR", help="index of a corpus, written by `bert-jax index`")
    add_corpus(search)
    _SEARCH.declare(search)
    add_batching(search)
    add_corpus(index)
    add_batching(index)
    scored.add_argument("--data", required=True, metavar="DIR", help="directory of a retrieval set")
    scored.add_argument("--metrics", default="", metavar="NAME[,NAME]",
        help="metrics to print: ndcg@K, mrr@K, map@K, recall@K, precision@K (default: "
             "ndcg@10,mrr@10,map@100,recall@100)")  # fmt: skip
    _EVALUATION.declare(scored)
    add_batching(scored)


def _add_index_flags(index: Any) -> None:
    """Declare the flags of an index: where it is written or changed, and how its vectors are stored."""
    add_prompts(index)
    index.add_argument("--out", metavar="DIR", help="a new directory for the index")
    index.add_argument("--update", metavar="DIR",
        help="an index to add texts to, and to delete texts from; new texts have its options")  # fmt: skip
    index.add_argument("--id-column", default="", metavar="NAME",
        help="column of unique ids of the texts; with --update, a text replaces that with its id")  # fmt: skip
    index.add_argument("--delete", nargs="+", default=[], metavar="ID",
        help="with --update: ids of texts to delete, or numbers if the index has no ids")  # fmt: skip
    index.add_argument("--delete-file", metavar="FILE", help="with --update: file with an id per line, to delete")
    index.add_argument("--compact", action="store_true",
        help="with --update: remove deleted texts from the files now, not when they are more than half")  # fmt: skip
    _INDEX.declare(index)
    add_calibration_vectors(index)


def run_similarity(args: argparse.Namespace) -> None:
    """Print the similarity of two texts."""
    from bert_jax.inference import pipeline
    from bert_jax.inference.scoring import short

    compare = pipeline("similarity", args.model, args.dtype)
    score = compare(args.first, args.second, **prompt_options(args, *_SIZES))
    answer = {"texts": [args.first, args.second], "score": short(score)}
    print(json.dumps(answer) if args.json else f"{score:.4f}")


def run_search(args: argparse.Namespace) -> None:
    """Print the most similar texts for each query."""
    if (args.corpus is None) == (args.index is None):
        raise InputError("search: expected a corpus, as --corpus FILE or as --index DIR")
    hybrid = hybrid_verb.uses_hybrid_search(args)
    search = _searcher(args, hybrid)
    of_corpus = (*_SIZES, "corpus_prompt_name", "corpus_prompt")
    if args.index is not None:
        for name in of_corpus:
            if getattr(args, name) is not None:
                raise InputError(
                    f"--{name.replace('_', '-')}: expected none with --index, which has its own, found one"
                )
        search.open_index(args.index)
    rankings = search(
        args.texts,
        corpus=None if args.index else corpus_texts(args.corpus, args.text_column),
        **_SEARCH.values(args),
        **prompt_options(args, *of_corpus),
    )
    for query, answers in zip(args.texts, rankings, strict=True):
        (hybrid_verb.print_steps if hybrid else print_ranking)(args, query, answers)


def _searcher(args: argparse.Namespace, hybrid: bool) -> Any:
    """Return a search pipeline of the model, or a `HybridSearch`."""
    if hybrid:
        check_counts(args, *(name for name in ("top_k", "batch_size") if hasattr(args, name)))
        return hybrid_verb.open_hybrid_search(args)
    return ranking_pipeline(args, f"{args.kind}-search" if args.kind else "search")


def run_index(args: argparse.Namespace) -> None:
    """Write an index of the texts of a file."""
    check_counts(args, "batch_size", "centroids", "chunk_tokens")
    _check_index(args)
    hybrid = hybrid_verb.uses_hybrid_search(args)
    if hybrid:
        _check_hybrid_index(args)
    search = _searcher(args, hybrid)
    if args.update is not None:
        _update_index(args, search)
        return
    texts, ids = _texts_and_ids(args)
    options = prompt_options(args, *_SIZES) | _INDEX.values(args)
    if not hybrid:
        options |= {"ids": ids, "chunking": _chunking(args), "calibration": calibration_vectors(args)}
    count = search.write_index(texts, args.out, **options)
    say(f"{args.out}: index of {count:,} texts")


def _update_index(args: argparse.Namespace, search: Any) -> None:
    """Add the texts of a file to an index, and delete others."""
    texts, ids = (None, None) if args.corpus is None else _texts_and_ids(args)
    delete = [*args.delete, *([] if args.delete_file is None else corpus_texts(args.delete_file))]
    changes = search.update_index(args.update, texts, ids=ids, delete=delete, compact=args.compact)
    counts = ", ".join(f"{getattr(changes, name):,} {name}" for name in ("added", "replaced", "deleted"))
    say(f"{args.update}: {counts}; index of {changes.texts:,} texts{', compacted' if changes.compacted else ''}")


def _check_index(args: argparse.Namespace) -> None:
    """Raise InputError when flags of a new index are set with --update, or the other way round."""
    if (args.out is None) == (args.update is None):
        raise InputError("index: expected a new index, as --out DIR, or an index to change, as --update DIR")
    if args.update is not None:
        fixed = [f"--{name.replace('_', '-')}" for name in ("prompt", "prompt_name", "calibration", *_SIZES)
                 if getattr(args, name) is not None]  # fmt: skip
        if flags := [*fixed, *_INDEX.flags_set(args), *CHUNKING.flags_set(args)]:
            raise InputError(f"{flags[0]}: expected none with --update, as the index has its own, found one")
        if args.corpus is None and not (args.delete or args.delete_file or args.compact):
            raise InputError("--update: expected --corpus, --delete, --delete-file or --compact, found none")
        return
    if args.corpus is None:
        raise InputError("index: expected a corpus, as --corpus FILE, found none")
    for name in ("delete", "delete_file", "compact"):
        if getattr(args, name):
            raise InputError(f"--{name.replace('_', '-')}: expected --update with it, found --out")


def _check_hybrid_index(args: argparse.Namespace) -> None:
    """Raise InputError for flags that an index of several searchers does not have."""
    flags = [f"--{name.replace('_', '-')}" for name in ("update", "id_column", "calibration") if getattr(args, name)]
    if flags := [*flags, *CHUNKING.flags_set(args)]:
        raise InputError(f"{flags[0]}: expected none with several searchers, found one")


def _texts_and_ids(args: argparse.Namespace) -> tuple[Any, Any]:
    """Return the texts of the corpus, and their ids if there is a column of these, else None."""
    if not args.id_column:
        return corpus_texts(args.corpus, args.text_column), None
    texts, ids = itertools.tee(corpus_rows(args.corpus, args.text_column, args.id_column))
    return (text for text, _ in texts), (text_id for _, text_id in ids)


def _chunking(args: argparse.Namespace) -> Any:
    """Return the `Chunking` of the flags; None = no flag is set."""
    from bert_jax.tasks.embedding.dense.chunking import Chunking

    values = CHUNKING.values(args)
    return Chunking(**values) if values else None


def run_evaluate_search(args: argparse.Namespace) -> None:
    """Print the metrics of a model on a retrieval set."""
    check_counts(args, "top_k", "rerank_top_k", "batch_size", "chunk_tokens")
    from bert_jax.tasks.embedding.search.evaluation import evaluate_search

    chunking = _chunking(args)
    of_model = ("batch_size", "batch_invariant", "dtype", "kind")
    scores = evaluate_search(
        hybrid_verb.model_of(args),
        args.data,
        metric_names=tuple(args.metrics.split(",")) if args.metrics else (),
        **hybrid_verb.evaluation_options(args),
        **_EVALUATION.values(args),
        **{name: getattr(args, name) for name in of_model},
        **({} if chunking is None else {"chunking": chunking}),
        **prompt_options(args, *_SIZES, "corpus_prompt_name", "corpus_prompt", "rescore_multiplier"),
    )
    print_scores(scores, f"{args.model} on {args.data}", args.json)
