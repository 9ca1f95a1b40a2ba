"""Distillation losses: distances between a student's outputs and a teacher's.

Every function computes in float32 and returns one value for each example or token, which the caller weights and sums.
The sources are:

    soft labels          Hinton et al. 2015 (arXiv:1503.02531), section 2
    hidden states        Jiao et al. 2020, TinyBERT (arXiv:1909.10351), section 3.1, equations 8 and 9
    attention scores     Jiao et al. 2020, section 3.1, equation 7
    relations            Wang et al. 2020, MiniLM (arXiv:2002.10957), section 3; Wang et al. 2021, MiniLMv2
                         (arXiv:2012.15828), section 3
    cosine               Sanh et al. 2019, DistilBERT (arXiv:1910.01108), section 3
    embeddings           Reimers and Gurevych 2020 (arXiv:2004.09813), section 2; similarities: Tung and Mori 2019
                         (arXiv:1907.09682), section 3
"""

import jax
import jax.numpy as jnp

from bert_jax.modeling.attention_mask import MASKED
from bert_jax.modeling.pooling import l2_normalize

_EXACT = jax.lax.Precision.HIGHEST


def soft_label_divergence(student: jax.Array, teacher: jax.Array, temperature: float) -> jax.Array:
    """Return `T^2 KL(teacher || student)` of the classes at temperature T, `[..., C] -> [...]`.

    The factor T^2 keeps the gradient's size when T changes. A class whose logits are both at most -1e9 adds nothing.
    """
    log_p, log_q = (jax.nn.log_softmax(x.astype(jnp.float32) / temperature, axis=-1) for x in (teacher, student))
    return temperature**2 * (jnp.exp(log_p) * (log_p - log_q)).sum(-1)


def soft_binary_divergence(student: jax.Array, teacher: jax.Array, temperature: float) -> jax.Array:
    """Return `soft_label_divergence` of independent binary classes, averaged over the classes, `[..., C] -> [...]`."""
    x, y = (logits.astype(jnp.float32) / temperature for logits in (student, teacher))
    p = jax.nn.sigmoid(y)
    divergence = p * (jax.nn.log_sigmoid(y) - jax.nn.log_sigmoid(x))
    divergence += (1 - p) * (jax.nn.log_sigmoid(-y) - jax.nn.log_sigmoid(-x))
    return temperature**2 * divergence.mean(-1)


def hidden_state_error(student: jax.Array, teacher: jax.Array, projection: jax.Array | None = None) -> jax.Array:
    """Return the mean squared error over the hidden size, `[B, S, D] -> [B, S]`.

    Args:
        student: `[B, S, D]`.
        teacher: `[B, S, D']`.
        projection: `[D, D']`, applied to the student's states; None where the widths are equal.
    """
    return jnp.square(projected(student, projection) - teacher.astype(jnp.float32)).mean(-1)


def projected(x: jax.Array, projection: jax.Array | None) -> jax.Array:
    """Return `x [..., D] @ projection [D, D']` in float32; `x` where the projection is None."""
    x = x.astype(jnp.float32)
    return x if projection is None else jnp.matmul(x, projection, precision=_EXACT)


def attention_score_error(
    student: tuple[jax.Array, jax.Array], teacher: tuple[jax.Array, jax.Array], heads: int, pairs: jax.Array
) -> jax.Array:
    """Return the squared error of the attention scores before the softmax, averaged over heads and summed over keys.

    Args:
        student: queries and keys, `[B, S, D]` each.
        teacher: queries and keys, `[B, S, D']` each.
        heads: N, the number of heads of both.
        pairs: bool `[B, S, S]`, the keys that each query attends to.

    Returns:
        `[B, S]`; the denominator of their mean is the number of `pairs`.
    """
    error = jnp.square(_scores(*student, heads) - _scores(*teacher, heads))  # [B, N, S, S]
    return jnp.where(pairs, error.mean(1), 0.0).sum(-1)


def relation_divergence(
    student: tuple[jax.Array, jax.Array], teacher: tuple[jax.Array, jax.Array], heads: int, pairs: jax.Array
) -> jax.Array:
    """Return KL(teacher || student) of the relations of each token to all tokens, averaged over relation heads.

    A relation is the softmax of the scaled products of two of the projections query, key and value. With queries, keys
    and the model's own heads, it is the attention map.

    Args:
        student: two projections, `[B, S, D]` each.
        teacher: the same two projections, `[B, S, D']` each.
        heads: the number of relation heads, into which both widths are split.
        pairs: bool `[B, S, S]`, the tokens that each token is compared with.

    Returns:
        `[B, S]`; 0 for a token without pairs.
    """
    masked = jnp.where(pairs[:, None], 0.0, MASKED)
    log_p, log_q = (jax.nn.log_softmax(_scores(*of, heads) + masked, axis=-1) for of in (teacher, student))
    divergence = jnp.where(pairs[:, None], jnp.exp(log_p) * (log_p - log_q), 0.0)
    return divergence.sum(-1).mean(1)


def _scores(first: jax.Array, second: jax.Array, heads: int) -> jax.Array:
    """Return the scaled products `[B, N, S, S]` of two arrays `[B, S, D]`, split into N heads."""
    a, b = (x.astype(jnp.float32).reshape(*x.shape[:2], heads, -1) for x in (first, second))
    return jnp.einsum("bsnh,btnh->bnst", a, b, precision=_EXACT) * a.shape[-1] ** -0.5


def cosine_distance(student: jax.Array, teacher: jax.Array) -> jax.Array:
    """Return 1 - cosine of the last axis, `[..., D] -> [...]`."""
    a, b = (l2_normalize(x.astype(jnp.float32)) for x in (student, teacher))
    return 1 - (a * b).sum(-1)


def squared_distance(student: jax.Array, teacher: jax.Array) -> jax.Array:
    """Return the squared Euclidean distance of the last axis, `[..., D] -> [...]`."""
    return jnp.square(student.astype(jnp.float32) - teacher.astype(jnp.float32)).sum(-1)


def similarity_error(student: jax.Array, teacher: jax.Array, real: jax.Array) -> jax.Array:
    """Return the squared error of each vector's cosines with all vectors of the batch, averaged over the batch.

    It needs no projection, since the cosines do not depend on the number of dimensions.

    Args:
        student: `[B, D]`.
        teacher: `[B, D']`.
        real: `[B]`, 1 for vectors, 0 for padding.

    Returns:
        `[B]`.
    """
    of_both = []
    for x in (student, teacher):
        vectors = l2_normalize(x.astype(jnp.float32))
        of_both.append(jnp.matmul(vectors, vectors.T, precision=_EXACT))
    error = jnp.where(real > 0, jnp.square(of_both[0] - of_both[1]), 0.0)
    return error.sum(-1) / jnp.maximum((real > 0).sum(), 1)


def pairs_of(tokens: jax.Array) -> jax.Array:
    """Return bool `[B, S, S]`: whether two tokens belong to the same example, from `tokens [B, S]`.

    Args:
        tokens: the attention mask, or the segment ids of packed rows; 0 is padding.
    """
    return (tokens[:, :, None] == tokens[:, None, :]) & (tokens[:, :, None] > 0)
