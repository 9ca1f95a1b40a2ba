"""The verb `evaluate-reranking`: how a model ranks relevant documents before others."""

import argparse

from bert_jax.cli.output import print_scores
from bert_jax.cli.ranking import prompt_options
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


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb of this module."""
    scored = add_verb(
        verbs,
        "evaluate-reranking",
        run_evaluate_reranking,
        "evaluate how a model ranks relevant documents before others",
        "Reads rows with a query, `positive` (relevant documents) and `negative` (other documents), each a text or a "
        "list of texts. The model may be one of embeddings of any kind, or a cross-encoder.",
        """bert-jax evaluate-reranking all-MiniLM-L6-v2/ --data questions.jsonl
           bert-jax evaluate-reranking runs/reranker/model --data questions.jsonl --metrics map,ndcg@5""",
    )
    scored.add_argument("model", metavar="MODEL", help="a model directory")
    scored.add_argument("--data", required=True, metavar="FILE", help="file of rows: .jsonl, .json or .parquet")
    scored.add_argument("--metrics", default="", metavar="NAME[,NAME]",
        help="metrics to print: map, mrr, ndcg, or with a cutoff as ndcg@10 (default: map,mrr@10,ndcg@10)")  # fmt: skip
    scored.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    add_prompts(scored, "queries")
    for name, what in (("--corpus-prompt-name", "NAME"), ("--corpus-prompt", "TEXT")):
        scored.add_argument(name, metavar=what, help=f"like {name.replace('-corpus', '')}, for the documents")
    add_vector_sizes(scored)
    add_kind(scored)
    add_batching(scored)
    add_dtype(scored)


def run_evaluate_reranking(args: argparse.Namespace) -> None:
    """Print the metrics of a model on rows of a query, relevant documents, and others."""
    check_counts(args, "batch_size")
    from bert_jax.tasks.embedding.search.reranking_sets import evaluate_reranking

    scores = evaluate_reranking(
        args.model,
        args.data,
        metric_names=tuple(args.metrics.split(",")) if args.metrics else (),
        **{name: getattr(args, name) for name in ("batch_size", "batch_invariant", "dtype", "kind")},
        **prompt_options(args, "truncate_dim", "max_active_dims", "corpus_prompt_name", "corpus_prompt"),
    )
    print_scores(scores, f"{args.model} on {args.data}", args.json)
