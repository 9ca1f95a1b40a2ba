"""Flags of `search`, `index` and `evaluate-search` for several searchers, and what they print of hybrid search."""

import argparse
from typing import TYPE_CHECKING, Any

from bert_jax.cli.output import print_json, print_table
from bert_jax.cli.signatures import ParameterFlags
from bert_jax.errors import InputError

if TYPE_CHECKING:
    from bert_jax.tasks.embedding.search.bm25 import BM25Settings
    from bert_jax.tasks.embedding.search.fusion import Fusion
    from bert_jax.tasks.embedding.search.hybrid import HybridSearch

_HERE = "bert_jax.tasks.embedding.search"
_FUSION = ParameterFlags(
    f"{_HERE}.fusion.Fusion", "fusion", "weights", "normalization", "rrf_k", "candidates", unset=True
)
_BM25 = ParameterFlags(f"{_HERE}.bm25.BM25Settings", "stemmer", unset=True, bm25_k1="k1", bm25_b="b")
_RERANKER = ParameterFlags(f"{_HERE}.hybrid.HybridSearch.open", "reranker", "rerank_top_k", unset=True)
_NO_MODEL = "bm25"


def add_searchers(parser: Any, fusion: bool = True, reranker: bool = False) -> None:
    """Declare `--with` and the flags of the searchers, of fusion, and of the reranker."""
    parser.add_argument("--with", dest="searchers", type=lambda text: text.split(","), metavar="NAME[,NAME]",
        help="searchers to combine: bm25; dense, sparse or multi-vector, a kind of MODEL; the directory of another "
             "model (default: MODEL alone, or the searchers of the index)")  # fmt: skip
    _BM25.declare(parser)
    if fusion:
        _FUSION.declare(parser)
    if reranker:
        _RERANKER.declare(parser)


def uses_hybrid_search(args: argparse.Namespace) -> bool:
    """Return whether the flags or the index of `search` or `index` need `HybridSearch`.

    Raises:
        InputError: a flag needs `--with`, or does not fit it.
    """
    if getattr(args, "rerank_top_k", None) is not None and not args.reranker:
        raise InputError("--rerank-top-k: expected --reranker, found none")
    return bool(names_searchers(args) or _indexed(args) or getattr(args, "reranker", None))


def names_searchers(args: argparse.Namespace) -> bool:
    """Return whether `--with` or `bm25` in place of MODEL chooses searchers.

    Raises:
        InputError: a flag needs them, or does not fit them.
    """
    if args.searchers or args.model == _NO_MODEL:
        if args.kind is not None:
            raise InputError(f"--kind: expected none with --with or bm25, which name the kind, found {args.kind}")
        return True
    groups = (_BM25, _FUSION) if hasattr(args, "fusion") else (_BM25,)
    if (unused := [flag for group in groups for flag in group.flags_set(args)]) and not _indexed(args):
        raise InputError(f"{unused[0]}: expected --with, or bm25 in place of MODEL, found neither")
    return False


def model_of(args: argparse.Namespace) -> str | None:
    """Return the model directory, None for `bm25` in its place."""
    return None if args.model == _NO_MODEL else args.model


def evaluation_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of `evaluate_search` for several searchers, {} if the flags choose none."""
    if not names_searchers(args):
        return {}
    return {"searchers": args.searchers or [args.model], "fusion": _fusion_of(args), "bm25": _bm25_of(args)}


def open_hybrid_search(args: argparse.Namespace) -> "HybridSearch":
    """Return the searchers of the flags, without a corpus."""
    from bert_jax.tasks.embedding.search.hybrid import HybridSearch
    from bert_jax.tasks.embedding.search.searchers import SEARCHERS

    model, searchers = model_of(args), args.searchers
    if searchers is None and model is not None and args.kind is None:
        searchers = _indexed(args)
        if others := [name for name in searchers if name not in SEARCHERS]:
            raise InputError(f"--with: expected the directory of {others[0]}, which {args.index} has, found none")
    if not searchers:  # the model alone, or `bm25` alone
        model, searchers = (model, [args.kind]) if args.kind else (None, [args.model])
    return HybridSearch.open(
        model,
        searchers,
        fusion=_fusion_of(args) if hasattr(args, "fusion") else None,
        bm25=_bm25_of(args),
        **(_RERANKER.values(args) if hasattr(args, "reranker") else {}),
        dtype=args.dtype,
        batch_size=args.batch_size,
        batch_invariant=args.batch_invariant,
    )


def print_steps(args: argparse.Namespace, query: str, answers: list[dict[str, Any]]) -> None:
    """Print the texts that were found for a query, best first, with the score and rank of each step."""
    from bert_jax.inference.scoring import short

    if args.json:
        rows = [
            answer
            | {"score": short(answer["score"])}
            | {"steps": {name: step | {"score": short(step["score"])} for name, step in answer["steps"].items()}}
            for answer in answers
        ]
        print_json({"query": query, "answers": rows})
        return
    names = list(dict.fromkeys(name for answer in answers for name in answer["steps"]))
    rows = [
        (f"{answer['score']:.4f}", str(answer["corpus_id"]), *(_cell(answer, name) for name in names), answer["text"])
        for answer in answers
    ]
    print_table(query, ("score", "number", *(f"{name} (rank)" for name in names), "text"), rows)


def _fusion_of(args: argparse.Namespace) -> "Fusion | None":
    """Return the fusion of the flags, None if none of them is set."""
    from bert_jax.tasks.embedding.search.fusion import Fusion

    values = _FUSION.values(args)
    return Fusion(**values) if values else None


def _bm25_of(args: argparse.Namespace) -> "BM25Settings | None":
    """Return the settings of BM25 of the flags, None if none of them is set."""
    from bert_jax.tasks.embedding.search.bm25 import BM25Settings

    values = _BM25.values(args)
    return BM25Settings(**values) if values else None


def _cell(answer: dict[str, Any], name: str) -> str:
    step = answer["steps"].get(name)
    return f"{step['score']:.4f} ({step['rank']})" if step else ""


def _indexed(args: argparse.Namespace) -> list[str]:
    """Return the searchers of the index of the flags, [] if it is that of one model, or there is none."""
    if getattr(args, "index", None) is None:
        return []
    from bert_jax.tasks.embedding.search.hybrid import indexed_searchers

    return indexed_searchers(args.index)
