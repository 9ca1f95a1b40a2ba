"""Sliding-window attention in plain XLA, block by block: work and memory are linear in the length.

A block of 2W queries is scored against the 4W keys around it, of which each query attends to the 2W + 1 nearest, and
against the keys of the G tokens with global attention, if any (Beltagy et al. 2020, arXiv:2004.05150, section 3.1).
"""

import jax
import jax.numpy as jnp

from bert_jax.modeling.attention_mask import MASKED, AttentionMask
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.dropout import bits_of_scores
from bert_jax.modeling.kernels.plain import plain_attention


def supports(length: int, window: int | None) -> bool:
    """Return whether the blocks save at least half of the scores; never for a symbolic length (`jax.export`)."""
    return window is not None and isinstance(length, int) and length >= 8 * window


def bias(mask: AttentionMask, length: int) -> jax.Array:
    """Return the mask as a float32 bias of the scores of C blocks, `[B or 1, 1, C, 2W, 4W or G + 4W]`."""
    window = _window(mask)
    blocks = -(-length // (2 * window))
    rows, columns = _places(blocks, window)
    seen = (abs(rows - columns) <= window) & (columns >= 0) & (columns < length)
    batch = next((len(array) for array in (mask.key_ids, mask.global_tokens) if array is not None), 1)
    query_ids, key_ids = mask.ids(batch, length)
    queries = _halves(query_ids, blocks, window)[..., None]  # [B, C, 2W, 1]
    seen = seen & (queries == _around(key_ids, blocks, window)[..., None, :])
    if mask.global_tokens is not None and mask.is_global is not None:
        seen &= ~_around(mask.is_global, blocks, window)[..., None, :]
        ids = jnp.where(mask.global_tokens < length, mask.global_queries(length).of(key_ids), -1)
        seen = jnp.concatenate((queries == ids[:, None, None], seen), axis=-1)
    return jnp.where(seen, 0.0, MASKED).astype(jnp.float32)[:, None]


def local_attention(
    bias: jax.Array,  # the result of `bias`
    mask: AttentionMask,
    query: jax.Array,  # [B, N, S, H]
    key: jax.Array,  # [B, N or fewer, S, H], as is the next
    value: jax.Array,
    words: jax.Array | None,  # [B, N, 2] uint32, random words for dropout
    rate: float,
    compute: Compute,
) -> jax.Array:
    """Compute attention within the window, `[B, N, S, H]`: the same result as with `mask.bias`, also under dropout."""
    length, size = query.shape[2:]
    window, blocks = _window(mask), bias.shape[2]
    bits = None
    if words is not None:
        rows, columns = _places(blocks, window)
        if mask.global_tokens is not None:
            first = mask.global_tokens[:, None, None, None]  # [B, 1, 1, 1, G]
            columns = jnp.broadcast_to(columns, (len(first), 1, *columns.shape))
            columns = jnp.concatenate((jnp.broadcast_to(first, (*columns.shape[:-1], first.shape[-1])), columns), -1)
        places = rows.astype(jnp.uint32), columns.astype(jnp.uint32)
        bits = bits_of_scores((words[:, :, :1, None, None], words[:, :, 1:, None, None]), *places)
    query, (key, value) = _halves(query, blocks, window), (_keys(x, mask, blocks) for x in (key, value))
    result, _ = plain_attention(query, key, value, bias, bits, rate, compute)
    return result.reshape(*result.shape[:2], -1, size)[:, :, :length]


def _keys(x: jax.Array, mask: AttentionMask, blocks: int) -> jax.Array:
    """Return the keys (or values) of each block: first those of global tokens, then those around it."""
    nearby = _around(x, blocks, _window(mask))
    if mask.global_tokens is None:
        return nearby
    first = mask.global_queries(x.shape[2]).of(x.swapaxes(1, 2)).swapaxes(1, 2)[:, :, None]  # [B, N, 1, G, H]
    return jnp.concatenate((jnp.broadcast_to(first, (*nearby.shape[:3], *first.shape[3:])), nearby), axis=3)


def _window(mask: AttentionMask) -> int:
    assert mask.window is not None
    return mask.window


def _places(blocks: int, window: int) -> tuple[jax.Array, jax.Array]:
    """Return the positions of queries `[C, 2W, 1]` and keys `[C, 1, 4W]`; negative before the sequence."""
    first = 2 * window * jnp.arange(blocks, dtype=jnp.int32)[:, None, None]
    rows = first + jnp.arange(2 * window, dtype=jnp.int32)[:, None]
    return rows, first - window + jnp.arange(4 * window, dtype=jnp.int32)


def _halves(x: jax.Array, blocks: int, window: int) -> jax.Array:
    """Split queries into blocks: `[B, N, S, H] -> [B, N, C, 2W, H]`, or `[B, S] -> [B, C, 2W]`."""
    axis = min(x.ndim - 1, 2)
    x = _padded(x, axis, 0, 2 * window * blocks - x.shape[axis])
    return x.reshape(*x.shape[:axis], blocks, 2 * window, *x.shape[axis + 1 :])


def _around(x: jax.Array, blocks: int, window: int) -> jax.Array:
    """Return each block's keys with W more on either side: `[B, N, S, H] -> [B, N, C, 4W, H]`."""
    axis = min(x.ndim - 1, 2)
    x = _padded(x, axis, window, 2 * window * blocks + window - x.shape[axis])
    x = x.reshape(*x.shape[:axis], 2 * blocks + 2, window, *x.shape[axis + 1 :])
    parts = [jax.lax.slice_in_dim(x, i, 2 * blocks + i - 1, stride=2, axis=axis) for i in range(4)]
    return jnp.concatenate(parts, axis=axis + 1)


def _padded(x: jax.Array, axis: int, before: int, after: int) -> jax.Array:
    return jnp.pad(x, [(before, after) if i == axis else (0, 0) for i in range(x.ndim)])
