"""Vectors in bytes or bits, as `quantize_embeddings` of sentence-transformers makes them."""

from typing import Any, Literal

import numpy as np

from bert_jax.errors import InputError

VECTOR_PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")
Precision = Literal["float32", "int8", "uint8", "binary", "ubinary"]
_LEVELS = 255  # number of steps between the least and the greatest value of a dimension


def quantization_ranges(vectors: np.ndarray) -> np.ndarray:
    """Return the least and the greatest value of each dimension of vectors `[N, D]`, float32 `[2, D]`.

    Raises:
        InputError: there are fewer than two vectors, as their range would be empty.
    """
    if vectors.ndim != 2 or len(vectors) < 2:
        raise InputError(f"calibration: expected at least two vectors [N, D], found shape {list(vectors.shape)}")
    ranges: np.ndarray = np.stack([vectors.min(axis=0), vectors.max(axis=0)]).astype(np.float32)
    return ranges


def quantize_vectors(vectors: np.ndarray, precision: Precision, ranges: np.ndarray | None = None) -> np.ndarray:
    """Return vectors in fewer bytes.

    Args:
        vectors: float32 `[N, D]`.
        precision: `int8` and `uint8` are the number of the step in the range of a dimension, from 0 to 255 (less 128
            for int8), of 255 equal steps; values outside of the range are moved to its end. `binary` and `ubinary` are
            bits, 1 for a value above 0, eight dimensions in a byte (less 128 for binary). `float32` changes nothing.
        ranges: the least and the greatest value of each dimension, `[2, D]`; None = those of `vectors`.

    Returns:
        `[N, D]`, or for bits `[N, ceil(D / 8)]`; of the dtype int8 for `int8` and `binary`, else uint8.

    Raises:
        InputError: the precision is not known, or the ranges do not fit.
    """
    if precision not in VECTOR_PRECISIONS:
        raise InputError(f"precision: expected {', '.join(VECTOR_PRECISIONS)}, found {precision!r}")
    if precision == "float32":
        return vectors.astype(np.float32, copy=False)
    if precision.endswith("binary"):
        bits: np.ndarray = np.packbits(vectors > 0, axis=-1)
        return bits if precision == "ubinary" else (bits - 128).astype(np.int8)
    if not len(vectors):
        return np.zeros(vectors.shape, precision)
    starts, steps = _steps(quantization_ranges(vectors) if ranges is None else ranges, vectors.shape[1])
    numbers: np.ndarray = np.clip(np.floor((vectors - starts) / steps), 0, _LEVELS)
    return (numbers - 128).astype(np.int8) if precision == "int8" else numbers.astype(np.uint8)


def dequantize_vectors(vectors: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Return the values at which the steps of `int8` or `uint8` vectors begin, float32 `[N, D]`.

    Args:
        vectors: int8 or uint8 `[N, D]`.
        ranges: the ranges with which they were quantized.
    """
    starts, steps = _steps(ranges, vectors.shape[1])
    offset = 128 if vectors.dtype == np.int8 else 0
    values: np.ndarray = (vectors.astype(np.float32) + np.float32(offset)) * steps + starts
    return values


def int8_scores(query: np.ndarray, vectors: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Return the dot products `[N]` of a query `[D]` and `dequantize_vectors` of int8 vectors, which are not made."""
    starts, steps = _steps(ranges, vectors.shape[1])
    scores: np.ndarray = vectors.astype(np.float32) @ (query * steps) + query @ (starts + 128 * steps)
    return scores


def calibration_ranges(calibration: Any, size: int) -> np.ndarray:
    """Return the ranges of calibration vectors.

    Args:
        calibration: vectors `[N, D]`; of ranges `[2, D]` the ranges are these themselves.
        size: the expected D, or a smaller number of leading dimensions that are used.

    Raises:
        InputError: it is no array of at least two vectors with as many dimensions.
    """
    vectors = np.asarray(calibration)
    if vectors.ndim != 2 or vectors.shape[1] < size or not np.issubdtype(vectors.dtype, np.floating):
        found = f"{vectors.dtype} {list(vectors.shape)}"
        raise InputError(f"calibration: expected vectors of floats [N, {size}], found {found}")
    return quantization_ranges(vectors[:, :size])


def _steps(ranges: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the start and the step of each dimension, float32 `[D]`."""
    if ranges.shape != (2, size):
        raise InputError(f"ranges: expected shape [2, {size}], found {list(ranges.shape)}")
    starts, ends = ranges.astype(np.float32, copy=False)
    steps = (ends - starts) / _LEVELS
    return starts, np.where(steps == 0, np.float32(1), steps)
