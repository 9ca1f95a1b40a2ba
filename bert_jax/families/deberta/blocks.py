"""Disentangled attention in plain XLA (He et al. 2020, arXiv:2006.03654, section 3.1), as a whole or in blocks.

A position term of a score is the product of its query, or of its key, with the projected embedding of the distance
between both. Embeddings are first arranged by distance, with static indices. Each block of rows is then one matrix
product, whose rows are shifted: neither the forward nor the backward pass gathers or scatters scores.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.dropout import bits_of_scores
from bert_jax.modeling.kernels.plain import plain_attention
from bert_jax.modeling.positions import Positions

_BLOCK = 128  # number of rows in a block, if it divides the length
_SHORTEST = 1024  # length from which on attention is computed in blocks


def distance_rows(longest: int, span: int, buckets: int, most: int) -> np.ndarray:
    """Return the row of the table of relative positions for each distance from query to key.

    Distances up to half of the buckets have a row each; greater ones share rows on a log scale, and all from `most` on
    share the last row (He et al. 2021, arXiv:2111.09543, appendix A.5 of 2006.03654).

    Args:
        longest: S, the greatest length.
        span: half of the number of rows.
        buckets: number of buckets on either side; 0 = a row for each distance.
        most: distance from which on all share the last row.

    Returns:
        int32 `[2S - 1]`, for query minus key position = 1 - S, ..., S - 1.
    """
    distance = np.arange(1 - longest, longest)
    if buckets:
        exact = buckets // 2
        far = np.maximum(abs(distance), exact).astype(np.float32) / np.float32(exact)
        scale = np.log(np.float32((most - 1) / exact)) if most - 1 > exact else np.float32(1)
        bucket = np.ceil(np.log(far) / scale * np.float32(exact - 1)).astype(np.int64) + exact
        distance = np.where(abs(distance) <= exact, distance, np.sign(distance) * bucket)
    return np.clip(distance + span, 0, 2 * span - 1).astype(np.int32)


def position_scores(
    query: jax.Array,  # [B, N, S, H], scaled; [B, N, P, H] with query positions
    key: jax.Array,  # [B, N, S, H]
    position_key: jax.Array | None,  # [R, N, H], for content to position
    position_query: jax.Array | None,  # [R, N, H], scaled, for position to content
    rows: np.ndarray,  # the result of `distance_rows`
    at: Positions | None,
    compute: Compute,
) -> jax.Array:
    """Return the sum of the position terms of the scores, float32 `[B, N, S or P, S]`."""
    length = key.shape[2]
    longest = len(rows) // 2 + 1
    if at is not None:
        place = at.index[..., None] - jnp.arange(length) + longest - 1  # [B, P, S]
        index = jnp.asarray(rows)[place][:, None]
    terms = []
    if position_key is not None:
        if at is None:
            terms.append(_by_distance(query, position_key, rows[::-1], compute))
        else:
            products = _products("bnph,rnh->bnpr", query, position_key, compute)
            terms.append(jnp.take_along_axis(products, index, axis=3))
    if position_query is not None:
        if at is None:
            terms.append(_by_distance(key, position_query, rows, compute).swapaxes(2, 3))
        else:
            products = _products("bnsh,rnh->bnrs", key, position_query, compute)
            terms.append(jnp.take_along_axis(products, index, axis=2))
    return functools.reduce(jnp.add, (term.astype(jnp.float32) for term in terms))


def laid_out(
    position_key: jax.Array | None, position_query: jax.Array | None, rows: np.ndarray
) -> tuple[jax.Array | None, jax.Array | None]:
    """Return both tables arranged by distance, `[2S, N, H]`; the last row is an extra one for the shift.

    The first table is in order of key minus query position, the second in order of query minus key position. The
    arguments are those of `position_scores`.
    """
    orders = ((position_key, rows[::-1]), (position_query, rows))
    by_key, by_query = (None if table is None else table[np.append(order, order[-1])] for table, order in orders)
    return by_key, by_query


def supports(length: int) -> bool:
    """Return whether attention is computed in blocks; never for a symbolic length (`jax.export`)."""
    return isinstance(length, int) and length >= _SHORTEST and length % _BLOCK == 0


def attention_in_blocks(
    mask: AttentionMask,
    query: jax.Array,  # [B, N, S, H], scaled for the number of terms; the next two [B, N, S, H]
    key: jax.Array,
    value: jax.Array,
    position_key: jax.Array | None,  # this and the next two are as in `position_scores`
    position_query: jax.Array | None,
    rows: np.ndarray,
    words: jax.Array | None,  # [B, N, 2] uint32, random words for dropout
    rate: float,
    compute: Compute,
) -> jax.Array:
    """Compute disentangled attention by blocks of queries, `[B, N, S, H]`, with memory linear in the length.

    The backward pass recomputes the scores of a block. The result equals that of plain attention with
    `position_scores`, also under dropout.
    """
    batch, heads, length, size = query.shape
    scale, blocks = size**-0.5, length // _BLOCK
    of_queries, of_keys = laid_out(position_key, position_query, rows)

    def attend(start: jax.Array, x: jax.Array) -> jax.Array:
        """Return the context of the queries `x [B, N, Q, H]` from position `start` on."""
        terms = []
        if of_queries is not None:
            near = jax.lax.dynamic_slice_in_dim(of_queries, length - _BLOCK - start, length + _BLOCK)
            terms.append(_shifted(_products("bnqh,wnh->bnqw", x * scale, near, compute)))
        if of_keys is not None:
            terms.append(_of_keys(key, jax.lax.dynamic_slice_in_dim(of_keys, start, length + _BLOCK), compute))
        places = jnp.broadcast_to(start + jnp.arange(_BLOCK), (batch, _BLOCK))
        bias = functools.reduce(jnp.add, (term.astype(jnp.float32) for term in terms))
        masked, bits = mask.bias(length, Positions(places, length)), None
        if words is not None:
            bits = bits_of_scores(
                (words[..., :1, None], words[..., 1:, None]),
                places[:, None, :, None].astype(jnp.uint32),
                jnp.arange(length, dtype=jnp.uint32),
            )
        return plain_attention(x, key, value, bias if masked is None else bias + masked, bits, rate, compute)[0]

    query_blocks = query.reshape(batch, heads, blocks, _BLOCK, size).transpose(2, 0, 1, 3, 4)
    attend = jax.checkpoint(attend, prevent_cse=False)
    attended = jax.lax.map(lambda block: attend(*block), (_BLOCK * jnp.arange(blocks), query_blocks))
    return attended.transpose(1, 2, 0, 3, 4).reshape(batch, heads, length, size)


def _of_keys(key: jax.Array, laid_out: jax.Array, compute: Compute) -> jax.Array:
    """Return the position-to-content term of a block of queries, `[B, N, Q, S]`.

    Args:
        key: `[B, N, S, H]`.
        laid_out: `[S + Q, N, H]`, embeddings by query minus key position, from first query minus last key on.
        compute: dtype and platform.
    """
    batch, heads, length, size = key.shape
    chunks = laid_out.reshape(-1, _BLOCK, *laid_out.shape[1:])
    pairs = jnp.concatenate([chunks[:-1], chunks[1:]], axis=1)[::-1]  # [C, 2Q, N, H], embeddings of each block of keys
    blocks = key.reshape(batch, heads, -1, _BLOCK, size)
    scores = _shifted(_products("bnckh,cwnh->bnckw", blocks, pairs, compute))  # [B, N, C, K, Q]
    return scores.reshape(batch, heads, length, _BLOCK).swapaxes(2, 3)


def _by_distance(x: jax.Array, table: jax.Array, rows: np.ndarray, compute: Compute) -> jax.Array:
    """Return `[B, N, S, S]`: the product of `x [B, N, S, H]` at i with `table [R, N, H]` at the row of distance j - i.

    Args:
        x: queries or keys.
        table: projected embeddings of relative positions.
        rows: row of the table for distances 1 - S, ..., S - 1, or those of a longer sequence.
        compute: dtype and platform.
    """
    batch, heads, length, size = x.shape
    block = _BLOCK if isinstance(length, int) and length % _BLOCK == 0 else length
    blocks, longest = length // block, len(rows) // 2 + 1
    rows = np.append(rows, rows[-1])  # an extra row for the shift, which no score has
    if isinstance(length, int):
        first = [longest - block - c * block for c in range(blocks)]
        laid_out = table[np.stack([rows[start : start + length + block] for start in first])]  # [C, S + Q, N, H]
    else:  # a symbolic length (`jax.export`)
        laid_out = table[jnp.asarray(rows)[longest - length : longest + length]][None]
    # Row q of a block at position i has the product for distance j - i in column j + Q - 1 - q.
    products = _products("bncqh,cwnh->bncqw", x.reshape(batch, heads, blocks, block, size), laid_out, compute)
    return _shifted(products).reshape(batch, heads, length, length)


def _shifted(x: jax.Array) -> jax.Array:
    """Drop the first Q - 1 - q and the last q + 1 columns of each row q, `[..., Q, S + Q] -> [..., Q, S]`."""
    *outer, rows, width = x.shape
    # A reshape to rows that are shorter by one moves row q by q columns to the right. The Q elements left over are cut
    # off as one row, since a symbolic length (`jax.export`) allows no slice of an axis of S * 2S.
    x = jax.lax.slice_in_dim(x.reshape(*outer, width, rows), 0, width - 1, axis=-2)
    return x.reshape(*outer, rows, width - 1)[..., rows - 1 :]


def _products(form: str, x: jax.Array, table: jax.Array, compute: Compute) -> jax.Array:
    """Return the einsum of x and table in the activation dtype: in float32, `_shifted` would move twice the bytes."""
    exact = jax.lax.Precision.HIGHEST if compute.dtype == "float32" else None
    x, table = x.astype(compute.dtype), table.astype(compute.dtype)
    return jnp.einsum(form, x, table, precision=exact, preferred_element_type=compute.activation_dtype)
