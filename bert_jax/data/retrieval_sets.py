"""Read retrieval sets: a corpus of documents, queries, and judgements that say which documents answer a query.

The layout is that of BEIR (Thakur et al. 2021, arXiv:2104.08663), in JSON lines and TSV files or, as on the Hugging
Face hub, in Parquet files:

    corpus.jsonl     or corpus/*.parquet     _id, text and perhaps title
    queries.jsonl    or queries/*.parquet    _id, text
    qrels/SPLIT.tsv  or qrels/*.parquet      query-id, corpus-id and perhaps score
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from bert_jax import storage
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.delimited import read_delimited
from bert_jax.data.invalid_rows import InvalidRows, check_utf8
from bert_jax.data.json_files import json_objects
from bert_jax.data.lines import read_lines
from bert_jax.errors import InputError

_OBJECTS = (".jsonl", ".parquet")
_QUERY, _DOCUMENT, _SCORE = "query-id", "corpus-id", "score"


class RetrievalSet(NamedTuple):
    """A retrieval set.

    Attributes:
        directory: its directory.
        queries: id -> text of each query that has judgements.
        judgements: id of a query -> id of a document -> its relevance: 0 for none, 1 or more.
    """

    directory: storage.Path
    queries: dict[str, str]
    judgements: dict[str, dict[str, int]]

    def documents(self) -> Iterator[tuple[str, str]]:
        """Yield the id and the text of each document: its title, a space, and its text, as BEIR joins them.

        Raises:
            InputError: a file is missing or damaged, or a document is not valid or has the id of an earlier one.
        """
        return _texts(self.directory, "corpus")


def read_retrieval_set(directory: storage.PathLike, split: str = "test") -> RetrievalSet:
    """Read the queries and judgements of a retrieval set; the documents are read when they are used.

    Args:
        directory: its directory, which may be in a bucket.
        split: name of the split of the judgements.

    Raises:
        InputError: a file is missing or damaged, a row is not valid, or a judged query has no text.
    """
    root = storage.Path(directory)
    judgements = _judgements(root, split)
    queries = {name: text for name, text in _texts(root, "queries") if name in judgements}
    if missing := sorted(judgements.keys() - queries.keys()):
        raise InputError(
            f"{root}: expected a text of each query that qrels/{split} names, found none for {missing[0]!r} "
            f"({len(missing):,} in all)"
        )
    return RetrievalSet(root, {name: queries[name] for name in judgements}, judgements)


class SampledCorpus(NamedTuple):
    """The documents of a retrieval set, or a part of them.

    Attributes:
        ids: the ids of the documents, in the order of the corpus.
        texts: their texts.
        total: number of documents in the whole corpus.
    """

    ids: list[str]
    texts: list[str]
    total: int


def sampled_corpus(dataset: RetrievalSet, count: int = 0, seed: int = 0) -> SampledCorpus:
    """Read all judged documents of a retrieval set and a sample of the others.

    Args:
        dataset: the retrieval set.
        count: number of documents to read; more if more are judged. 0 = all.
        seed: seed of the sample, which depends on it and on the ids of the corpus alone.

    Raises:
        InputError: as `RetrievalSet.documents`, or there is no document.
    """
    ids = [name for name, _ in dataset.documents()] if count else []
    judged = {name for row in dataset.judgements.values() for name in row}
    others = [name for name in ids if name not in judged]
    room = max(0, count - (len(ids) - len(others)))
    left_out = set(others)
    left_out -= {others[i] for i in np.random.default_rng(seed).permutation(len(others))[:room]}
    kept = [(name, text) for name, text in dataset.documents() if name not in left_out]
    if not kept:
        raise InputError(f"{dataset.directory}: expected documents, found none")
    return SampledCorpus([name for name, _ in kept], [text for _, text in kept], len(kept) + len(left_out))


def read_run(path: storage.PathLike) -> dict[str, dict[str, float]]:
    """Read a TREC run: lines of query, Q0, document, rank, score and tag.

    Returns:
        Id of a query -> id of a document -> its score, by ascending rank.

    Raises:
        InputError: the file is missing, or a line has other fields or names a document of a query again.
    """
    rows: dict[str, list[tuple[int, str, float]]] = {}
    for number, line in enumerate(read_lines(str(path)), 1):
        if not line.strip():
            continue
        fields = line.split()
        try:
            query, _, document, rank, score, _ = fields
            rows.setdefault(query, []).append((int(rank), document, float(score)))
        except ValueError:
            raise InputError(
                f"{path}: line {number}: expected query, Q0, document, rank, score and tag, found {line.strip()!r:.80}"
            ) from None
    rankings = {}
    for query, ranked in rows.items():
        rankings[query] = {document: score for _, document, score in sorted(ranked, key=lambda row: row[0])}
        if len(rankings[query]) < len(ranked):
            raise InputError(f"{path}: expected each document of query {query!r} once, found one again")
    return rankings


def _texts(root: storage.Path, part: str) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for path in _files(root, part, part, _OBJECTS):
        for where, row in _objects(path):
            name, text, title = _id(where, row, "_id"), row.get("text"), row.get("title") or ""
            if not isinstance(text, str) or not isinstance(title, str):
                raise InputError(f"{where}: expected texts in text and title, found {text!r} and {title!r}")
            if name in seen:
                raise InputError(f"{where}: expected a unique _id, found {name!r} again")
            seen.add(name)
            check_utf8(where, name, title, text)
            yield name, f"{title} {text}".strip()


def _judgements(root: storage.Path, split: str) -> dict[str, dict[str, int]]:
    judgements: dict[str, dict[str, int]] = {}
    for path in _files(root, "qrels", split, (".tsv", *_OBJECTS)):
        rows = _delimited(path) if storage.without_compression(path).lower().endswith(".tsv") else _objects(path)
        for where, row in rows:
            query, document = _id(where, row, _QUERY), _id(where, row, _DOCUMENT)
            judgements.setdefault(query, {})[document] = _relevance(where, row.get(_SCORE, 1))
    if not judgements:
        raise InputError(f"{root}/qrels: expected judgements, found none")
    return judgements


def _files(root: storage.Path, folder: str, stem: str, endings: tuple[str, ...]) -> list[str]:
    """Return the files of a part of the set: STEM.ENDING, maybe compressed, beside or in its folder; or Parquet shards.

    Raises:
        InputError: there is none.
    """
    beside = [] if folder == "qrels" else [f"{root}/{stem}"]
    for place in (*beside, f"{root}/{folder}/{stem}"):
        for ending in endings:
            for file in (f"{place}{ending}{compression}" for compression in ("", *storage.COMPRESSED)):
                if storage.Path(file).exists():
                    return [file]
    shards = [str(path) for path in storage.matching_files(f"{root}/{folder}/*.parquet")]
    if chosen := [path for path in shards if path.rpartition("/")[2].startswith(f"{stem}-")] or shards:
        return chosen
    place = f"{folder}/" if folder == "qrels" else ""
    expected = " or ".join(f"{place}{stem}{ending}" for ending in endings)
    raise InputError(f"{root}: expected {expected} or {folder}/*.parquet, found neither")


def _objects(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    invalid = InvalidRows(path)
    for _, where, row in invalid.fitting(json_objects(path, invalid)):
        yield where, row


def _delimited(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    invalid = InvalidRows(path)
    columns = Columns(_QUERY, _DOCUMENT, _SCORE)
    for line, row in invalid.fitting(read_delimited(path, columns, invalid)):
        yield f"{path}: line {line}", row


def _id(where: str, row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise InputError(f"{where}: expected an id in {key}, found {value!r}")
    return str(value)


def _relevance(where: str, score: Any) -> int:
    try:
        number = float(score)
    except (TypeError, ValueError):
        number = math.nan
    if not number.is_integer():
        raise InputError(f"{where}: expected a whole number in {_SCORE}, found {score!r}")
    return int(number)
