"""The truncations of embeddings that Matryoshka trains (Kusupati et al. 2022, arXiv:2205.13147)."""

import math
from typing import Any

from bert_jax.errors import InputError


def matryoshka_cuts(data: Any, size: int) -> tuple[tuple[int, float], ...]:
    """Return (dimensions, weight) of each Matryoshka truncation. Raises InputError for invalid settings."""
    dims, weights = tuple(data.matryoshka_dims), tuple(data.matryoshka_weights)
    fitting = all(isinstance(n, int) and not isinstance(n, bool) and 0 < n <= size for n in dims)
    if not fitting or len(set(dims)) < len(dims):
        expected = f"different numbers from 1 to {size}, the dimensions of an embedding"
        raise InputError(f"config.data.matryoshka_dims: expected {expected}, found {dims}")
    if weights and len(weights) != len(dims):
        expected = f"a weight for each of the {len(dims)} matryoshka_dims"
        raise InputError(f"config.data.matryoshka_weights: expected {expected}, found {weights}")
    if not all(isinstance(w, int | float) and math.isfinite(w) and w >= 0 for w in weights):
        raise InputError(f"config.data.matryoshka_weights: expected numbers of at least 0, found {weights}")
    if dims and data.loss in ("tsdae", "none"):
        raise InputError(f"config.data.matryoshka_dims: expected () for loss {data.loss!r}, found {dims}")
    return tuple(zip(dims, map(float, weights or (1,) * len(dims)), strict=True))
