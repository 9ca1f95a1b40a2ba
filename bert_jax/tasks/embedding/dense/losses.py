"""Losses of sentence embeddings over pairs or triplets of vectors."""

import jax
import jax.numpy as jnp

from bert_jax.modeling.pooling import l2_normalize
from bert_jax.sharding import constrain

_EXCLUDED = -1e9  # a score whose exponential is 0


def truncated(embeddings: jax.Array, dimension: int) -> jax.Array:
    """Return the leading dimensions of vectors `[..., D]`, scaled to unit length (Kusupati et al. 2022,
    arXiv:2205.13147, section 3)."""
    return l2_normalize(embeddings[..., :dimension])


def cosines(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the cosines `[...]` of vectors `[..., D]`."""
    return (l2_normalize(a) * l2_normalize(b)).sum(-1)


def angle_similarities(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return AnglE's similarities `[...]` of vectors `[..., D]`, from 0 to sqrt(2).

    The halves of a vector are the real and imaginary parts of complex numbers (Li and Li 2023, arXiv:2309.12871,
    section 3.4). The similarity is |cosine + sine| of the angle between two such vectors.
    """
    if a.shape[-1] % 2:
        a, b = (jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)]) for x in (a, b))
    a, b = l2_normalize(a), l2_normalize(b)
    (a_real, a_imaginary), (b_real, b_imaginary) = jnp.split(a, 2, axis=-1), jnp.split(b, 2, axis=-1)
    sines = (a_imaginary * b_real - a_real * b_imaginary).sum(-1)
    return jnp.abs((a * b).sum(-1) + sines)


def cosent(scores: jax.Array, labels: jax.Array, real: jax.Array) -> jax.Array:
    """Return the CoSENT loss of a batch: log(1 + sum over pairs of rows of exp(score of i - score of j)).

    In these pairs row i has a smaller label than row j (Huang et al. 2024, doi:10.1109/TASLP.2024.3402087,
    section 3). Rows are sorted by label, so that memory grows with B and not with its square.

    Args:
        scores: scaled similarities `[B]`.
        labels: `[B]`; only their order counts.
        real: 1 for rows, 0 for padding, `[B]`.
    """
    scores, labels, real = (constrain(x, None) for x in (scores, labels, real))
    labels = jnp.where(real > 0, labels, jnp.inf)
    order = jnp.argsort(labels)
    labels, kept = labels[order], real[order] > 0
    scores = jnp.where(kept, scores[order], 0)
    rising = jax.lax.cumlogsumexp(jnp.where(kept, -scores, _EXCLUDED), reverse=True)  # over rows i, i + 1, ...
    rising = jnp.append(rising, _EXCLUDED)[jnp.searchsorted(labels, labels, side="right")]
    pairs = jnp.where(kept, scores + rising, _EXCLUDED)
    return jax.nn.logsumexp(jnp.append(pairs, 0.0))


def score_margins(embeddings: jax.Array) -> jax.Array:
    """Return the dot product of text and pair minus that of text and negative, `[B]`, for vectors `[B, 3, D]`
    (Hofstatter et al. 2020, arXiv:2010.02666, section 4.1)."""
    return (embeddings[:, 0] * (embeddings[:, 1] - embeddings[:, 2])).sum(-1)


def triplet(embeddings: jax.Array, distance: str, margin: float) -> tuple[jax.Array, jax.Array]:
    """Return the triplet losses `[B]` of vectors `[B, 3, D]`, and 1 where the pair is nearer than the negative, `[B]`.

    Args:
        embeddings: the vectors of text, pair and negative.
        distance: `euclidean`, or `cosine` (1 - cosine).
        margin: the margin.
    """

    def apart(other: jax.Array) -> jax.Array:
        if distance == "cosine":
            return 1 - cosines(embeddings[:, 0], other)
        squared = jnp.square(embeddings[:, 0] - other).sum(-1)
        return jnp.sqrt(jnp.maximum(squared, 1e-24))  # the gradient for equal texts is 0 and not NaN

    near, far = apart(embeddings[:, 1]), apart(embeddings[:, 2])
    return jnp.maximum(near - far + margin, 0), (near < far).astype(jnp.float32)
