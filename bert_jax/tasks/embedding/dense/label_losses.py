"""Losses over labels: triplets of a batch whose rows have classes, and pairs that are alike or not.

The triplets of a batch: Hermans et al. 2017 (arXiv:1703.07737), section 2, and Schroff et al. 2015 (arXiv:1503.03832),
section 3.2. Pairs: Hadsell et al. 2006 (doi:10.1109/CVPR.2006.100), section 2.1. On a mesh, rows are compared with the
rows of all devices. Values are those of the losses of the same names in sentence-transformers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.modeling.pooling import l2_normalize
from bert_jax.sharding import constrain
from bert_jax.tasks.embedding.dense.losses import cosines

LABEL_LOSSES = (
    "contrastive", "online_contrastive", "batch_hard_triplet", "batch_hard_soft_margin_triplet",
    "batch_semi_hard_triplet", "batch_all_triplet", "supervised_contrastive",
)  # fmt: skip
_LEAST = 1e-16  # the smallest loss of a triplet that counts in `batch_all`


def label_loss(
    name: str, embeddings: jax.Array, labels: jax.Array, real: jax.Array, distance: str, margin: float, scale: float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the losses of the rows of a batch `[B]`, or the loss of the whole batch `[]`, and metrics like them.

    Args:
        name: one of `LABEL_LOSSES`.
        embeddings: the vectors of the texts of each row `[B, T, D]`.
        labels: classes of texts, or 1 and 0 for pairs that are alike or not, `[B]`.
        real: 1 for rows, 0 for padding, `[B]`.
        distance: `euclidean`, or `cosine` (1 - cosine).
        margin: the margin of triplets and pairs.
        scale: factor of the cosines in `supervised_contrastive`.
    """
    rows = (embeddings[:, 0], labels, real, distance)
    match name:
        case "contrastive":
            loss = contrastive_pairs(embeddings, labels, distance, margin)
        case "online_contrastive":
            loss = online_contrastive_pairs(embeddings, labels, real, distance, margin)
        case "supervised_contrastive":
            loss = supervised_contrastive(embeddings[:, 0], labels, real, scale)
        case "batch_all_triplet" | "batch_semi_hard_triplet":
            total, count = (batch_all if name == "batch_all_triplet" else batch_semi_hard)(*rows, margin)
            loss = total / jnp.maximum(count, 1)
        case _:
            loss, right = batch_hard(*rows, None if name == "batch_hard_soft_margin_triplet" else margin)
            return loss, {"triplet_loss": loss, "triplet_accuracy": right}
    return loss, {"triplet_loss" if name.endswith("triplet") else f"{name}_loss": loss}


class _Pairs(NamedTuple):
    """All pairs of rows of a batch, `[B, B]`: the first row is the anchor of a triplet.

    Attributes:
        distances: distances of the rows, 0 of a row from itself.
        positives: whether the two are different rows of one class.
        negatives: whether they are rows of different classes.
        others: whether the second is a row, not padding.
    """

    distances: jax.Array
    positives: jax.Array
    negatives: jax.Array
    others: jax.Array

    @classmethod
    def of(cls, vectors: jax.Array, classes: jax.Array, real: jax.Array, distance: str) -> "_Pairs":
        """Return the pairs of vectors `[B, D]` with classes `[B]`; rows with `real` 0 are padding."""
        others, their_classes, are_real = (
            constrain(vectors, None, None),
            constrain(classes, None),
            constrain(real, None),
        )
        both = (real[:, None] > 0) & (are_real > 0)
        alike, itself = classes[:, None] == their_classes, jnp.eye(len(vectors), dtype=bool)
        distances = jnp.where(itself, 0, _distances(vectors, others, distance))
        is_row = jnp.broadcast_to(are_real > 0, both.shape)
        return cls(distances, both & alike & ~itself, both & ~alike, is_row)


def batch_hard(
    vectors: jax.Array, classes: jax.Array, real: jax.Array, distance: str, margin: float | None
) -> tuple[jax.Array, jax.Array]:
    """Return the loss of each row with its farthest positive and nearest negative, `[B]`, and 1 where they are in
    order, `[B]`.

    A row without positives has the distance 0 to them. A row without negatives has its largest distance to them.

    Args:
        vectors: `[B, D]`.
        classes: `[B]`.
        real: 1 for rows, 0 for padding, `[B]`.
        distance: `euclidean`, or `cosine` (1 - cosine).
        margin: the margin; None = a soft margin, log(1 + exp(difference of the distances)).
    """
    pairs = _Pairs.of(vectors, classes, real, distance)
    farthest = jnp.where(pairs.positives, pairs.distances, 0).max(1)
    most = jnp.where(pairs.others, pairs.distances, 0).max(1, keepdims=True)
    nearest = jnp.where(pairs.others, pairs.distances + jnp.where(pairs.negatives, 0, most), jnp.inf).min(1)
    nearest = jnp.where(real > 0, nearest, 0)  # a batch of padding alone has no infinite loss
    apart = farthest - nearest
    losses = jax.nn.softplus(apart) if margin is None else jnp.maximum(apart + margin, 0)
    return losses, (farthest < nearest).astype(jnp.float32)


def batch_semi_hard(
    vectors: jax.Array, classes: jax.Array, real: jax.Array, distance: str, margin: float
) -> tuple[jax.Array, jax.Array]:
    """Return the sum of the losses of all pairs of a row and a positive, and their number.

    The negative of a pair is the nearest that is farther away than the positive; without one, the farthest negative.
    Arguments as for `batch_hard`.
    """
    pairs = _Pairs.of(vectors, classes, real, distance)
    ascending = jnp.sort(jnp.where(pairs.negatives, pairs.distances, jnp.inf), axis=1)
    places = jax.vmap(lambda row, values: jnp.searchsorted(row, values, side="right"))(
        *jax.lax.stop_gradient((ascending, pairs.distances))
    )
    outside = jnp.take_along_axis(ascending, jnp.minimum(places, ascending.shape[1] - 1), axis=1)
    least = jnp.where(pairs.others, pairs.distances, jnp.inf).min(1, keepdims=True)
    farthest = jnp.where(pairs.negatives, pairs.distances - least, 0).max(1, keepdims=True) + least
    has_outside = jnp.isfinite(outside)
    chosen = jnp.where(has_outside, jnp.where(has_outside, outside, 0), farthest)
    losses = jnp.where(pairs.positives, jnp.maximum(pairs.distances - chosen + margin, 0), 0)
    return losses.sum(), pairs.positives.sum().astype(losses.dtype)


def batch_all(
    vectors: jax.Array, classes: jax.Array, real: jax.Array, distance: str, margin: float
) -> tuple[jax.Array, jax.Array]:
    """Return the sum of the losses of all triplets of the batch, and the number of those above 0.

    Memory grows with the square of the batch: the triplets of one row are computed at a time, and again in the
    backward pass. Arguments as for `batch_hard`.
    """
    pairs = _Pairs.of(vectors, classes, real, distance)

    @jax.checkpoint
    def of_anchor(row: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        distances, positives, negatives = row
        losses = jnp.maximum(distances[:, None] - distances + margin, 0)  # [positive, negative]
        losses = jnp.where(positives[:, None] & negatives, losses, 0)
        return losses.sum(), (losses > _LEAST).sum()

    sums, counts = jax.lax.map(of_anchor, (pairs.distances, pairs.positives, pairs.negatives))
    return sums.sum(), counts.sum().astype(sums.dtype)


def supervised_contrastive(vectors: jax.Array, classes: jax.Array, real: jax.Array, scale: float) -> jax.Array:
    """Return the mean cross entropy of each row's positives among all other rows, `[B]`.

    Khosla et al. 2020 (arXiv:2004.11362), equation (2), with cosines times `scale` as logits. Arguments as for
    `batch_hard`. A row without positives has the loss 0.
    """
    pairs = _Pairs.of(vectors, classes, real, "cosine")
    among = pairs.positives | pairs.negatives
    logits = jnp.where(among, scale * (1 - pairs.distances), -1e9)
    log_shares = logits - jax.nn.logsumexp(logits, axis=1, keepdims=True)
    return -jnp.where(pairs.positives, log_shares, 0).sum(1) / jnp.maximum(pairs.positives.sum(1), 1)


def contrastive_pairs(embeddings: jax.Array, labels: jax.Array, distance: str, margin: float) -> jax.Array:
    """Return the loss of each pair, `[B]`: half the squared distance of alike pairs, and half the squared difference
    from the margin of other pairs that are nearer than the margin.

    Args:
        embeddings: the vectors of text and pair `[B, 2, D]`.
        labels: 1 for alike pairs, 0 for others, `[B]`.
        distance: `euclidean`, or `cosine` (1 - cosine).
        margin: the margin.
    """
    apart = _pair_distances(embeddings, distance)
    return 0.5 * (labels * jnp.square(apart) + (1 - labels) * jnp.square(jnp.maximum(margin - apart, 0)))


def online_contrastive_pairs(
    embeddings: jax.Array, labels: jax.Array, real: jax.Array, distance: str, margin: float
) -> jax.Array:
    """Return twice the contrastive loss of the hard pairs of a batch, summed over them.

    Hard are alike pairs that are farther apart than the nearest of the other pairs, and other pairs that are nearer
    than the farthest alike pair. If all pairs of the batch are of one kind, hard are those beyond their mean distance.
    `real` is 1 for rows, 0 for padding; other arguments as for `contrastive_pairs`.
    """
    apart, labels, real = _pair_distances(embeddings, distance), constrain(labels, None), constrain(real, None)
    apart = constrain(apart, None)
    alike, unlike = (labels == 1) & (real > 0), (labels == 0) & (real > 0)
    farthest = jnp.where(alike, apart, -jnp.inf).max()
    nearest = jnp.where(unlike, apart, jnp.inf).min()
    farthest, nearest = (
        jnp.where(kind.any(), limit, _mean(apart, other))
        for kind, limit, other in ((alike, farthest, unlike), (unlike, nearest, alike))
    )
    losses = jnp.where(alike & (apart > nearest), jnp.square(apart), 0)
    losses += jnp.where(unlike & (apart < farthest), jnp.square(jnp.maximum(margin - apart, 0)), 0)
    return losses.sum()


def _mean(values: jax.Array, among: jax.Array) -> jax.Array:
    return jnp.where(among, values, 0).sum() / jnp.maximum(among.sum(), 1)


def _distances(a: jax.Array, b: jax.Array, distance: str) -> jax.Array:
    """Return the distances `[B, n]` of vectors `[B, D]` and `[n, D]`; the gradient at a distance of 0 is 0."""
    if distance == "cosine":
        return 1 - jnp.matmul(l2_normalize(a), l2_normalize(b).T, precision=jax.lax.Precision.HIGHEST)
    products = jnp.matmul(a, b.T, precision=jax.lax.Precision.HIGHEST)
    squared = jnp.square(a).sum(1)[:, None] - 2 * products + jnp.square(b).sum(1)
    return jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1)), 0)


def _pair_distances(embeddings: jax.Array, distance: str) -> jax.Array:
    """Return the distance of text and pair `[B]` for vectors `[B, 2, D]`; the gradient at a distance of 0 is 0."""
    if distance == "cosine":
        return 1 - cosines(embeddings[:, 0], embeddings[:, 1])
    squared = jnp.square(embeddings[:, 0] - embeddings[:, 1]).sum(-1)
    return jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1)), 0)
