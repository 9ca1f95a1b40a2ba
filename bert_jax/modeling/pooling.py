"""Pooling of token vectors into vectors of texts, and the examples of packed rows."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from bert_jax.modeling.positions import gather_positions


def segment_starts(segment_ids: jax.Array) -> jax.Array:
    """Return for each token the first position of its example in packed rows, both `[B, S]`."""
    place = jnp.broadcast_to(jnp.arange(segment_ids.shape[1]), segment_ids.shape)
    is_start = jnp.diff(segment_ids, axis=1, prepend=segment_ids[:, :1] - 1) != 0
    return jax.lax.cummax(jnp.where(is_start, place, 0), axis=1)


def pool_tokens(x: jax.Array, attention_mask: jax.Array, poolings: Sequence[str], skip: int = 0) -> jax.Array:
    """Pool token vectors `[B, S, D]` to sentence embeddings `[B, D * len(poolings)]` in float32.

    Reimers and Gurevych 2019 (arXiv:1908.10084), section 3; `weightedmean`: Muennighoff 2022 (arXiv:2202.08904),
    section 3.2.

    Args:
        x: token vectors `[B, S, D]`.
        attention_mask: `[B, S]`, 1 for tokens, 0 for padding and for other tokens that are not pooled.
        poolings: names of `bert_jax.config.values.POOLINGS`, whose results are concatenated.
        skip: number of leading tokens to leave out of each row; no effect on `lasttoken`.
    """
    members = (attention_mask > 0)[:, None]
    if skip:
        members &= jnp.arange(x.shape[1]) >= skip
    first = members.argmax(-1)
    return _pooled(x.astype(jnp.float32), members, poolings, first, jnp.zeros_like(first))[:, 0]


def pool_segments(x: jax.Array, segment_ids: jax.Array, cls_positions: jax.Array, poolings: Sequence[str]) -> jax.Array:
    """Pool token vectors of packed rows to one embedding per example: `[B, M, D]`, 0 for missing examples.

    Args:
        x: token vectors `[B, S, D]`.
        segment_ids: `[B, S]`, the number of each token's example, from 1.
        cls_positions: `[B, M]`, the first position of each example.
        poolings: as for `pool_tokens`.
    """
    members = segment_members(segment_ids, cls_positions.shape[1])
    return _pooled(x.astype(jnp.float32), members, poolings, cls_positions, cls_positions)


def _pooled(
    x: jax.Array, members: jax.Array, poolings: Sequence[str], first: jax.Array, origin: jax.Array
) -> jax.Array:
    """Pool token vectors `[B, S, D]` to `[B, M, D * len(poolings)]`; 0 for a vector without tokens.

    Args:
        x: the token vectors.
        members: bool `[B, M, S]`, the tokens of each pooled vector.
        poolings: names of `bert_jax.config.values.POOLINGS`.
        first: `[B, M]`, position of the first token of each pooled vector.
        origin: `[B, M]`, position from which the weights of `weightedmean` count.
    """
    has_tokens = members.any(-1, keepdims=True)
    vectors = []
    for pooling in poolings:
        match pooling:
            case "cls":
                pooled = gather_positions(x, first)
            case "lasttoken":
                pooled = gather_positions(x, members.shape[-1] - 1 - members[..., ::-1].argmax(-1))
            case "max":
                lowest = jnp.finfo(jnp.float32).min
                pooled = jnp.where(members[..., None], x[:, None], lowest).max(axis=2)
            case _:
                weights = members.astype(jnp.float32)
                if pooling == "weightedmean":
                    weights = weights * (jnp.arange(1, x.shape[1] + 1) - origin[..., None])
                total = weights.sum(-1, keepdims=True)
                scale = jnp.sqrt(total) if pooling == "mean_sqrt_len_tokens" else total
                pooled = _weighted_sum(x, weights) / jnp.where(has_tokens, scale, 1.0)
        vectors.append(jnp.where(has_tokens, pooled, 0.0))
    return vectors[0] if len(vectors) == 1 else jnp.concatenate(vectors, axis=-1)


def _weighted_sum(x: jax.Array, weights: jax.Array) -> jax.Array:
    """Sum `x [B, S, D]` with weights `[B, M, S]` to `[B, M, D]`; for M = 1, NaN at weight 0 is ignored."""
    if weights.shape[1] == 1:
        return jnp.where(weights[:, 0, :, None] > 0, x * weights[:, 0, :, None], 0.0).sum(axis=1)[:, None]
    return jnp.einsum("bms,bsd->bmd", weights, x, precision=jax.lax.Precision.HIGHEST)


def segment_members(segment_ids: jax.Array, count: int) -> jax.Array:
    """Return bool `[B, count, S]`: whether each token belongs to segment 1, 2, ..., count."""
    return segment_ids[:, None] == jnp.arange(1, count + 1)[:, None]


def l2_normalize(x: jax.Array) -> jax.Array:
    """Scale `x [..., D]` to unit length; a zero vector (of a padded row) stays zero, with gradient 0."""
    return x / jnp.sqrt(jnp.maximum(jnp.square(x).sum(axis=-1, keepdims=True), 1e-24))
