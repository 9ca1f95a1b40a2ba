"""Attention in plain XLA, for whole sequences or blocks."""

import jax
import jax.numpy as jnp

from bert_jax.modeling.compute import Compute
from bert_jax.modeling.dropout import drop


def plain_attention(
    query: jax.Array,  # [..., Q, H]
    key: jax.Array,  # [..., K, H], as is the next
    value: jax.Array,
    bias: jax.Array | None,  # broadcasts to [..., Q, K], as does the next
    bits: jax.Array | None,  # uint32, random bits for dropout of probabilities
    rate: float,
    compute: Compute,
) -> tuple[jax.Array, jax.Array]:
    """Return the context `[..., Q, H]`, and the probabilities `[..., Q, K]` before dropout."""
    exact = jax.lax.Precision.HIGHEST if compute.dtype == "float32" else None
    query, key, value = (t.astype(compute.dtype) for t in (query * query.shape[-1] ** -0.5, key, value))
    # Scores and softmax are float32.
    scores = jnp.einsum("...qh,...kh->...qk", query, key, precision=exact, preferred_element_type=jnp.float32)
    if bias is not None:
        scores += bias
    probabilities = jax.nn.softmax(scores, axis=-1)
    dropped = probabilities if bits is None else drop(probabilities, bits, rate)
    result = jnp.einsum(
        "...qk,...kh->...qh",
        dropped.astype(compute.dtype),
        value,
        precision=exact,
        preferred_element_type=compute.activation_dtype,
    )
    return result, probabilities
