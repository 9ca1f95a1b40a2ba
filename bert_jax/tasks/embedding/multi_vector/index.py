"""A late-interaction index: vectors of tokens on disk, and centroids that bound the scores of texts."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.errors import InputError
from bert_jax.inference.similarity import EMPTY_SCORE, max_similarities
from bert_jax.tasks.embedding.index_files import IndexFiles, IndexWriter
from bert_jax.tasks.embedding.search_index import SearchIndex, best_texts, rows_of_texts

PRECISIONS = ("float32", "float16", "int8")
_BLOCK = 1 << 16  # tokens whose bounds, codes or distances are computed together
_SCORED = 64  # texts whose exact scores are computed together
_SAMPLE = 64  # sampled tokens per centroid for k-means
_ROUNDS = 8  # rounds of k-means
_TEXTS_COPIED = 1 << 10  # texts whose vectors are copied together
_SLACK = 1e-4  # relative error of bounds in float32


class MultiVectorIndex(SearchIndex):
    """Vectors of tokens on disk, mapped into memory. Search is exact for the vectors as they are stored.

    Each vector is the sum of a centroid and a residual (Santhanam et al. 2022, arXiv:2112.01488, section 3.3). The
    product of a query's vector q with the centroid, plus |q| times the residual's length, bounds the product with the
    vector. Texts are scored in descending order of the sums of these bounds, until no other can be among the best.
    """

    options = ("precision", "centroids")

    def __init__(self, files: IndexFiles, width: int, similarity: str):
        super().__init__(files, width, similarity)
        precision = str(files.about.get("precision"))
        if precision not in PRECISIONS:
            raise files.damaged(f"a precision of {', '.join(PRECISIONS)}")
        self._precision = precision
        lengths = np.asarray(files.array("lengths", np.int64, (files.count,)))
        self._vectors = files.array("vectors", precision, (None, width))
        count = len(self._vectors)
        self._lengths, self._starts = lengths, files.starts(lengths, count, "lengths")
        self._stored_codes = files.array("codes", np.int32, (count,))
        self._residuals = files.array("residual_lengths", np.float32, (count,))
        self._centroids = np.asarray(files.array("centroids", np.float32, (None, width)))
        self._scales = files.array("scales", np.float32, (count,)) if precision == "int8" else None

    @classmethod
    def write(
        cls, files: IndexWriter, chunks: Iterable[Sequence[np.ndarray]], similarity: str, *,
        precision: str = "float32", centroids: int | None = None, seed: int = 0, **options: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """Write an index of texts whose vectors are arrays `[T, D]`.

        Args:
            files: the files of the index.
            chunks: the texts.
            similarity: not used: every similarity of such models is a sum of maxima.
            precision: one of `PRECISIONS`: the dtype of the vectors, or int8 for their residuals.
            centroids: number of centroids; None means the greatest power of two up to 4 * sqrt(number of tokens).
            seed: seed for sampling the tokens from which the centroids are computed.

        Raises:
            InputError: the precision is not known, or no text has a scored token.
        """
        if precision not in PRECISIONS:
            raise InputError(f"precision: expected {', '.join(PRECISIONS)}, found {precision!r}")
        name = "exact_vectors" if precision == "int8" else "vectors"
        for chunk in chunks:
            files.append("lengths", np.array([len(vectors) for vectors in chunk], np.int64))
            if tokens := [vectors for vectors in chunk if len(vectors)]:
                files.append(name, np.concatenate(tokens).astype("float16" if precision == "float16" else "float32"))
        lengths = files.read("lengths")
        if not lengths.sum():
            raise InputError("index: expected texts with tokens that are scored, found none")
        vectors = files.read(name)
        count = centroids or 1 << max(0, int(4 * np.sqrt(len(vectors))).bit_length() - 1)
        centers = _k_means(vectors, min(count, len(vectors)), np.random.default_rng(seed))
        files.append("centroids", centers)
        for start in range(0, len(vectors), _BLOCK):
            _write_residuals(files, vectors[start : start + _BLOCK].astype(np.float32), centers, precision)
        if precision == "int8":
            files.drop(name)
        return {"texts": len(lengths), "tokens": len(vectors), "precision": precision}

    @property
    def write_options(self) -> dict[str, Any]:
        return {"precision": self._precision}

    @classmethod
    def merge(cls, files: IndexWriter, parts: Sequence[Any]) -> dict[str, Any]:
        first: MultiVectorIndex = parts[0]
        if first._precision != "int8":
            about = cls.write(files, _live_vectors(parts), first._similarity, precision=first._precision)
            return {name: value for name, value in about.items() if name != "texts"}
        tokens = centroids = 0  # centroids of all parts are kept, as other ones would round the residuals once more
        for part in parts:
            numbers = part.live_numbers
            rows = rows_of_texts(part._starts, numbers)
            files.append_rows("lengths", part._lengths, numbers)
            for name, array in (("vectors", part._vectors), ("residual_lengths", part._residuals),
                                ("scales", part._scales), ("codes", part._codes + np.int32(centroids))):  # fmt: skip
                files.append_rows(name, array, rows)
            files.append("centroids", part._centroids)
            tokens, centroids = tokens + len(rows), centroids + len(part._centroids)
        return {"tokens": tokens, "precision": first._precision}

    @functools.cached_property
    def _codes(self) -> np.ndarray:
        """The number of each vector's centroid, checked on first use."""
        codes = self._stored_codes
        if len(codes) and not 0 <= codes.min() <= codes.max() < len(self._centroids):
            raise self._files.damaged(f"codes below {len(self._centroids):,}")
        return codes

    def vectors(self, text: int) -> np.ndarray:
        """Return the vectors of a text in their stored precision, as float32 `[T, D]`."""
        place = slice(self._starts[text], self._starts[text + 1])
        stored = self._vectors[place].astype(np.float32)
        if self._scales is None:
            return stored
        vectors: np.ndarray = self._centroids[self._codes[place]] + stored * self._scales[place, None]
        return vectors

    def _best(self, query: Sequence[np.ndarray], top_k: int) -> tuple[np.ndarray, np.ndarray]:
        bounds = self._bounds(query[0])
        order = np.argsort(-bounds, kind="stable")
        if self.live is not None:
            order = order[self.live[order]]
        scores, numbers = np.zeros(0, np.float32), np.zeros(0, np.int64)
        for start in range(0, len(order), _SCORED):
            if len(scores) == top_k and bounds[order[start]] < scores.min():
                break
            texts = order[start : start + _SCORED]
            exact = max_similarities("maxsim", query, [self.vectors(text) for text in texts])[0]
            scores, numbers = np.concatenate([scores, exact]), np.concatenate([numbers, texts])
            by_number = np.argsort(numbers)
            scores, best = best_texts(scores[by_number], top_k)
            numbers = numbers[by_number][best]
        if self._similarity == "meanmaxsim":
            scores = scores / np.float32(max(len(query[0]), 1))
        return scores, numbers

    def _bounds(self, query: np.ndarray) -> np.ndarray:
        """Return an upper bound of the score of each text, float64 `[N]`."""
        table, lengths = query @ self._centroids.T, np.linalg.norm(query, axis=1)[:, None]
        bounds = np.full(len(self._lengths), EMPTY_SCORE, np.float64)
        for texts in _blocks(self._lengths):
            place = slice(self._starts[texts[0]], self._starts[texts[-1] + 1])
            most = table[:, self._codes[place]] + lengths * self._residuals[place]
            best = np.maximum.reduceat(most, self._starts[texts] - place.start, axis=1)
            bounds[texts] = best.sum(axis=0, dtype=np.float64)
        loosened: np.ndarray = bounds + _SLACK * (1 + np.abs(bounds) + lengths.sum())
        return loosened


def _live_vectors(parts: Sequence[MultiVectorIndex]) -> Iterator[list[np.ndarray]]:
    """Yield the vectors of texts that are not deleted, a chunk of texts at a time."""
    for part in parts:
        numbers = part.live_numbers
        for start in range(0, len(numbers), _TEXTS_COPIED):
            yield [part.vectors(number) for number in numbers[start : start + _TEXTS_COPIED]]


def _write_residuals(files: IndexWriter, vectors: np.ndarray, centers: np.ndarray, precision: str) -> None:
    codes = _nearest_centers(vectors, centers)
    residuals = vectors - centers[codes]
    if precision == "int8":
        scales = np.maximum(np.abs(residuals).max(axis=1), 1e-12).astype(np.float32) / 127
        rounded = np.rint(residuals / scales[:, None]).astype(np.int8)
        files.append("vectors", rounded)
        files.append("scales", scales)
        residuals = rounded * scales[:, None]
    files.append("codes", codes.astype(np.int32))
    files.append("residual_lengths", np.linalg.norm(residuals, axis=1).astype(np.float32))


def _k_means(vectors: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return the centers of `count` clusters of a sample of vectors, float32 `[count, D]` (Lloyd 1982)."""
    rows = np.sort(rng.choice(len(vectors), min(len(vectors), _SAMPLE * count), replace=False))
    sample = vectors[rows].astype(np.float32)
    centers = sample[rng.choice(len(sample), count, replace=False)]
    for _ in range(_ROUNDS):
        codes = _nearest_centers(sample, centers)
        order = np.argsort(codes, kind="stable")
        filled, begins = np.unique(codes[order], return_index=True)
        sums = np.add.reduceat(sample[order], begins, axis=0)
        centers[filled] = sums / np.diff([*begins, len(sample)])[:, None]  # a center without vectors is not moved
    return centers


def _nearest_centers(vectors: np.ndarray, centers: np.ndarray) -> np.ndarray:
    half = np.square(centers).sum(axis=1) / 2
    rows = max(1, _BLOCK * 64 // len(centers))  # so that the products fit into memory
    parts = [vectors[i : i + rows] @ centers.T - half for i in range(0, len(vectors), rows)]
    return np.concatenate([part.argmax(axis=1) for part in parts])


def _blocks(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the numbers of texts that have tokens, in consecutive blocks of about `_BLOCK` tokens."""
    filled = np.flatnonzero(lengths)
    parts = np.cumsum(lengths[filled]) // _BLOCK
    yield from np.split(filled, np.flatnonzero(np.diff(parts)) + 1)
