"""Dropout and its random bits."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.modeling.positions import Positions

_GOLDEN = np.uint32(0x9E3779B9)  # 2**32 over the golden ratio: spreads consecutive numbers


def dropout(x: jax.Array, rate: float, key: jax.Array | None, at: Positions | None = None) -> jax.Array:
    """Zero each element with probability `rate` and scale the rest by 1 / (1 - rate); without a key, return `x`.

    For `x [B, P, D]` at some positions of a sequence, the same elements are dropped as in the whole sequence.
    """
    if key is None or rate == 0.0:
        return x
    return drop(x, random_bits(key, x.shape, at), rate)


def drop(x: jax.Array, bits: jax.Array, rate: float) -> jax.Array:
    """Apply dropout to `x` with random bits, uint32, of the same shape."""
    return jnp.where(bits >= np.uint32(rate * 2**32), x * (1.0 / (1.0 - rate)), jnp.zeros_like(x))


def random_bits(key: jax.Array, shape: tuple[int, ...], at: Positions | None = None) -> jax.Array:
    """Return random uint32 of `shape`, good enough for dropout and ten times cheaper than `jax.random.bits`.

    An integer hash expands two words per row, from JAX's generator, along the last axis. The hash is elementwise, so
    the bits do not depend on sharding, and the backward pass can recompute them.
    """
    rows = shape[:-1] if at is None else (shape[0], at.length)
    words = jax.random.bits(key, (*rows, 2), jnp.uint32)
    return spread(words if at is None else at.of(words), shape[-1])


def spread(words: jax.Array, columns: int) -> jax.Array:
    """Hash two random words per row, `[..., 2]`, to `[..., columns]` random uint32."""
    column = jax.lax.broadcasted_iota(jnp.uint32, (1,) * (words.ndim - 1) + (columns,), words.ndim - 1)
    return _hash((column * _GOLDEN) ^ words[..., :1], words[..., 1:])


def bits_of_scores(words: tuple[jax.Array, jax.Array], row: jax.Array, column: jax.Array) -> jax.Array:
    """Hash two random words per head to random uint32 for attention scores; the arguments broadcast together.

    A kernel computes the bits of a block of scores from the words.
    """
    first, second = words
    row = row * _GOLDEN
    return _hash((column * _GOLDEN) ^ _hash(row ^ first, second), _hash(row ^ second, first))


def _hash(h: jax.Array, word: jax.Array) -> jax.Array:
    """Hash `h` with C. Wellons' "lowbias32", adding `word` between its two rounds of multiply and xor-shift."""
    h = (h ^ (h >> 16)) * np.uint32(0x7FEB352D) + word
    h = (h ^ (h >> 15)) * np.uint32(0x846CA68B)
    return h ^ (h >> 16)
