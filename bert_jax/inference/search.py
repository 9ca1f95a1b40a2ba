"""Pipelines over sentence embeddings: embedding, similarity, semantic search and reranking.

Reimers and Gurevych 2019 (arXiv:1908.10084) for embeddings; Nogueira and Cho 2019 (arXiv:1901.04085) for reranking.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from bert_jax.conversion.text_settings import CORPUS_PROMPTS, QUERY_PROMPTS
from bert_jax.errors import InputError
from bert_jax.inference.base import Pipeline, as_texts, positive
from bert_jax.inference.scoring import activate, comparable, compare, score_activation, scores_of, similarities

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
        top_k, settings = positive("top_k", top_k), self.model.settings
        listed = as_texts(queries)
        if corpus is None and self._chunks is None:
            raise InputError("search: expected a corpus, given here or to index(), found none")
        kept = self._truncate_dim if corpus is None else settings.dimension(truncate_dim)
        vectors = self._comparable(listed, settings.prompt_for(QUERY_PROMPTS, prompt_name, prompt), kept)
        best: list[list[dict[str, Any]]] = [[] for _ in listed]
        behind = settings.prompt_for(CORPUS_PROMPTS, corpus_prompt_name, corpus_prompt)
        for chunk in self._chunks or () if corpus is None else self._embedded(corpus, behind, kept):
            for start in range(0, len(listed), CORPUS_CHUNK):  # so that scores are at most [CHUNK, CHUNK]
                rows = range(start, min(start + CORPUS_CHUNK, len(listed)))
                scores = compare(settings.similarity, vectors[start : rows.stop], chunk.vectors)
                for row, found in zip(rows, _largest(scores, top_k), strict=True):
                    answers = [
                        {"corpus_id": chunk.start + i, "score": float(score), "text": chunk.texts[i]}
                        for i, score in found
                    ]
                    best[row] = merge(best[row], answers, top_k)
        return best[0] if isinstance(queries, str) else best

    def _embedded(self, corpus: Iterable[str], prompt: str, truncate_dim: int | None) -> Iterator[_Chunk]:
        start = 0
        for texts in _chunks(corpus):
            yield _Chunk(start, texts, self._comparable(texts, prompt, truncate_dim))
            start += len(texts)

    def _comparable(self, texts: list[str], prompt: str, truncate_dim: int | None) -> np.ndarray:
        return comparable(self.model.settings.similarity, self._embed(texts, prompt, truncate_dim=truncate_dim))


class Rerank(Pipeline):
    """Reranking: sort documents by the relevance to a query that a cross-encoder predicts."""

    head = "sequence_classification"

    def __call__(  # type: ignore[override]
        self,
        query: str,
        documents: Iterable[str],
        top_k: int | None = None,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> list[dict[str, Any]]:
        """Score each document with the query and sort by score; pairs over the model's limit are cut.

        Args:
            query: a text.
            documents: texts; if `top_k` is given, only the best are kept in memory.
            top_k: number of documents to return; None means all.
            prompt_name: name of the model's prompt to put before the query; None = the default prompt, "" = none.
            prompt: text to put before the query, instead of a named prompt.

        Returns:
            A list, the best first (ties in the order of the documents), of dicts of `corpus_id` (the document's number
            from 0), `score` and `text`. The score is the probability of the second of two classes, or the activation
            (`bert_jax.inference.scoring.score_activation`) of a model's only output.

        Raises:
            InputError: an item is no text, or the model has more than two outputs.
        """
        if (outputs := self.model.config.num_labels) > 2:
            names = ", ".join(self.model.config.label_names[:10])
            raise InputError(
                f"rerank: expected a model with one output or two, found {outputs} ({names}), which have no order; "
                "`classify` and `predict` give a score of each"
            )
        (query,) = as_texts([query])
        count = None if top_k is None else positive("top_k", top_k)
        text = self.model.settings.prompt(prompt_name, prompt)
        best: list[dict[str, Any]] = []
        start = 0
        for texts in _chunks(documents):
            logits = self._logits([query] * len(texts), texts, text)
            scores = scores_of(self.model.config, logits, self.model.settings.activation)[:, -1]
            answers = [
                {"corpus_id": start + i, "score": float(scores[i]), "text": texts[i]}
                for i in np.argsort(-scores, kind="stable")[:count].tolist()
            ]
            best = merge(best, answers, count)
            start += len(texts)
        return best

    def predict(
        self, pairs: Iterable[tuple[str, str]], *, prompt_name: str | None = None, prompt: str | None = None
    ) -> np.ndarray:
        """Score pairs of texts, like `CrossEncoder.predict` of sentence-transformers.

        Args:
            pairs: N pairs; pairs over the model's limit are cut.
            prompt_name: as for a call; put before the first text of each pair.
            prompt: text to put before the first text of each pair, instead of a named prompt.

        Returns:
            float64 `[N]`, with the model's activation applied; for a model with C > 1 outputs `[N, C]`, which are
            logits unless the model's files name an activation.

        Raises:
            InputError: an item is no pair of texts.
        """
        listed = [tuple(pair) for pair in pairs]
        if any(len(pair) != 2 for pair in listed):
            raise InputError("pairs: expected two texts each")
        first, second = (as_texts([pair[i] for pair in listed]) for i in range(2))
        config, named = self.model.config, self.model.settings.activation
        logits = self._logits(first, second, self.model.settings.prompt(prompt_name, prompt))
        scores = activate(score_activation(config, named) if config.num_labels == 1 else named or "identity", logits)
        return scores[:, 0] if config.num_labels == 1 else scores

    def _logits(self, first: list[str], second: list[str], prompt: str) -> np.ndarray:
        """Return the float64 logits `[n, C]` of pairs, with the prompt before each first text."""
        logits = np.zeros((len(first), self.model.config.num_labels))
        for window, inputs in self._windows(first, second, True, prompt):
            for rows, _, output in self._batches(inputs, ("logits",)):
                logits[rows + window.start] = output.logits
        return logits


def merge(best: list[dict[str, Any]], found: list[dict[str, Any]], top_k: int | None) -> list[dict[str, Any]]:
    """Merge two sorted lists of answers and keep the best `top_k`; at equal scores, `best` comes first."""
    return sorted(best + found, key=lambda answer: -answer["score"])[:top_k]


def _largest(scores: np.ndarray, top_k: int) -> list[list[tuple[int, float]]]:
    """Return the columns and values of the `top_k` largest scores of each row, the largest first."""
    places = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
    values = np.take_along_axis(scores, places, axis=1)
    return [list(zip(*row, strict=True)) for row in zip(places.tolist(), values.tolist(), strict=True)]


def _chunks(corpus: Iterable[str]) -> Iterator[list[str]]:
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
