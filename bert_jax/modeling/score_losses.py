"""Losses between a model's scores of the documents of a query and those of a teacher, such as a cross-encoder's logits.

Scores and labels are `[B, K]`; `present` is bool `[B, K]`, False for padding documents, which count for nothing. The
sources are:

    mse                squared error of the scores
    margin_mse         Hofstatter et al. 2020 (arXiv:2010.02666), section 4.1
    kl_divergence      Lin et al. 2020 (arXiv:2010.11386), section 3; Santhanam et al. 2022 (arXiv:2112.01488),
                       section 3.2
"""

import dataclasses

import jax
import jax.numpy as jnp

SCORE_LOSSES = ("mse", "margin_mse", "kl_divergence")
_EXCLUDED = -1e9  # the score of a missing document


@dataclasses.dataclass(frozen=True)
class ScoreLoss:
    """A loss between scores and a teacher's scores.

    Attributes:
        name: one of `SCORE_LOSSES`. `mse`: squared error of each document's score. `margin_mse`: squared error of the
            differences between the score of the first document and those of the others, averaged over the others.
            `kl_divergence`: KL divergence of the softmax of the scores from that of the teacher's, times the square of
            `temperature`.
        temperature: divisor of the scores in `kl_divergence`.
        teacher_temperature: divisor of the teacher's scores; None = `temperature`.
    """

    name: str
    temperature: float = 1.0
    teacher_temperature: float | None = None

    @property
    def of_documents(self) -> bool:
        """Return whether the loss is a mean over documents; otherwise it is a mean over queries."""
        return self.name == "mse"

    def count(self, present: jax.Array, real: jax.Array) -> jax.Array:
        """Return the number of documents or of queries, the denominator of the mean.

        Args:
            present: bool `[B, K]`, False for padding documents and for all documents of padding rows.
            real: `[B]`, 1 for queries, 0 for padding rows.
        """
        return present.sum(dtype=jnp.float32) if self.of_documents else real.sum()

    def sums(self, scores: jax.Array, labels: jax.Array, present: jax.Array) -> jax.Array:
        """Return the loss of each query, `[B]`: a sum over its documents for `mse`; 0 for a query without documents."""
        scores, labels = (jnp.where(present, x, 0) for x in (scores, labels))
        match self.name:
            case "mse":
                return jnp.square(scores - labels).sum(1)
            case "margin_mse":
                errors = jnp.square((scores[:, :1] - scores[:, 1:]) - (labels[:, :1] - labels[:, 1:]))
                return jnp.where(present[:, 1:], errors, 0).sum(1) / jnp.maximum(present[:, 1:].sum(1), 1)
        temperatures = self.temperature, self.teacher_temperature or self.temperature
        student, teacher = (
            jax.nn.log_softmax(jnp.where(present, x / temperature, _EXCLUDED), axis=1)
            for x, temperature in zip((scores, labels), temperatures, strict=True)
        )
        return jnp.where(present, jnp.exp(teacher) * (teacher - student), 0).sum(1) * self.temperature**2
