"""Attention in plain XLA, for whole sequences or blocks."""

import jax
import jax.numpy as jnp

from bert_jax.modeling.compute import Compute
from bert_jax.modeling.dropout import drop


def plain_attention(
    query: jax.Array,  # [B, N, ..., Q, H]
    key: jax.Array,  # [B, N or fewer, ..., K, H], as is the next
    value: jax.Array,
    bias: jax.Array | None,  # broadcasts to [B, N, ..., Q, K], as does the next
    bits: jax.Array | None,  # uint32, random bits for dropout of probabilities
    rate: float,
    compute: Compute,
) -> tuple[jax.Array, jax.Array]:
    """Return the context `[B, N, ..., Q, H]`, and the probabilities `[B, N, ..., Q, K]` before dropout.

    If keys have fewer heads than queries, each of their heads serves a group of heads of queries, and is not repeated.
    """
    exact = jax.lax.Precision.HIGHEST if compute.dtype == "float32" else None
    query, key, value = (t.astype(compute.dtype) for t in (query * query.shape[-1] ** -0.5, key, value))
    # Scores and softmax are float32.
    shared = key.shape[1] < query.shape[1]
    spec = "bng...qh,bn...kh->bng...qk" if shared else "...qh,...kh->...qk"
    queries = _grouped(query, key.shape[1]) if shared else query
    scores = jnp.einsum(spec, queries, key, precision=exact, preferred_element_type=jnp.float32)
    scores = scores.reshape(*query.shape[:-1], key.shape[-2])
    if bias is not None:
        scores += bias
    probabilities = jax.nn.softmax(scores, axis=-1)
    dropped = probabilities if bits is None else drop(probabilities, bits, rate)
    dropped = dropped.astype(compute.dtype)
    result = jnp.einsum(
        "bng...qk,bn...kh->bng...qh" if shared else "...qk,...kh->...qh",
        _grouped(dropped, key.shape[1]) if shared else dropped,
        value,
        precision=exact,
        preferred_element_type=compute.activation_dtype,
    )
    return result.reshape(query.shape), probabilities


def _grouped(x: jax.Array, groups: int) -> jax.Array:
    """Split the heads into groups, `[B, N, ...] -> [B, groups, N / groups, ...]`."""
    return x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
