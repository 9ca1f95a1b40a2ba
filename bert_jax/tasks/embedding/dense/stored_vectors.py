"""Sentence embeddings in an index on disk: floats, bytes or bits, and their similarities with a query."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bert_jax.errors import InputError
from bert_jax.inference.similarity import comparable, compare
from bert_jax.tasks.embedding.dense.quantization import (
    calibration_ranges,
    dequantize_vectors,
    int8_scores,
    quantization_ranges,
    quantize_vectors,
)
from bert_jax.tasks.embedding.index_files import IndexFiles, IndexWriter

STORED_PRECISIONS = ("float32", "float16", "int8", "binary")
RESCORE_PRECISIONS = ("float32", "float16", "int8")
_BLOCK = 1 << 16  # vectors that are compared with a query, or quantized, at a time
_WORD = 64  # bits in a number of an array of bits


class StoredVectors:
    """An array of vectors in an index, mapped into memory.

    Args:
        files: the files of the index.
        name: name of the array.
        precision: one of `STORED_PRECISIONS`.
        count: number of vectors.
        size: number of dimensions.
        similarity: the similarity by which they are compared.
    """

    def __init__(self, files: IndexFiles, name: str, precision: str, count: int, size: int, similarity: str):
        self.precision, self._size, self._similarity = precision, size, similarity
        width = -(-size // _WORD) if precision == "binary" else size
        self.array = files.array(name, "<u8" if precision == "binary" else precision, (count, width))
        self.ranges = np.asarray(files.array("ranges", np.float32, (2, size))) if precision == "int8" else None

    def __len__(self) -> int:
        return len(self.array)

    def scores(self, query: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the similarities of a query `[1, D]` with all vectors, or with those of `rows`, float32.

        Of bits, the similarity is the sum of the query's values at the bits that are 1.
        """
        return self._in_blocks(lambda part: self._similarities(query, part), rows)

    def bit_scores(self, query: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the negative number of bits in which vectors differ from a query `[1, D]`, float32."""
        (bits,) = as_bits(query)
        return self._in_blocks(lambda part: -_differing_bits(bits, part), rows)

    def decoded(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the vectors of rows as float32 `[n, D]`, a block at a time; bits as 0 and 1."""
        for start in range(0, len(rows), _BLOCK):
            stored = self.array[rows[start : start + _BLOCK]]
            if self.ranges is not None:
                yield dequantize_vectors(stored, self.ranges)
            else:
                yield (self._bits(stored) if self.precision == "binary" else stored).astype(np.float32)

    def _bits(self, stored: np.ndarray) -> np.ndarray:
        return np.unpackbits(np.ascontiguousarray(stored).view(np.uint8), axis=1)[:, : self._size]

    def _in_blocks(self, scores_of: Any, rows: np.ndarray | None) -> np.ndarray:
        if rows is not None:
            scores: np.ndarray = scores_of(self.array[rows])
            return scores
        starts = range(0, len(self.array), _BLOCK)
        return np.concatenate([scores_of(self.array[start : start + _BLOCK]) for start in starts])

    def _similarities(self, query: np.ndarray, stored: np.ndarray) -> np.ndarray:
        scores: np.ndarray
        if self.precision == "binary":
            scores = self._bits(stored).astype(np.float32) @ query[0]
        elif self.ranges is not None and self._similarity in ("cosine", "dot"):
            scores = int8_scores(query[0], stored, self.ranges)
        elif self.ranges is not None:
            scores = compare(self._similarity, query, dequantize_vectors(stored, self.ranges))[0]
        else:
            scores = compare(self._similarity, query, stored.astype(np.float32, copy=False))[0]
        return scores


class VectorWriter:
    """Writes vectors to an index in one precision, and perhaps in another one by which candidates are scored again.

    Attributes:
        ranges: the ranges of int8, `[2, D]`; None = not needed, or not known yet.

    Args:
        files: the files of the index.
        similarity: the similarity of the vectors.
        precision: one of `STORED_PRECISIONS`.
        rescore_precision: one of `RESCORE_PRECISIONS`, or None.

    Raises:
        InputError: a precision is not known, or does not fit the similarity or the other precision.
    """

    def __init__(self, files: IndexWriter, similarity: str, precision: str, rescore_precision: str | None):
        _check_precision("precision", precision, STORED_PRECISIONS)
        if precision == "binary" and similarity not in ("cosine", "dot"):
            raise InputError(f"precision: expected a model of similarity cosine or dot for binary, found {similarity}")
        if rescore_precision is not None:
            _check_precision("rescore_precision", rescore_precision, RESCORE_PRECISIONS)
            order = STORED_PRECISIONS.index
            if order(rescore_precision) >= order(precision):
                raise InputError(
                    f"rescore_precision: expected a higher precision than {precision}, found {rescore_precision}"
                )
        self._files, self._similarity = files, similarity
        self._precisions = {"vectors": precision} | (
            {} if rescore_precision is None else {"rescore_vectors": rescore_precision}
        )
        self.ranges: np.ndarray | None = None

    def calibrated(self, chunks: Iterable[np.ndarray], calibration: Any, ranges: Any) -> Iterator[np.ndarray]:
        """Yield chunks of vectors, float32 `[n, D]`; the ranges of int8 are known before the first one is yielded.

        Args:
            chunks: the vectors.
            calibration: vectors that set the ranges, `[N, D or more]`; None = all of `chunks`.
            ranges: the ranges, instead of calibration vectors.
        """
        if "int8" not in self._precisions.values():
            if calibration is not None:
                raise InputError("calibration: expected the precision int8, found another one")
            yield from (chunk.astype(np.float32, copy=False) for chunk in chunks)
            return
        if ranges is not None or calibration is not None:
            self.ranges = ranges
            for chunk in chunks:
                if self.ranges is None:
                    size = chunk.shape[1]
                    calibration_ranges(calibration, size)  # checks its shape
                    self.ranges = quantization_ranges(comparable(self._similarity, np.asarray(calibration)[:, :size]))
                yield chunk.astype(np.float32, copy=False)
            return
        for chunk in chunks:
            self._files.append("exact_vectors", chunk.astype(np.float32, copy=False))
        vectors = self._files.read("exact_vectors")
        if len(vectors) < 2:
            raise InputError("precision: expected at least two texts or calibration vectors for int8, found one text")
        parts = [quantization_ranges(np.concatenate([vectors[i : i + _BLOCK], vectors[:1]])) for i in
                 range(0, len(vectors), _BLOCK)]  # fmt: skip
        self.ranges = quantization_ranges(np.concatenate(parts))
        for start in range(0, len(vectors), _BLOCK):
            yield vectors[start : start + _BLOCK]
        self._files.drop("exact_vectors")

    def append(self, vectors: np.ndarray) -> None:
        """Append float32 vectors `[n, D]`."""
        for name, precision in self._precisions.items():
            self._files.append(name, self._stored(vectors, precision))

    def _stored(self, vectors: np.ndarray, precision: str) -> np.ndarray:
        if precision == "binary":
            return as_bits(vectors)
        return quantize_vectors(vectors, "int8", self.ranges) if precision == "int8" else vectors.astype(precision)

    def close(self) -> dict[str, Any]:
        """Write the ranges; return the entries of `index.json`."""
        if self.ranges is not None:
            self._files.append("ranges", self.ranges.astype(np.float32))
        return about_precision(self._precisions["vectors"], self._precisions.get("rescore_vectors"))


def about_precision(precision: str, rescore_precision: str | None) -> dict[str, str]:
    """Return the entries of `index.json` for the precisions of vectors; without them, vectors are in float32."""
    entries = {} if precision == "float32" else {"precision": precision}
    return entries if rescore_precision is None else entries | {"rescore_precision": rescore_precision}


def as_bits(vectors: np.ndarray) -> np.ndarray:
    """Return the bits of vectors `[N, D]`, 1 for a value above 0, as uint64 `[N, ceil(D / 64)]`, filled up with 0."""
    packed = quantize_vectors(vectors, "ubinary")
    width = -(-vectors.shape[1] // _WORD) * _WORD // 8
    return np.ascontiguousarray(np.pad(packed, ((0, 0), (0, width - packed.shape[1])))).view("<u8")


def _differing_bits(bits: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """Return the number of bits in which rows `[N, W]` differ from `bits` `[W]`, float32 `[N]`."""
    counts = np.zeros(len(stored), np.float32)
    for column, word in enumerate(bits):  # column by column, as NumPy sums short rows slowly
        counts += np.bitwise_count(stored[:, column] ^ word)
    return counts


def _check_precision(name: str, precision: str, known: tuple[str, ...]) -> None:
    if precision not in known:
        raise InputError(f"{name}: expected {', '.join(known)} for sentence embeddings, found {precision!r}")
