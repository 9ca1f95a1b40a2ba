"""What texts mean, as vectors: embedding them, comparing them, finding the nearest, and ordering what was found.

Reimers and Gurevych 2019 (arXiv:1908.10084) for the vectors; Nogueira and Cho 2019 (arXiv:1901.04085) for the order.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import InputError
from bert_jax.inference.base import Pipeline, as_texts, positive, softmax

CHUNK = 4096  # texts of a corpus that are embedded and scored together


class SentenceEmbedding(Pipeline):
    """One vector for a whole text, pooled and scaled as the model's configuration says."""

    head = "sentence_embedding"

    def __call__(self, texts: str | Sequence[str], truncation: bool = True) -> np.ndarray:
        """Embeddings, by default of unit length: the dot product of two is their cosine.

        Args:
            texts: one text or a list of N.
            truncation: whether texts longer than the model's `max_length` are cut, as sentence-transformers does.

        Returns:
            float32 `[D]` for a text, `[N, D]` for a list.

        Raises:
            InputError: not texts, or too long.
        """
        listed = as_texts(texts)
        embeddings = np.zeros((len(listed), self.model.config.hidden_size), np.float32)
        for window, inputs in self._windows(listed, truncation=truncation):
            for rows, _, output in self._batches(inputs, ("sentence_embedding",)):
                embeddings[rows + window.start] = output.sentence_embedding
        return embeddings[0] if isinstance(texts, str) else embeddings


class Similarity(SentenceEmbedding):
    """How alike texts are: the cosines of their embeddings."""

    def __call__(self, first: str | Sequence[str], second: str | Sequence[str], truncation: bool = True) -> Any:  # type: ignore[override]
        """Cosines, from -1 to 1.

        Args:
            first: a text, or a list of N.
            second: a text, or a list of M.
            truncation: as for `SentenceEmbedding`.

        Returns:
            A float for two texts; float32 `[M]` for a text and a list, `[N]` for a list and a text, `[N, M]` for two
            lists: every text of the one with every text of the other.

        Raises:
            InputError: not texts, or too long.
        """
        vectors = [_unit(super(Similarity, self).__call__(as_texts(texts), truncation)) for texts in (first, second)]
        cosines = vectors[0] @ vectors[1].T
        if isinstance(first, str):
            return float(cosines[0, 0]) if isinstance(second, str) else cosines[0]
        return cosines[:, 0] if isinstance(second, str) else cosines


class _Chunk(NamedTuple):
    """A part of a corpus: the number of its first text, its texts, and their vectors [n, D], of unit length."""

    start: int
    texts: list[str]
    vectors: np.ndarray


class Search(SentenceEmbedding):
    """The texts of a corpus that are nearest to a query, by cosine; exact: every text is compared."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._chunks: list[_Chunk] | None = None

    def index(self, corpus: Iterable[str]) -> int:
        """Embeds a corpus once, to be searched by any number of calls; it takes the place of the one before.

        Args:
            corpus: texts, held here with their vectors.

        Returns:
            How many there are.

        Raises:
            InputError: a text is no string, or there is none.
        """
        self._chunks = list(self._embedded(corpus))
        return sum(len(chunk.texts) for chunk in self._chunks)

    def __call__(  # type: ignore[override]
        self, queries: str | Sequence[str], corpus: Iterable[str] | None = None, top_k: int = 10
    ) -> Any:
        """The nearest texts.

        Args:
            queries: a text, or a list of them.
            corpus: texts to search this once, of which only the best are held; None means those of `index`.
            top_k: how many for a query; all, where the corpus has fewer.

        Returns:
            For a query a list, the nearest first and of equals the earlier, of `{"corpus_id", "score", "text"}`: the
            text's number in the corpus from 0, its cosine, and itself. For a list of queries, a list of these.

        Raises:
            InputError: not texts, or there is no corpus.
        """
        top_k = positive("top_k", top_k)
        listed = as_texts(queries)
        if corpus is None and self._chunks is None:
            raise InputError("search: expected a corpus, given here or to index(), found none")
        vectors = _unit(super().__call__(listed))
        best: list[list[dict[str, Any]]] = [[] for _ in listed]
        for chunk in self._chunks or () if corpus is None else self._embedded(corpus):
            for start in range(0, len(listed), CHUNK):  # so that the scores are a square at the most
                rows = range(start, min(start + CHUNK, len(listed)))
                scores = vectors[start : rows.stop] @ chunk.vectors.T
                for row, found in zip(rows, _largest(scores, top_k), strict=True):
                    answers = [
                        {"corpus_id": chunk.start + i, "score": float(score), "text": chunk.texts[i]}
                        for i, score in found
                    ]
                    best[row] = merge(best[row], answers, top_k)
        return best[0] if isinstance(queries, str) else best

    def _embedded(self, corpus: Iterable[str]) -> Iterator[_Chunk]:
        start = 0
        for texts in _chunks(corpus):
            yield _Chunk(start, texts, _unit(super().__call__(texts)))
            start += len(texts)


class Rerank(Pipeline):
    """Documents in the order in which a model that reads each together with the query finds that they answer it."""

    head = "sequence_classification"

    def __call__(self, query: str, documents: Iterable[str], top_k: int | None = None) -> list[dict[str, Any]]:  # type: ignore[override]
        """Scores and sorts; a pair that is too long is cut.

        Args:
            query: a text.
            documents: texts; where `top_k` is given, only the best are held.
            top_k: how many; None means all.

        Returns:
            A list, the best first and of equals the earlier, of `{"corpus_id", "score", "text"}`: the document's number
            from 0, its score, and itself. A score is the probability of the second of two classes, the sigmoid of a
            model's only output, or for a regression that output.

        Raises:
            InputError: not texts, or the model has more than two outputs.
        """
        if self.model.config.num_labels > 2:
            raise InputError(f"rerank: expected a model with one output or two, found {self.model.config.num_labels}")
        (query,) = as_texts([query])
        count = None if top_k is None else positive("top_k", top_k)
        best: list[dict[str, Any]] = []
        start = 0
        for texts in _chunks(documents):
            scores = self._scores(query, texts)
            answers = [
                {"corpus_id": start + i, "score": float(scores[i]), "text": texts[i]}
                for i in np.argsort(-scores, kind="stable")[:count].tolist()
            ]
            best = merge(best, answers, count)
            start += len(texts)
        return best

    def _scores(self, query: str, texts: list[str]) -> np.ndarray:
        """float64 [n]."""
        config = self.model.config
        logits = np.zeros((len(texts), config.num_labels))
        for window, inputs in self._windows([query] * len(texts), texts, truncation=True):
            for rows, _, output in self._batches(inputs, ("logits",)):
                logits[rows + window.start] = output.logits
        if config.num_labels == 2:
            return softmax(logits)[:, 1]
        return logits[:, 0] if config.problem_type == "regression" else np.exp(-np.logaddexp(0, -logits[:, 0]))


def merge(best: list[dict[str, Any]], found: list[dict[str, Any]], top_k: int | None) -> list[dict[str, Any]]:
    """The best of two sorted lists of answers; of equals those of the first come first, which are the earlier ones."""
    return sorted(best + found, key=lambda answer: -answer["score"])[:top_k]


def _largest(scores: np.ndarray, top_k: int) -> list[list[tuple[int, float]]]:
    """For each row [n], the places and values of its largest, the largest first and of equals the earlier."""
    places = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
    values = np.take_along_axis(scores, places, axis=1)
    return [list(zip(*row, strict=True)) for row in zip(places.tolist(), values.tolist(), strict=True)]


def _chunks(corpus: Iterable[str]) -> Iterator[list[str]]:
    """Runs of a corpus. Raises InputError when it has no text, or something else."""
    if isinstance(corpus, str):
        raise InputError("corpus: expected a list of texts, found one text")
    texts, start = iter(corpus), 0
    while chunk := list(islice(texts, CHUNK)):
        for i, text in enumerate(chunk, start):
            if not isinstance(text, str):
                raise InputError(f"corpus: text {i}: expected a string, found {type(text).__name__}")
        yield chunk
        start += len(chunk)
    if not start:
        raise InputError("corpus: expected at least one text, found none")


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
