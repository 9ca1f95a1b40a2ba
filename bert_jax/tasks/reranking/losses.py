"""Losses of a cross-encoder over the passages of a query.

Each loss takes logits `[B, K]`, relevance `[B, K]` and `present` `[B, K]`, which is False for padding passages, and
returns the sum of each row's terms, `[B]`.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.modeling.score_losses import SCORE_LOSSES

_EXCLUDED = -1e9  # the logit of a missing passage
_MU = 10.0  # weight of NDCG-Loss2 in NDCG-Loss2++
LAMBDA_WEIGHTINGS = ("ndcg_loss2++", "ndcg_loss2", "ndcg_loss1", "lambdarank")


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


def compared_pairs(relevance: jax.Array, present: jax.Array, weighting: str) -> jax.Array:
    """Return the pairs of passages that `lambda_loss` sums over, bool `[B, K, K]`.

    NDCG-Loss1 bounds the rank of each passage by all passages, itself included; the others compare passages of
    different relevance.
    """
    if weighting == "ndcg_loss1":
        return present[:, :, None] & present[:, None, :]
    return ordered_pairs(relevance, present)


def lambda_loss(
    logits: jax.Array, relevance: jax.Array, present: jax.Array, weighting: str = LAMBDA_WEIGHTINGS[0]
) -> jax.Array:
    """Return the sum over `compared_pairs` of LambdaLoss (Wang et al. 2018, CIKM, LambdaLoss, sections 4 and 5).

    The weight of a pair depends on the gains of the passages and the discounts of their ranks, by `weighting`:
    `lambdarank`: the change of the NDCG if the passages swap ranks. `ndcg_loss2`: that change for the ranks d and
    d + 1, where d is the difference of their ranks. `ndcg_loss2++`: mu times the weight of `ndcg_loss2` plus that of
    `lambdarank`. `ndcg_loss1`: the discounted gain of the first passage.
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
    if weighting == "ndcg_loss1":
        weights = (gains * discounts)[:, :, None]
    else:
        distance = jnp.abs(ranks[:, None] - ranks)
        steps = jnp.abs(1 / jnp.log2(1.0 + jnp.maximum(distance, 1)) - 1 / jnp.log2(2.0 + distance))
        steps, swaps = jnp.where(distance > 0, steps, 0), jnp.abs(discounts[:, None] - discounts)
        changes = {"ndcg_loss2": steps, "lambdarank": swaps}.get(weighting, _MU * steps + swaps)
        weights = changes * jnp.abs(gains[:, :, None] - gains[:, None, :])
    return _pairwise(logits, weights, compared_pairs(relevance, present, weighting))


def rank_net(logits: jax.Array, relevance: jax.Array, present: jax.Array) -> jax.Array:
    """Return the sum over ordered pairs of passages of -log2 of the probability of their order, the sigmoid of the
    difference of their logits (Burges et al. 2005, ICML, section 3)."""
    return _pairwise(logits, jnp.ones((1, 1, 1), logits.dtype), ordered_pairs(relevance, present))


def _pairwise(logits: jax.Array, weights: jax.Array, pairs: jax.Array) -> jax.Array:
    losses = -jax.nn.log_sigmoid(logits[:, :, None] - logits[:, None, :]) / math.log(2)
    return jnp.where(pairs, weights * losses, 0).sum((1, 2))


def list_mle(logits: jax.Array, relevance: jax.Array, present: jax.Array) -> jax.Array:
    """Return -log of the Plackett-Luce probability of the order by relevance (Xia et al. 2008, ICML, section 4.2).

    Passages of equal relevance keep the order of the row.
    """
    log_probabilities, _ = _plackett_luce(logits, relevance, present)
    return -log_probabilities.sum(1)


def p_list_mle(logits: jax.Array, relevance: jax.Array, present: jax.Array) -> jax.Array:
    """Return `list_mle` with position-aware weights: rank r of n weighs 2^(n - r) - 1, and the weights of a row are
    scaled to sum 1 (Lan et al. 2014, UAI, section 3.2)."""
    log_probabilities, present = _plackett_luce(logits, relevance, present)
    count = present.sum(1, keepdims=True)
    excess = jnp.maximum(count - 60, 0)  # scales all weights, so that neither their sum nor its inverse leaves float32
    powers = jnp.where(present, count - jnp.arange(1, logits.shape[1] + 1) - excess, 0).astype(logits.dtype)
    weights = jnp.where(present, jnp.exp2(powers) - jnp.exp2(-excess.astype(logits.dtype)), 0)
    return -(log_probabilities * (weights / (weights.sum(1, keepdims=True) + 1e-10))).sum(1)


def _plackett_luce(logits: jax.Array, relevance: jax.Array, present: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the log-probability of each rank's passage among it and those below, and `present`, sorted by
    relevance, `[B, K]` each."""
    order = jnp.argsort(-jnp.where(present, relevance, -jnp.inf), axis=1, stable=True)
    logits, present = (jnp.take_along_axis(x, order, axis=1) for x in (logits, present))
    logits = jnp.where(present, logits, _EXCLUDED)
    below = jax.lax.cumlogsumexp(logits, axis=1, reverse=True)
    return jnp.where(present, logits - below, 0), present


def adr_mse(logits: jax.Array, relevance: jax.Array, present: jax.Array) -> jax.Array:
    """Return the sum over passages of the discounted squared error of approximate ranks (Schlatt et al. 2025,
    arXiv:2405.07920, Rank-DistiLLM, section 3.2).

    The approximate rank of a passage counts the others by the sigmoid of their difference of logits.
    """
    higher = jax.nn.sigmoid(logits[:, None, :] - logits[:, :, None])  # [B, K, K]: passage j above passage i
    approximate = 0.5 + jnp.where(present[:, None, :], higher, 0).sum(2)
    above, same = (
        (compare(relevance[:, None, :], relevance[:, :, None]) & present[:, None, :]).sum(2)
        for compare in (jnp.greater, jnp.equal)
    )
    ranks = above + (same + 1) / 2
    errors = jnp.square(ranks - approximate) / jnp.log2(ranks + 1)
    return jnp.where(present, errors, 0).sum(1)


class RerankingLoss(NamedTuple):
    """A loss of rerankers.

    Attributes:
        mean_over: what the loss is a mean over: `passages`, `queries` or `pairs` of passages of a query.
        function: the loss of each row; None = a `ScoreLoss` of this name, or `lambda_loss`.
        of_lists: whether a row must have several passages.
    """

    mean_over: str
    function: Callable[[jax.Array, jax.Array, jax.Array], jax.Array] | None = None
    of_lists: bool = True


RERANKING_LOSSES = {
    "binary_cross_entropy": RerankingLoss("passages", binary_cross_entropy, of_lists=False),
    "contrastive": RerankingLoss("queries", contrastive),
    "list_net": RerankingLoss("queries", list_net),
    "lambda": RerankingLoss("pairs"),
    "rank_net": RerankingLoss("pairs", rank_net),
    "list_mle": RerankingLoss("queries", list_mle),
    "p_list_mle": RerankingLoss("queries", p_list_mle),
    "adr_mse": RerankingLoss("passages", adr_mse),
} | {name: RerankingLoss("passages" if name == "mse" else "queries", of_lists=name != "mse") for name in SCORE_LOSSES}
