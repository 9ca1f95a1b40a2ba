"""Dropout, and the random bits behind it."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.modeling.positions import Positions

_GOLDEN = np.uint32(0x9E3779B9)  # 2**32 over the golden ratio: spreads consecutive numbers


def dropout(x: jax.Array, rate: float, key: jax.Array | None, at: Positions | None = None) -> jax.Array:
    """Zeroes each element with probability `rate` and scales the rest up by 1/(1-rate); without a key, returns `x`.

    Where `x [B, P, D]` is of some positions of a sequence, they lose what they would lose in the whole of it.
    """
    if key is None or rate == 0.0:
        return x
    return drop(x, random_bits(key, x.shape, at), rate)


def drop(x: jax.Array, bits: jax.Array, rate: float) -> jax.Array:
    """Dropout of `x` by random bits, uint32, of its shape."""
    return jnp.where(bits >= np.uint32(rate * 2**32), x * (1.0 / (1.0 - rate)), jnp.zeros_like(x))


def random_bits(key: jax.Array, shape: tuple[int, ...], at: Positions | None = None) -> jax.Array:
    """Independent uint32 of `shape`, good enough to drop by and an order of magnitude cheaper than `jax.random.bits`.

    Two words from JAX's generator for every row are spread over its last axis by an integer hash. Like JAX's, it is
    elementwise: the same bits however the array is sharded, and recomputed rather than kept for the backward pass.
    """
    rows = shape[:-1] if at is None else (shape[0], at.length)
    words = jax.random.bits(key, (*rows, 2), jnp.uint32)
    return spread(words if at is None else at.of(words), shape[-1])


def spread(words: jax.Array, columns: int) -> jax.Array:
    """`[..., 2] -> [..., columns]`: random words to as many, uint32."""
    column = jax.lax.broadcasted_iota(jnp.uint32, (1,) * (words.ndim - 1) + (columns,), words.ndim - 1)
    return _hash((column * _GOLDEN) ^ words[..., :1], words[..., 1:])


def bits_of_scores(words: tuple[jax.Array, jax.Array], row: jax.Array, column: jax.Array) -> jax.Array:
    """The same for attention scores, from two words a head: uint32 that broadcast together.

    A kernel computes them from the words where it needs them.
    """
    first, second = words
    row = row * _GOLDEN
    return _hash((column * _GOLDEN) ^ _hash(row ^ first, second), _hash(row ^ second, first))


def _hash(h: jax.Array, word: jax.Array) -> jax.Array:
    """Two rounds of multiply and xor-shift with the constants of C. Wellons' "lowbias32", a word added between."""
    h = (h ^ (h >> 16)) * np.uint32(0x7FEB352D) + word
    h = (h ^ (h >> 15)) * np.uint32(0x846CA68B)
    return h ^ (h >> 16)
