"""Evaluate search: rank the documents of a retrieval set for its queries, and score the rankings."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from bert_jax import storage
from bert_jax.data.retrieval_sets import RetrievalSet, read_retrieval_set
from bert_jax.errors import InputError, logger
from bert_jax.inference import pipeline
from bert_jax.metrics.trec_eval import (
    SEARCH_METRICS,
    Ranking,
    check_search_metrics,
    mean_scores,
    ranking_scores,
    sorted_documents,
)
from bert_jax.tasks.embedding.search.bm25 import BM25Settings
from bert_jax.tasks.embedding.search.fusion import Fusion
from bert_jax.tasks.embedding.search.hybrid import HybridSearch
from bert_jax.tasks.embedding.search.temporary_index import TemporaryIndex

_log = logger(__name__)
# Options of an index with which none is written, as a corpus in memory finds the same.
_NO_INDEX = {"precision": "float32", "rescore_precision": None, "approximate": False}


class Ranked(NamedTuple):
    """The rankings of a retrieval set.

    Attributes:
        rankings: id of a query -> the scores of its documents.
        documents: number of documents in the corpus.
        missing_documents: number of documents that are relevant for a query but not in the corpus.
    """

    rankings: dict[str, Ranking]
    documents: int
    missing_documents: int


def evaluate_search(
    model: storage.PathLike | None,
    data: storage.PathLike,
    *,
    searchers: Sequence[str] = (),
    fusion: Fusion | None = None,
    bm25: BM25Settings | None = None,
    split: str = "test",
    top_k: int = 1000,
    metric_names: Sequence[str] = (),
    reranker: storage.PathLike = "",
    rerank_top_k: int = 100,
    keep_same_id: bool = False,
    run_file: storage.PathLike = "",
    report: storage.PathLike = "",
    batch_size: int | None = None,
    batch_invariant: bool = False,
    dtype: str = "auto",
    kind: str | None = None,
    precision: Literal["float32", "float16", "int8", "binary"] = "float32",
    rescore_precision: Literal["float32", "float16", "int8"] | None = None,
    approximate: bool = False,
    chunking: Any = None,
    **options: Any,
) -> dict[str, float]:
    """Score a model of embeddings, or hybrid search, on a retrieval set.

    Metrics are those of trec_eval (package `pytrec-eval-terrier`), averaged over the queries with judgements: `ndcg@K`,
    `map@K`, `recall@K`, `precision@K`, and `mrr@K`, the reciprocal rank among the first K documents.

    Args:
        model: a model directory; None = none, for searchers without one.
        data: a retrieval set, in the layout of `bert_jax.data.retrieval_sets`.
        searchers: searchers to combine, as for `HybridSearch.open`; empty for the model alone.
        fusion: how the candidates of several searchers are merged; None = the defaults of `Fusion`.
        bm25: settings of the searcher `bm25`; None = the defaults.
        split: split of the judgements.
        top_k: number of documents to rank for each query.
        metric_names: metrics to return; empty for `SEARCH_METRICS`.
        reranker: directory of a cross-encoder that scores the best documents again; "" = none.
        rerank_top_k: number of documents per query that the cross-encoder reads; the others are dropped.
        keep_same_id: whether to keep a document with the id of the query; BEIR drops it unless it is judged relevant
            for the query.
        run_file: file to write the rankings to, in the format of TREC runs; "" = none.
        report: `.html` file to write, with the ranks of relevant documents and the queries that fail; "" = none.
        batch_size: texts in a forward pass; None = chosen for the device.
        batch_invariant: whether a score is bitwise independent of the other texts.
        dtype: dtype of matrix products.
        kind: `sparse` or `multi-vector`, if the model has several kinds of embeddings; None = the kind in its files.
        precision: precision of the vectors of documents, which are written to a temporary index unless it is
            `float32`.
        rescore_precision: precision of further vectors, by which candidates are scored again; None means none.
        approximate: whether to search a graph of the vectors of a temporary index.
        chunking: how documents are cut into chunks, a `dense.chunking.Chunking`; None = not at all.
        options: options of a call of `CorpusSearch`: prompts, `truncate_dim`, `max_active_dims` and
            `rescore_multiplier`.

    Returns:
        The metrics, and the numbers of `queries`, of those without a relevant document, of `documents`, and of relevant
        documents that are not in the corpus; of a temporary index the size of its vectors, `bytes_per_document`.

    Raises:
        InputError: the model, the data or an option does not fit, or the package is not installed.
    """
    names = check_search_metrics(metric_names)
    hybrid = bool(searchers) or model is None
    of_index = {"precision": precision, "rescore_precision": rescore_precision, "approximate": approximate}
    of_index |= {} if chunking is None else {"chunking": chunking}
    if hybrid:
        _check_unset({"kind": kind}, "none with searchers, which name the kind")
        _check_unset({name: value for name, value in of_index.items() if value != _NO_INDEX.get(name)},
                     "none with searchers")  # fmt: skip
    else:
        _check_unset({"fusion": fusion, "bm25": bm25}, "searchers")
    if run_file:
        storage.check_writable(run_file)
    if report:
        from bert_jax.reports import page

        page.check_path(report)
    dataset = read_retrieval_set(data, split)
    if run_file:
        _check_ids(run_file, itertools.chain(dataset.queries, (name for name, _ in dataset.documents())))
    pipeline_options: dict[str, Any] = {"dtype": dtype, "batch_size": batch_size, "batch_invariant": batch_invariant}
    index = None
    if hybrid:
        search: Any = HybridSearch.open(model, searchers, fusion=fusion, bm25=bm25, **pipeline_options)
    else:
        search = pipeline(f"{kind}-search" if kind else "search", model, **pipeline_options)
        index = None if of_index == _NO_INDEX else TemporaryIndex(search, **of_index)
    ranked = rank(search if index is None else index, dataset, top_k, keep_same_id, **options)
    rankings = ranked.rankings
    if reranker:
        cross_encoder = pipeline("rerank", reranker, **pipeline_options)
        rankings = rerank(cross_encoder, dataset, rankings, rerank_top_k)
    if run_file:
        storage.write_atomically(run_file, trec_run(rankings))
    counts = {
        "queries": len(dataset.queries),
        "queries_without_relevant": _without_relevant(dataset),
        "documents": ranked.documents,
        "missing_documents": ranked.missing_documents,
    }
    sizes = {} if index is None else {"bytes_per_document": index.bytes_per_document}
    scores = score_rankings(dataset, rankings, names) | counts | sizes
    if report:
        page.write_page(
            report, page.Heading(str(model), str(data), scores), report_sections(dataset, rankings, names[0])
        )
    return scores


def _check_unset(options: Mapping[str, Any], expected: str) -> None:
    """Raise InputError for the first option that is not None."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name}: expected {expected}, found {value}")


def report_sections(dataset: RetrievalSet, rankings: Mapping[str, Ranking], metric: str) -> list[Any]:
    """Return the sections of a report on rankings, with the queries for which `metric` is lowest."""
    from bert_jax.reports.rankings import ranked_queries, search_sections

    def texts(ids: set[str]) -> dict[str, str]:
        return {name: text for name, text in dataset.documents() if name in ids}

    orders = {query: sorted_documents(ranking) for query, ranking in rankings.items()}
    values = ranking_scores(dataset.judgements, rankings, (metric,))[metric]
    return search_sections(ranked_queries(dataset.judgements, orders, values), metric, dataset.queries, texts)


def rank(search: Any, dataset: RetrievalSet, top_k: int, keep_same_id: bool = False, **options: Any) -> Ranked:
    """Rank the documents of a retrieval set.

    Args:
        search: an object with the method `nearest` of `bert_jax.tasks.embedding.search.pipeline.CorpusSearch`, or a
            `HybridSearch`.
        dataset: the retrieval set.
        top_k: number of documents per query.
        keep_same_id: as for `evaluate_search`.
        options: options of `nearest`.
    """
    ids: list[str] = []

    def texts() -> Any:
        for name, text in dataset.documents():
            ids.append(name)
            yield text

    more = 0 if keep_same_id else 1
    scores, numbers = search.nearest(list(dataset.queries.values()), texts(), top_k + more, **options)
    rankings, same = named_rankings(dataset, ids, scores, numbers, top_k, keep_same_id)
    if same:
        _log.warning(
            "%s: left out the document with the query's id for %d queries, as BEIR does", dataset.directory, same
        )
    relevant = {name for judged in dataset.judgements.values() for name, relevance in judged.items() if relevance > 0}
    if missing := sorted(relevant - {*ids}):
        _log.warning(
            "%s: %d relevant documents, such as %r, are not in the corpus; metrics count them as not found",
            dataset.directory, len(missing), missing[0],
        )  # fmt: skip
    return Ranked(rankings, len(ids), len(missing))


def named_rankings(
    dataset: RetrievalSet,
    ids: Sequence[str],
    scores: np.ndarray,
    numbers: np.ndarray,
    top_k: int,
    keep_same_id: bool = False,
) -> tuple[dict[str, Ranking], int]:
    """Return id of a query -> its ranking, and the number of queries whose ranking had the document of their id.

    Args:
        dataset: the retrieval set, with Q queries.
        ids: the ids of the documents.
        scores: `[Q, top_k + 1]`, the greatest first; fewer columns for a smaller corpus.
        numbers: the documents of the scores, as places in `ids`; -1 = none, where hybrid search finds fewer.
        top_k: number of documents per query.
        keep_same_id: as for `evaluate_search`.
    """
    rankings, same = {}, 0
    for query, row, best in zip(dataset.queries, scores.tolist(), numbers.tolist(), strict=True):
        ranking = {ids[number]: score for number, score in zip(best, row, strict=True) if number >= 0}
        if not keep_same_id and dataset.judgements.get(query, {}).get(query, 0) <= 0:
            same += ranking.pop(query, None) is not None
        rankings[query] = dict(list(ranking.items())[:top_k])
    return rankings, same


def _without_relevant(dataset: RetrievalSet) -> int:
    """Return the number of queries without a relevant document, and warn of them: each of their metrics is 0."""
    count = sum(max(judged.values()) <= 0 for judged in dataset.judgements.values())
    if count:
        _log.warning("%s: %d queries have no relevant document, so their metrics are 0", dataset.directory, count)
    return count


def rerank(reranker: Any, dataset: RetrievalSet, rankings: Mapping[str, Ranking], top_k: int) -> dict[str, Ranking]:
    """Score the first `top_k` documents of each ranking with a cross-encoder.

    Args:
        reranker: a `bert_jax.tasks.reranking.pipeline.Rerank`.
        dataset: the retrieval set.
        rankings: id of a query -> a ranking, best first.
        top_k: number of documents per query.
    """
    if top_k < 1:
        raise InputError(f"rerank_top_k: expected a positive integer, found {top_k}")
    chosen = {query: list(ranking)[:top_k] for query, ranking in rankings.items()}
    to_read = {name for names in chosen.values() for name in names}
    texts = {name: text for name, text in dataset.documents() if name in to_read}
    reranked = {}
    for query, names in chosen.items():
        scores = reranker.relevance([dataset.queries[query]] * len(names), [texts[name] for name in names])
        reranked[query] = {names[i]: float(scores[i]) for i in np.argsort(-scores, kind="stable")}
    return reranked


def score_rankings(
    dataset: RetrievalSet, rankings: Mapping[str, Ranking], metric_names: Sequence[str] = SEARCH_METRICS
) -> dict[str, float]:
    """Return metrics of rankings, as `evaluate_search` does. Raises InputError for an unknown metric."""
    return mean_scores(dataset.judgements, rankings, metric_names)


def trec_run(rankings: Mapping[str, Ranking], tag: str = "bert_jax") -> str:
    """Return rankings as the lines of a TREC run: query, Q0, document, rank from 1, score and tag."""
    return "".join(
        f"{query} Q0 {document} {place} {score:.9g} {tag}\n"
        for query, ranking in rankings.items()
        for place, (document, score) in enumerate(ranking.items(), 1)
    )


def _check_ids(run_file: storage.PathLike, ids: Iterable[str]) -> None:
    """Check that ids are single words, since white space separates the fields and lines of a TREC run."""
    for name in ids:
        if name.split() != [name]:
            raise InputError(f"{run_file}: expected ids without white space for a TREC run, found {name!r}")
