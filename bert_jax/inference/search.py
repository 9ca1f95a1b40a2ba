"""Pipelines over sentence embeddings: embedding, similarity and semantic search (Reimers and Gurevych 2019,
arXiv:1908.10084)."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from bert_jax.conversion.text_settings import CORPUS_PROMPTS, QUERY_PROMPTS
from bert_jax.errors import InputError
from bert_jax.inference.base import Pipeline, as_texts, positive
from bert_jax.inference.scoring import comparable, compare, pair_similarities, similarities

CORPUS_CHUNK = 4096  # texts of a corpus that are embedded and scored together


class SentenceEmbedding(Pipeline):
    """Sentence embeddings: one vector per text, pooled and scaled as the model's files say."""

    head = "sentence_embedding"

    def __call__(
        self,
        texts: str | Sequence[str],
        truncation: bool = True,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
        progress: bool = False,
    ) -> np.ndarray:
        """Embed texts as vectors, which most models scale to unit length.

        Args:
            texts: one text or a list of N texts.
            truncation: whether to cut texts over the model's `max_length`, as sentence-transformers does; otherwise
                they are an error.
            prompt_name: name of the model's prompt to put before each text; None = the default prompt, "" = none.
            prompt: text to put before each text, instead of a named prompt.
            truncate_dim: number of leading dimensions to keep; None = from the model's files.
            progress: whether to show a progress bar on stderr.

        Returns:
            float32 `[D]` for one text, `[N, D]` for a list.

        Raises:
            InputError: an item is no text or is too long, or the prompt does not exist.
        """
        listed, text = as_texts(texts), self.model.settings.prompt(prompt_name, prompt)
        if progress:
            from rich import console  # slow to import
            from rich import progress as bars

            with bars.Progress(console=console.Console(stderr=True)) as bar:
                task = bar.add_task("texts", total=len(listed))
                found = self._embed(listed, text, truncation, truncate_dim, lambda rows: bar.advance(task, rows))
        else:
            found = self._embed(listed, text, truncation, truncate_dim)
        return found[0] if isinstance(texts, str) else found

    def _embed(
        self,
        texts: list[str],
        prompt: str,
        truncation: bool = True,
        truncate_dim: int | None = None,
        advance: Callable[[int], None] = lambda rows: None,
    ) -> np.ndarray:
        """Return embeddings `[N, D]` of texts behind a prompt; `advance` is called with each batch's number of rows."""
        config, settings = self.model.config, self.model.settings
        skip = settings.pooling_skip(self.tokenizer, prompt, self.model.max_length)
        model = dataclasses.replace(self.model, config=config.replace(pooling_skip=skip)) if skip else None
        embeddings = np.zeros((len(texts), config.sentence_embedding_size), np.float32)
        for window, inputs in self._windows(texts, truncation=truncation, prompt=prompt):
            for rows, _, output in self._batches(inputs, ("sentence_embedding",), model):
                embeddings[rows + window.start] = output.sentence_embedding
                advance(len(rows))
        return embeddings[:, : settings.dimension(truncate_dim)]


class Similarity(SentenceEmbedding):
    """Similarity of texts: the cosine of their embeddings, or the similarity that the model's files name."""

    def __call__(  # type: ignore[override]
        self,
        first: str | Sequence[str],
        second: str | Sequence[str],
        truncation: bool = True,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
    ) -> Any:
        """Return similarities: cosines from -1 to 1, or dot products or negative distances if the model's files say so.

        Args:
            first: one text, or a list of N texts.
            second: one text, or a list of M texts.
            truncation: as for `SentenceEmbedding`.
            prompt_name: as for `SentenceEmbedding`.
            prompt: as for `SentenceEmbedding`.
            truncate_dim: as for `SentenceEmbedding`.

        Returns:
            A float for two texts; float32 `[M]` for a text and a list, `[N]` for a list and a text, `[N, M]` for two
            lists (all pairs).

        Raises:
            InputError: as for `SentenceEmbedding`.
        """
        settings = self.model.settings
        text = settings.prompt(prompt_name, prompt)
        vectors = [self._embed(as_texts(texts), text, truncation, truncate_dim) for texts in (first, second)]
        found = similarities(settings.similarity, *vectors)
        if isinstance(first, str):
            return float(found[0, 0]) if isinstance(second, str) else found[0]
        return found[:, 0] if isinstance(second, str) else found


class _Chunk(NamedTuple):
    """A part of a corpus: the number of its first text, the texts, and their `comparable` vectors `[n, D]`."""

    start: int
    texts: list[str]
    vectors: np.ndarray


class _Best:
    """The most similar texts for N queries among those seen so far.

    Attributes:
        vectors: the `comparable` vectors of the queries `[N, D]`.
        scores: similarities, float32 `[N, up to top_k]`, the most similar first.
        numbers: the numbers of the texts in the corpus, int64, like `scores`; at equal scores the first comes first.
    """

    def __init__(self, vectors: np.ndarray, top_k: int):
        self.vectors, self._top_k = vectors, top_k
        self.scores, self.numbers = np.zeros((len(vectors), 0), np.float32), np.zeros((len(vectors), 0), np.int64)

    def add(self, scores: np.ndarray, start: int) -> None:
        """Take the scores `[N, n]` of further texts into account; `start` is the number of the first."""
        columns = np.argsort(-scores, axis=1, kind="stable")[:, : self._top_k]
        scores = np.concatenate([self.scores, np.take_along_axis(scores, columns, 1)], axis=1)
        numbers = np.concatenate([self.numbers, columns + start], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, : self._top_k]
        self.scores, self.numbers = (np.take_along_axis(array, order, 1) for array in (scores, numbers))


class Search(SentenceEmbedding):
    """Exact semantic search: find the texts of a corpus that are most similar to a query.

    The similarity is the cosine, or the one that the model's files name.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._chunks: list[_Chunk] | None = None
        self._truncate_dim: int | None = None  # of the vectors in `_chunks`

    def index(
        self,
        corpus: Iterable[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
    ) -> int:
        """Embed a corpus and keep it in memory for later calls; it replaces an earlier corpus.

        Args:
            corpus: the texts.
            prompt_name: as `corpus_prompt_name` of a call.
            prompt: as `corpus_prompt` of a call.
            truncate_dim: as for `SentenceEmbedding`; later calls use the same value.

        Returns:
            The number of texts.

        Raises:
            InputError: a text is no string, or there is no text.
        """
        settings = self.model.settings
        self._truncate_dim = settings.dimension(truncate_dim)
        text = settings.prompt_for(CORPUS_PROMPTS, prompt_name, prompt)
        self._chunks = list(self._embedded(corpus, text, self._truncate_dim))
        return sum(len(chunk.texts) for chunk in self._chunks)

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
    ) -> Any:
        """Return the most similar texts for each query.

        Args:
            queries: one text, or a list of texts.
            corpus: texts to search in this call only, read once in constant memory; None means the corpus of `index`.
            top_k: number of texts per query.
            prompt_name: name of the prompt for the queries, as for `SentenceEmbedding`. A model without a default
                prompt uses its prompt `query`, if it has one.
            prompt: prompt for the queries, instead of a named one.
            corpus_prompt_name: likewise for the corpus, with prompts `document`, `passage` or `corpus`.
            corpus_prompt: prompt for the corpus, instead of a named one.
            truncate_dim: as for `SentenceEmbedding`.

        Returns:
            For one query a list, the most similar first (ties in the order of the corpus), of dicts of `corpus_id` (the
            text's number in the corpus from 0), `score` (the similarity) and `text`. For a list of queries, a list.

        Raises:
            InputError: an item is no text, or there is no corpus.
        """
        texts: dict[int, str] = {}
        prompts = (prompt_name, prompt, corpus_prompt_name, corpus_prompt)
        scores, numbers = self._nearest(as_texts(queries), corpus, top_k, texts, *prompts, truncate_dim)
        found = [
            [{"corpus_id": number, "score": score, "text": texts[number]} for number, score in zip(*row, strict=True)]
            for row in zip(numbers.tolist(), scores.tolist(), strict=True)
        ]
        return found[0] if isinstance(queries, str) else found

    def nearest(
        self, queries: Sequence[str], corpus: Iterable[str] | None = None, top_k: int = 10, **options: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores of the most similar texts for each query, and their numbers in the corpus.

        Args:
            queries: N texts.
            corpus, top_k: as for a call.
            options: the other options of a call.

        Returns:
            float32 and int64 `[N, min(top_k, texts in the corpus)]`, in the order of a call.

        Raises:
            InputError: as a call.
        """
        return self._nearest(as_texts(queries), corpus, top_k, None, **options)

    def pair_scores(
        self,
        queries: Sequence[str],
        texts: Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        corpus_prompt_name: str | None = None,
        corpus_prompt: str | None = None,
        truncate_dim: int | None = None,
    ) -> np.ndarray:
        """Return the score of the i-th text for the i-th query, float64 `[N]`.

        Args:
            queries: N texts.
            texts: N texts of a corpus.
            prompt_name, prompt, corpus_prompt_name, corpus_prompt, truncate_dim: as for a call.

        Raises:
            InputError: as a call.
        """
        settings = self.model.settings
        kept = settings.dimension(truncate_dim)
        first = self._comparable(as_texts(queries), settings.prompt_for(QUERY_PROMPTS, prompt_name, prompt), kept)
        behind = settings.prompt_for(CORPUS_PROMPTS, corpus_prompt_name, corpus_prompt)
        return pair_similarities(settings.similarity, first, self._comparable(as_texts(texts), behind, kept))

    def _nearest(
        self,
        queries: list[str],
        corpus: Iterable[str] | None,
        top_k: int,
        texts: dict[int, str] | None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        corpus_prompt_name: str | None = None,
        corpus_prompt: str | None = None,
        truncate_dim: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Search as `nearest`, and put the texts that are found into `texts` by their numbers."""
        top_k, settings = positive("top_k", top_k), self.model.settings
        if corpus is None and self._chunks is None:
            raise InputError("search: expected a corpus, given here or to index(), found none")
        kept = self._truncate_dim if corpus is None else settings.dimension(truncate_dim)
        vectors = self._comparable(queries, settings.prompt_for(QUERY_PROMPTS, prompt_name, prompt), kept)
        behind = settings.prompt_for(CORPUS_PROMPTS, corpus_prompt_name, corpus_prompt)
        parts = [_Best(vectors[i : i + CORPUS_CHUNK], top_k) for i in range(0, max(len(queries), 1), CORPUS_CHUNK)]
        for chunk in self._chunks or () if corpus is None else self._embedded(corpus, behind, kept):
            for part in parts:  # so that scores are at most [CHUNK, CHUNK]
                part.add(compare(settings.similarity, part.vectors, chunk.vectors), chunk.start)
            if texts is not None:
                best = set(np.unique(np.concatenate([part.numbers.ravel() for part in parts])).tolist())
                for number in texts.keys() - best:
                    del texts[number]
                texts.update({i: chunk.texts[i - chunk.start] for i in best if i >= chunk.start})
        scores, numbers = ([getattr(part, name) for part in parts] for name in ("scores", "numbers"))
        return np.concatenate(scores), np.concatenate(numbers)

    def _embedded(self, corpus: Iterable[str], prompt: str, truncate_dim: int | None) -> Iterator[_Chunk]:
        start = 0
        for texts in corpus_chunks(corpus):
            yield _Chunk(start, texts, self._comparable(texts, prompt, truncate_dim))
            start += len(texts)

    def _comparable(self, texts: list[str], prompt: str, truncate_dim: int | None) -> np.ndarray:
        return comparable(self.model.settings.similarity, self._embed(texts, prompt, truncate_dim=truncate_dim))


def corpus_chunks(corpus: Iterable[str]) -> Iterator[list[str]]:
    """Yield a corpus in lists of up to CHUNK texts. Raises InputError when it is empty or an item is no text."""
    if isinstance(corpus, str):
        raise InputError("corpus: expected a list of texts, found one text")
    texts, start = iter(corpus), 0
    while chunk := list(islice(texts, CORPUS_CHUNK)):
        for i, text in enumerate(chunk, start):
            if not isinstance(text, str):
                raise InputError(f"corpus: text {i}: expected a string, found {type(text).__name__}")
        yield chunk
        start += len(chunk)
    if not start:
        raise InputError("corpus: expected at least one text, found none")
