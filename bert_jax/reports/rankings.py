"""Reports of search: how far the relevant documents are from the top, and the queries that fail."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.reports import figures
from bert_jax.reports.measures import WORST
from bert_jax.reports.page import Section, html_table, joined, note, picture, shortened, tagged, text_cell

_BEFORE = 3  # number of documents that are shown of those before the relevant one
_SHOWN = 300  # characters shown of a document
_EDGES = (1, 2, 4, 11, 101, 1001)  # first ranks of the rows of the table of ranks


class RankedQuery(NamedTuple):
    """A query, its ranking, and the relevant document that is ranked highest.

    Attributes:
        query: the id of the query.
        ranking: the ids of its documents, the best first.
        relevant: the id of the relevant document: the highest in the ranking or, if it has none, the most relevant.
        rank: the rank of that document, from 1; None = it is not in the ranking.
        score: the value of a metric for the query.
    """

    query: str
    ranking: Sequence[str]
    relevant: str
    rank: int | None
    score: float


def ranked_queries(
    judgements: Mapping[str, Mapping[str, int]], rankings: Mapping[str, Sequence[str]], scores: Mapping[str, float]
) -> list[RankedQuery]:
    """Return each query that has a relevant document, the worst first: by score, then by rank.

    Args:
        judgements: id of a query -> id of a document -> its relevance, 1 or more if it is relevant.
        rankings: id of a query -> ids of documents, the best first.
        scores: id of a query -> the value of a metric, higher is better.
    """
    ranked = []
    for query, ranking in rankings.items():
        relevant = {name: value for name, value in judgements.get(query, {}).items() if value > 0}
        if not relevant:
            continue
        rank = next((place for place, name in enumerate(ranking, 1) if name in relevant), None)
        best = ranking[rank - 1] if rank else max(relevant, key=lambda name: relevant[name])
        ranked.append(RankedQuery(query, ranking, best, rank, scores[query]))
    return sorted(ranked, key=lambda each: (each.score, -(each.rank or np.inf)))


def search_sections(
    ranked: Sequence[RankedQuery], metric: str, queries: Mapping[str, str], texts: Callable[[set[str]], dict[str, str]]
) -> list[Section]:
    """Return the sections of a report on search.

    Args:
        ranked: as from `ranked_queries`.
        metric: the name of the metric of their scores.
        queries: id -> text of each query.
        texts: function from ids of documents to the texts of those that exist.
    """
    failed = [each for each in ranked if each.score < 1][:WORST]
    shown = {name for each in failed for name in (each.relevant, *_before(each))}
    documents = texts(shown) if shown else {}
    values = np.array([each.score for each in ranked])
    drawn = figures.histogram({"queries": values}, metric, np.linspace(0, 1, 21))
    parts = [
        note("The rank is that of the first relevant document; queries without a relevant document are left out."),
        html_table("ranks", ["rank", "queries", "share"], _ranks([each.rank for each in ranked])),
        picture(drawn, f"histogram of {metric}"),
    ]
    return [Section("Ranks", joined(parts)), _failed(failed, len(ranked), metric, queries, documents)]


def _ranks(ranks: Sequence[int | None]) -> Iterable[list[Any]]:
    """Yield the rows of the table of ranks: a range, the number of queries in it, and their share."""
    found = np.array([rank for rank in ranks if rank is not None], int)
    for first, after in zip(_EDGES, (*_EDGES[1:], None), strict=True):
        inside = int(((found >= first) & (found < after if after else True)).sum())
        if after == first + 1:
            yield [str(first), inside, inside / max(len(ranks), 1)]
        elif after or inside:
            yield [f"{first} to {after - 1}" if after else f"from {first}", inside, inside / max(len(ranks), 1)]
    yield ["not ranked", len(ranks) - len(found), (len(ranks) - len(found)) / max(len(ranks), 1)]


def _before(each: RankedQuery) -> Sequence[str]:
    """Return the ids of the first documents that are ranked before the relevant one."""
    last = len(each.ranking) if each.rank is None else each.rank - 1
    return each.ranking[: min(last, _BEFORE)]


def _failed(
    failed: Sequence[RankedQuery],
    count: int,
    metric: str,
    queries: Mapping[str, str],
    documents: Mapping[str, str],
) -> Section:
    """Return the section with the queries of the lowest scores."""
    if not failed:
        return Section("Queries that fail", note(f"None: {metric} of each query is 1."))

    def text(name: str) -> str:
        return f"{name}: {shortened(documents[name], _SHOWN)}" if name in documents else f"{name}: not in the corpus"

    rows = [
        [
            text_cell(queries[each.query]),
            text_cell(text(each.relevant)),
            each.rank if each.rank is not None else "not ranked",
            tagged("td", joined([tagged("p", text(name), dir="auto") for name in _before(each)]), class_="t"),
            each.score,
        ]
        for each in failed
    ]
    header = ["query", "relevant document", "its rank", "ranked before it", metric]
    words = (
        f"{len(failed)} of {count:,} queries: those with the lowest {metric}. Of several relevant documents, that with "
        f"the best rank is shown; of the documents before it, the first {_BEFORE}."
    )
    return Section("Queries that fail", joined([note(words), html_table("failed", header, rows)]))
