"""Losses of a cross-encoder over the passages of a query.

Each loss takes logits `[B, K]`, relevance `[B, K]` and `present` `[B, K]`, which is False for padding passages, and
returns the sum of each row's terms, `[B]`.
"""

import math

import jax
import jax.numpy as jnp

_EXCLUDED = -1e9  # the logit of a missing passage
_MU = 10.0  # weight of NDCG-Loss2 in NDCG-Loss2++


def binary_cross_entropy(logits: jax.Array, relevance: jax.Array, present: jax.Array) -> jax.Array:
    """Return the binary cross entropy of each row's passages, whose relevance is a probability."""
    losses = jax.nn.softplus(logits) - relevance * logits
    return jnp.where(present, losses, 0).sum(-1)


def contrastive(logits: jax.Array, relevance: jax.Array, present: jax.Array) -> jax.Array:
    """Return the cross entropy of the relevant passages among all passages of a query (Gao et al. 2021,
    arXiv:2101.08751, section 3.2); several relevant passages share the target probability."""
    relevant = (present & (relevance > 0)).astype(jnp.float32)
    return _cross_entropy(logits, relevant / jnp.maximum(relevant.sum(-1, keepdims=True), 1), present)


def list_net(logits: jax.Array, relevance: jax.Array, present: jax.Array) -> jax.Array:
    """Return the cross entropy of softmax(relevance) under softmax(logits) (Cao et al. 2007, ICML, section 4.3)."""
    return _cross_entropy(logits, jax.nn.softmax(jnp.where(present, relevance, _EXCLUDED)), present)


def _cross_entropy(logits: jax.Array, target: jax.Array, present: jax.Array) -> jax.Array:
    return -(target * jax.nn.log_softmax(jnp.where(present, logits, _EXCLUDED))).sum(-1)


def ordered_pairs(relevance: jax.Array, present: jax.Array) -> jax.Array:
    """Return whether passage i of a row is more relevant than passage j, bool `[B, K, K]`."""
    known = present[:, :, None] & present[:, None, :]
    return known & (relevance[:, :, None] > relevance[:, None, :])


def lambda_loss(logits: jax.Array, relevance: jax.Array, present: jax.Array) -> jax.Array:
    """Return the sum over ordered pairs of passages of NDCG-Loss2++ (Wang et al. 2018, CIKM, LambdaLoss, section 5).

    A pair's weight is the change of the NDCG if its passages swap ranks, plus mu times that change for the ranks d and
    d + 1, where d is the difference of their ranks.
    """
    relevance = jnp.where(present, relevance, 0)
    order = jnp.argsort(-jnp.where(present, logits, _EXCLUDED), axis=-1)
    logits, relevance, present = (jnp.take_along_axis(x, order, axis=-1) for x in (logits, relevance, present))
    count = logits.shape[-1]
    gains = jnp.where(present, jnp.exp2(jnp.maximum(relevance, 0)) - 1, 0)
    ranks = jnp.arange(1, count + 1)
    discounts = 1 / jnp.log2(1.0 + ranks)
    ideal = (jnp.sort(gains, axis=-1, descending=True) * discounts).sum(-1)
    gains = gains / jnp.maximum(ideal, 1e-10)[:, None]
    distance = jnp.abs(ranks[:, None] - ranks)
    steps = jnp.abs(1 / jnp.log2(1.0 + jnp.maximum(distance, 1)) - 1 / jnp.log2(2.0 + distance))
    weights = _MU * jnp.where(distance > 0, steps, 0) + jnp.abs(discounts[:, None] - discounts)
    weights = weights * jnp.abs(gains[:, :, None] - gains[:, None, :])
    losses = -jax.nn.log_sigmoid(logits[:, :, None] - logits[:, None, :]) / math.log(2)
    return jnp.where(ordered_pairs(relevance, present), weights * losses, 0).sum((1, 2))


RERANKING_LOSSES = {
    "binary_cross_entropy": binary_cross_entropy,
    "contrastive": contrastive,
    "list_net": list_net,
    "lambda": lambda_loss,
}
