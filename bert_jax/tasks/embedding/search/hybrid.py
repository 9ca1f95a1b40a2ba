"""`HybridSearch`: search by BM25 and by embeddings of one or several models, merged and perhaps reranked."""

import copy
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.errors import InputError, did_you_mean
from bert_jax.inference import pipeline
from bert_jax.inference.base import as_texts, positive
from bert_jax.inference.corpus_chunks import CORPUS_CHUNK, corpus_chunks
from bert_jax.storage import PathLike
from bert_jax.tasks.embedding.index_files import IndexFiles, new_index
from bert_jax.tasks.embedding.search.bm25 import BM25Settings
from bert_jax.tasks.embedding.search.corpus_search import CorpusSearch
from bert_jax.tasks.embedding.search.fusion import Candidates, Fusion, check_weights, fuse
from bert_jax.tasks.embedding.search.searchers import (
    CORPUS_PROMPT_OPTIONS,
    RESCORING,
    SEARCH_OPTIONS,
    SIZE_OPTIONS,
    candidates_of,
    has_option,
    open_searchers,
)

_FUSION = "fusion"  # the name of a later step, which no searcher may have
_INDEX_KIND = "hybrid_search"


class _Corpus(NamedTuple):
    """The corpus that later calls search: the searchers that have it, and its texts in memory or in files."""

    total: int
    searchers: Mapping[str, Any]
    in_memory: Sequence[str] = ()
    files: IndexFiles | None = None

    def texts(self, numbers: Iterable[int]) -> dict[int, str]:
        """Return texts by their numbers."""
        chosen = sorted({*numbers})
        texts = self.files.texts(chosen) if self.files else [self.in_memory[number] for number in chosen]
        return dict(zip(chosen, texts, strict=True))


class _Answer(NamedTuple):
    """The best texts for a query, and the rankings of each step that led to them, by its name."""

    best: Candidates
    steps: dict[str, Candidates]


class HybridSearch:
    """Hybrid search: several searchers find candidates, fusion merges them, and a cross-encoder may rerank the first.

    Texts that share no word with the query (BM25), or no token (sparse embeddings), are no candidates. A single
    searcher ranks the texts alone, without fusion.

    Attributes:
        searchers: name -> `BM25Search`, or a pipeline such as `bert_jax.pipeline("search", model)`.
        fusion: how the candidates are merged.
        reranker: a `bert_jax.pipeline("rerank", model)`, or None.
        rerank_top_k: number of merged texts that the reranker scores; the others are dropped.
    """

    def __init__(
        self,
        searchers: Mapping[str, Any],
        fusion: Fusion | None = None,
        reranker: Any = None,
        rerank_top_k: int = 100,
    ):
        """Combine searchers.

        Raises:
            InputError: there is no searcher, or an option does not fit.
        """
        self.searchers, self.fusion = dict(searchers), fusion or Fusion()
        self.reranker, self.rerank_top_k = reranker, positive("rerank_top_k", rerank_top_k)
        for name in self.searchers:
            if not name or "/" in name or name.startswith(".") or name == _FUSION:
                raise InputError(f"searchers: expected the name of a folder, and not {name!r}")
        if not self.searchers:
            raise InputError("searchers: expected at least one, found none")
        if fusion is not None and len(self.searchers) == 1:
            raise InputError(f"fusion: expected several searchers, found {next(iter(self.searchers))}")
        check_weights(self.fusion, [*self.searchers])
        self._corpus: _Corpus | None = None  # replaced as a whole, as other threads may read it

    @classmethod
    def open(
        cls,
        model: PathLike | None,
        searchers: Sequence[str],
        *,
        fusion: Fusion | None = None,
        bm25: BM25Settings | None = None,
        reranker: PathLike = "",
        rerank_top_k: int = 100,
        dtype: str = "auto",
        batch_size: int | None = None,
        device: str | int | jax.Device | None = None,
        batch_invariant: bool = False,
    ) -> "HybridSearch":
        """Open the models of searchers.

        Args:
            model: directory of the model for `dense`, `sparse` and `multi-vector`; None = none, as for `bm25` alone.
            searchers: each is `bm25`; a kind of the model's embeddings, `dense`, `sparse` or `multi-vector`; or the
                directory of another model, whose last part becomes the searcher's name; where several have the same
                last part, their last two parts, joined by a hyphen.
            fusion: how the candidates of several searchers are merged; None = the defaults of `Fusion`.
            bm25: settings of `bm25`; None means those of the index that is opened, otherwise the defaults.
            reranker: directory of a cross-encoder that scores the best texts again; "" = none.
            rerank_top_k: number of texts per query that the cross-encoder reads; the others are dropped.
            dtype: as for `bert_jax.pipeline`.
            batch_size: as for `bert_jax.pipeline`.
            device: as for `bert_jax.pipeline`.
            batch_invariant: as for `bert_jax.pipeline`.

        Raises:
            InputError: a searcher is not known, occurs twice, or does not fit its model.
        """
        options: dict[str, Any] = {"batch_size": batch_size, "device": device, "batch_invariant": batch_invariant}
        opened = open_searchers(model, searchers, bm25, dtype=dtype, **options)
        cross_encoder = pipeline("rerank", reranker, dtype, **options) if reranker else None
        return cls(opened, fusion, cross_encoder, rerank_top_k)

    def index(self, corpus: Iterable[str], **options: Any) -> int:
        """Index a corpus and keep it in memory for later calls; it replaces an earlier corpus.

        Args:
            corpus: the texts.
            options: options of `CorpusSearch.index`, each for the searchers that have it.

        Returns:
            The number of texts.

        Raises:
            InputError: a text is no string, there is no text, or no searcher has an option.
        """
        texts, chosen = [*_checked(corpus)], self._options(options, SEARCH_OPTIONS)
        searchers = self._copies()
        for name, searcher in searchers.items():
            searcher.index(texts, **chosen[name])
        self._corpus = _Corpus(len(texts), searchers, texts)
        return len(texts)

    def write_index(self, corpus: Iterable[str], directory: PathLike, **options: Any) -> int:
        """Write an index of a corpus for `open_index`: a folder for each searcher, which is an index of its own.

        Args:
            corpus: the texts, read once.
            directory: a new or empty local directory.
            options: options of `CorpusSearch.write_index`, each for the searchers that have it.

        Returns:
            The number of texts.

        Raises:
            InputError: as for `index`.
        """
        known = [*inspect.signature(CorpusSearch.write_index).parameters][3:]
        chosen = self._options(options, known)
        with new_index(directory) as files:
            texts, count = corpus, 0
            for name, searcher in self.searchers.items():
                count = searcher.write_index(texts, files.directory / name, **chosen[name])
                texts = _texts_of(IndexFiles(files.directory / name))  # since an iterator is read only once
            files.close(_INDEX_KIND, {"texts": count, "searchers": [*self.searchers]})
        return count

    def open_index(self, directory: PathLike) -> int:
        """Open an index on disk for later calls; it replaces an earlier corpus.

        Args:
            directory: a local directory that `write_index` wrote with these searchers, or with further ones; for a
                single searcher also an index that it wrote itself.

        Returns:
            The number of texts.

        Raises:
            InputError: there is no index, it is damaged, or it has not been written with these searchers.
        """
        files, names = IndexFiles(directory), indexed_searchers(directory)
        places = {name: files.directory / name if names else files.directory for name in self.searchers}
        if not {*places} <= {*names} and (names or len(places) > 1):
            found = ", ".join(names) or files.about.get("kind")
            raise InputError(
                f"{directory}: expected an index of the searchers {', '.join(places)}, found one of {found}"
            )
        searchers = self._copies()
        for name, searcher in searchers.items():
            if (count := searcher.open_index(places[name])) != files.count:
                raise files.damaged(f"{files.count:,} texts in {name}, not {count:,}")
        self._corpus = _Corpus(files.count, searchers, files=IndexFiles(places[next(iter(places))]))
        return files.count

    def __call__(
        self, queries: str | Sequence[str], corpus: Iterable[str] | None = None, top_k: int = 10, **options: Any
    ) -> Any:
        """Return the best texts for each query.

        Args:
            queries: one text, or a list of texts.
            corpus: texts to search in this call only, which are read into memory; None means the corpus of `index` or
                of `open_index`.
            top_k: number of texts per query.
            options: options of a call of `CorpusSearch` (prompts, `truncate_dim`, `max_active_dims`), each for the
                searchers that have it.

        Returns:
            For one query a list, the best first (ties in the order of the corpus), of dicts of `corpus_id` (the text's
            number in the corpus from 0), `text`, `score` (that of the last step: a searcher, fusion, or the reranker),
            and `steps`: the name of each searcher that found the text, and `fusion` before a reranker, with a dict of
            the `score` and the `rank` from 1 there. For a list of queries, a list.

        Raises:
            InputError: an item is no text, there is no corpus, or no searcher has an option.
        """
        answers, kept = self._search(as_texts(queries), corpus, top_k, options)
        texts = kept.texts(number for answer in answers for number in answer.best.numbers)
        results = [_result(answer, texts) for answer in answers]
        return results[0] if isinstance(queries, str) else results

    def nearest(
        self, queries: Sequence[str], corpus: Iterable[str] | None = None, top_k: int = 10, **options: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores of the best texts for each query, and their numbers in the corpus.

        Args:
            queries: N texts.
            corpus: as for a call.
            top_k: as for a call.
            options: as for a call.

        Returns:
            float64 and int64 `[N, min(top_k, texts in the corpus)]`, ordered as by a call. Where fewer texts are found,
            the last numbers are -1, with scores of -inf.

        Raises:
            InputError: as a call.
        """
        answers, kept = self._search(as_texts(queries), corpus, top_k, options)
        shape = (len(answers), min(top_k, kept.total))
        scores, numbers = np.full(shape, -np.inf), np.full(shape, -1, np.int64)
        for row, (best, _) in enumerate(answers):
            scores[row, : len(best.scores)], numbers[row, : len(best.numbers)] = best.scores, best.numbers
        return scores, numbers

    def _search(
        self, queries: list[str], corpus: Iterable[str] | None, top_k: int, options: dict[str, Any]
    ) -> tuple[list[_Answer], _Corpus]:
        positive("top_k", top_k)
        chosen = self._options(options, (*SEARCH_OPTIONS, *CORPUS_PROMPT_OPTIONS, RESCORING))
        texts = None if corpus is None else [*_checked(corpus)]
        kept = self._corpus if texts is None else _Corpus(len(texts), self.searchers, texts)
        if kept is None:
            raise InputError("search: expected a corpus, given here or to index(), found none")
        for name in (*CORPUS_PROMPT_OPTIONS, *SIZE_OPTIONS):
            if texts is None and options.get(name) is not None:
                raise InputError(f"{name}: expected none with an index, which has its own, found {options[name]!r}")
        several, last = len(self.searchers) > 1, self.rerank_top_k if self.reranker else top_k
        count = self.fusion.candidates if several else last
        of_searchers = {
            name: candidates_of(searcher, *searcher.nearest(queries, texts, count, **chosen[name]))
            for name, searcher in kept.searchers.items()
        }
        answers = []
        for row, query in enumerate(queries):
            steps = {name: rankings[row] for name, rankings in of_searchers.items()}
            best = fuse(self.fusion, [*steps.values()]) if several else next(iter(steps.values()))
            if self.reranker is not None:
                steps |= {_FUSION: best} if several else {}
                best = self._reranked(query, _first(best, last), kept)
            answers.append(_Answer(_first(best, top_k), steps))
        return answers, kept

    def _copies(self) -> dict[str, Any]:
        """Return copies of the searchers, which may have another corpus; they share the models."""
        return {name: copy.copy(searcher) for name, searcher in self.searchers.items()}

    def _reranked(self, query: str, candidates: Candidates, corpus: _Corpus) -> Candidates:
        """Return the candidates in the order of the reranker's scores; ties keep their order."""
        texts = corpus.texts(candidates.numbers)
        scores = self.reranker.relevance(
            [query] * len(candidates.numbers), [texts[number] for number in candidates.numbers]
        )
        order = np.argsort(-scores, kind="stable").tolist()
        return Candidates([candidates.numbers[i] for i in order], scores[order].tolist())

    def _options(self, options: dict[str, Any], known: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return each searcher's share of the options that are set. Raises InputError for one that no searcher has."""
        chosen: dict[str, dict[str, Any]] = {name: {} for name in self.searchers}
        for option, value in options.items():
            if option not in known:
                raise InputError(f"option {option!r} is not known{did_you_mean(option, known)}")
            if value in (None, False, "float32"):  # the defaults
                continue
            receivers = [name for name, searcher in self.searchers.items() if has_option(searcher, option)]
            if not receivers:
                raise InputError(f"{option}: expected a searcher with this option, found {', '.join(self.searchers)}")
            for name in receivers:
                chosen[name][option] = value
        return chosen


def indexed_searchers(directory: PathLike) -> list[str]:
    """Return the names of the searchers of an index that `HybridSearch` wrote; [] for other indexes.

    Raises:
        InputError: there is no index, or it is damaged.
    """
    files = IndexFiles(directory)
    if files.about.get("kind") != _INDEX_KIND:
        return []
    names = files.about.get("searchers")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise files.damaged("names of searchers in index.json")
    return names


def _checked(corpus: Iterable[str]) -> Iterator[str]:
    for chunk in corpus_chunks(corpus):
        yield from chunk


def _texts_of(files: IndexFiles) -> Iterator[str]:
    """Yield the texts of an index."""
    for start in range(0, files.count, CORPUS_CHUNK):
        yield from files.texts(range(start, min(start + CORPUS_CHUNK, files.count)))


def _first(candidates: Candidates, count: int) -> Candidates:
    return Candidates(candidates.numbers[:count], candidates.scores[:count])


def _result(answer: _Answer, texts: Mapping[int, str]) -> list[dict[str, Any]]:
    """Return the answers for a query as `HybridSearch.__call__` does."""
    places = {
        name: {number: {"score": score, "rank": rank} for rank, (number, score) in
               enumerate(zip(ranking.numbers, ranking.scores, strict=True), 1)}
        for name, ranking in answer.steps.items()
    }  # fmt: skip
    return [
        {
            "corpus_id": number,
            "score": score,
            "text": texts[number],
            "steps": {name: ranks[number] for name, ranks in places.items() if number in ranks},
        }
        for number, score in zip(answer.best.numbers, answer.best.scores, strict=True)
    ]
