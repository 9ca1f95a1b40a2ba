"""`CorpusSearch`: compare queries with a corpus, which is passed to the call, kept in memory, or indexed on disk."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import InputError
from bert_jax.inference import corpus_chunks
from bert_jax.inference.base import as_texts, positive
from bert_jax.inference.similarity import compare
from bert_jax.storage import PathLike
from bert_jax.tasks.embedding.search.index_writing import IndexWriting
from bert_jax.tasks.embedding.segmented_index import SegmentedIndex


class _Chunk(NamedTuple):
    """A part of a corpus: the number of its first text, the texts, and their vectors, ready to be compared."""

    start: int
    texts: list[str]
    vectors: Any


class _Corpus(NamedTuple):
    """The corpus that later calls search.

    Attributes:
        size: the size of truncated vectors; None = not truncated.
        chunks: its parts, if it is in memory.
        stored: its index on disk, or None.
    """

    size: int | None
    chunks: Sequence[_Chunk] = ()
    stored: SegmentedIndex | None = None


class _Details(NamedTuple):
    """What an answer says beside the number and the score of a text.

    Attributes:
        texts: number of a text -> the text.
        fields: for each query, for each of its answers, further entries; empty = none.
    """

    texts: dict[int, str]
    fields: list[list[dict[str, Any]]]


class _Best:
    """The most similar texts for N queries among those seen so far.

    Attributes:
        vectors: the vectors of the queries.
        scores: similarities, float32 `[N, up to top_k]`, the most similar first.
        numbers: the texts' numbers in the corpus, int64, one per score; at equal scores, the first text comes first.
    """

    def __init__(self, vectors: Any, count: int, top_k: int):
        self.vectors, self._top_k = vectors, top_k
        self.scores, self.numbers = np.zeros((count, 0), np.float32), np.zeros((count, 0), np.int64)

    def add(self, scores: np.ndarray, start: int) -> None:
        """Merge the scores `[N, n]` of further texts; `start` is the number of the first of these."""
        columns = np.argsort(-scores, axis=1, kind="stable")[:, : self._top_k]
        scores = np.concatenate([self.scores, np.take_along_axis(scores, columns, 1)], axis=1)
        numbers = np.concatenate([self.numbers, columns + start], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, : self._top_k]
        self.scores, self.numbers = (np.take_along_axis(array, order, 1) for array in (scores, numbers))


class CorpusSearch(IndexWriting):
    """Exact search: compare a query with every text of a corpus."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._corpus: _Corpus | None = None  # replaced as a whole, as other threads may read it

    def index(
        self,
        corpus: Iterable[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
        max_active_dims: int | None = None,
    ) -> int:
        """Embed a corpus and keep it in memory for later calls; it replaces an earlier corpus.

        Args:
            corpus: the texts.
            prompt_name: as `corpus_prompt_name` of a call.
            prompt: as `corpus_prompt` of a call.
            truncate_dim: as for a call; later calls use the same value.
            max_active_dims: as for `truncate_dim`.

        Returns:
            The number of texts.

        Raises:
            InputError: a text is no string, or there is no text.
        """
        size = self._size(truncate_dim=truncate_dim, max_active_dims=max_active_dims)
        chunks = list(self._embedded(corpus, self._prompt("document", prompt_name, prompt), size))
        self._corpus = _Corpus(size, chunks)
        return sum(len(chunk.texts) for chunk in chunks)

    def open_index(self, directory: PathLike) -> int:
        """Open an index on disk for later calls; it replaces an earlier corpus.

        Args:
            directory: a local directory that `write_index` wrote with the same model.

        Returns:
            The number of texts.

        Raises:
            InputError: there is no index, it is damaged, or it is of a model of another kind, width or similarity.
        """
        stored = SegmentedIndex(directory, self.index_class, self._expected)
        self._corpus = _Corpus(stored.size or self._size(), stored=stored)
        return stored.count

    def __call__(  # type: ignore[override]
        self,
        queries: str | Sequence[str],
        corpus: Iterable[str] | None = None,
        top_k: int = 10,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        corpus_prompt_name: str | None = None,
        corpus_prompt: str | None = None,
        truncate_dim: int | None = None,
        max_active_dims: int | None = None,
        rescore_multiplier: int | None = None,
    ) -> Any:
        """Return the most similar texts for each query.

        Args:
            queries: one text, or a list of texts.
            corpus: texts to search in this call only, read once in constant memory; None means the corpus of `index`
                or of `open_index`.
            top_k: number of texts per query.
            prompt_name: name of the prompt for the queries, as for `SentenceEmbedding`. A model without a default
                prompt uses its prompt `query`, if it has one.
            prompt: prompt for the queries, instead of a named one.
            corpus_prompt_name: the same for the corpus, with prompts `document`, `passage` or `corpus`.
            corpus_prompt: prompt for the corpus, instead of a named one.
            truncate_dim: as for `SentenceEmbedding`.
            max_active_dims: as for `SparseEmbedding`.
            rescore_multiplier: number of candidates per answer, found in an index by vectors of low precision, that are
                scored again; 0 = none; None means 2.

        Returns:
            For one query a list, the most similar first (ties in the order of the corpus), of dicts of `corpus_id` (the
            text's number in the corpus from 0), `score` (the similarity) and `text`. For a list of queries, a list.
            Answers from an index may also have `id`, and of a text in chunks `start`, `end` and `chunk`, the range of
            characters and the text of its best chunk.

        Raises:
            InputError: an item is no text, or there is no corpus.
        """
        details = _Details({}, [])
        texts, prompts = details.texts, (prompt_name, prompt, corpus_prompt_name, corpus_prompt)
        limits = (truncate_dim, max_active_dims, rescore_multiplier)
        scores, numbers = self._nearest(as_texts(queries), corpus, top_k, details, *prompts, *limits)
        answers = [
            [{"corpus_id": number, "score": score, "text": texts[number]} for number, score in zip(*row, strict=True)]
            for row in zip(numbers.tolist(), scores.tolist(), strict=True)
        ]
        for row, of_row in zip(answers, details.fields, strict=False):  # empty for a corpus that is not on disk
            for answer, more in zip(row, of_row, strict=True):
                answer |= more
        return answers[0] if isinstance(queries, str) else answers

    def nearest(
        self, queries: Sequence[str], corpus: Iterable[str] | None = None, top_k: int = 10, **options: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores of the most similar texts for each query, and their numbers in the corpus.

        Args:
            queries: N texts.
            corpus: as for a call.
            top_k: as for a call.
            options: the other options of a call.

        Returns:
            float32 and int64 `[N, min(top_k, texts in the corpus)]`, ordered as by a call.

        Raises:
            InputError: as a call.
        """
        return self._nearest(as_texts(queries), corpus, top_k, None, **options)

    def _nearest(
        self,
        queries: list[str],
        corpus: Iterable[str] | None,
        top_k: int,
        details: _Details | None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        corpus_prompt_name: str | None = None,
        corpus_prompt: str | None = None,
        truncate_dim: int | None = None,
        max_active_dims: int | None = None,
        rescore_multiplier: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Search as `nearest` does, and add to `details` what answers say of the texts that are found."""
        top_k = positive("top_k", top_k)
        kept = (
            self._corpus
            if corpus is None
            else _Corpus(self._size(truncate_dim=truncate_dim, max_active_dims=max_active_dims))
        )
        if kept is None:
            raise InputError("search: expected a corpus, given here or to index(), found none")
        vectors = self._vectors(queries, self._prompt("query", prompt_name, prompt), kept.size, "query")
        texts = None if details is None else details.texts
        if kept.stored is not None:
            scores, numbers = kept.stored.nearest(vectors, top_k, rescore_multiplier)
            if details is not None:
                best = np.unique(numbers).tolist()
                details.texts.update(zip(best, kept.stored.texts(best), strict=True))
                rows = enumerate(numbers.tolist())
                details.fields.extend(kept.stored.fields(vectors[row : row + 1], of_row) for row, of_row in rows)
            return scores, numbers
        if rescore_multiplier is not None:
            raise InputError("rescore_multiplier: expected an index of quantized vectors, found a corpus")
        before = self._prompt("document", corpus_prompt_name, corpus_prompt)
        size = corpus_chunks.CORPUS_CHUNK
        starts = range(0, max(len(queries), 1), size)
        parts = [_Best(vectors[i : i + size], len(queries[i : i + size]), top_k) for i in starts]
        for chunk in kept.chunks if corpus is None else self._embedded(corpus, before, kept.size):
            for part in parts:  # so that scores are at most [CHUNK, CHUNK]
                part.add(compare(self.model.settings.similarity, part.vectors, chunk.vectors), chunk.start)
            if texts is not None:
                best = set(np.unique(np.concatenate([part.numbers.ravel() for part in parts])).tolist())
                for number in texts.keys() - best:
                    del texts[number]
                texts.update({i: chunk.texts[i - chunk.start] for i in best if i >= chunk.start})
        scores, numbers = ([getattr(part, name) for part in parts] for name in ("scores", "numbers"))
        return np.concatenate(scores), np.concatenate(numbers)

    def _embedded(self, corpus: Iterable[str], prompt: str, size: int | None) -> Iterator[_Chunk]:
        start = 0
        for texts in corpus_chunks.corpus_chunks(corpus):
            yield _Chunk(start, texts, self._vectors(texts, prompt, size, "document"))
            start += len(texts)
