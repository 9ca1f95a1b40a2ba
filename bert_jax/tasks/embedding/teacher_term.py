"""The term of the loss by which a model of queries and documents learns a teacher's scores."""

import dataclasses

import jax

from bert_jax.data.batches import Batch
from bert_jax.jobs.base import Metrics
from bert_jax.modeling.score_losses import ScoreLoss

TEACHER_SCORES = "teacher_scores"  # batch array `[B, K]`: the teacher's score of each document


@dataclasses.dataclass(frozen=True)
class TeacherTerm:
    """A term that compares the scores of each query's own documents with those of a teacher.

    Attributes:
        loss: the loss of the scores.
        weight: weight of this term, above 0.
        labels: weight of the task's own loss.
    """

    loss: ScoreLoss
    weight: float
    labels: float

    def added(
        self,
        own: jax.Array,
        sums: Metrics,
        scores: jax.Array,
        batch: Batch,
        present: jax.Array,
        weights: dict[str, jax.Array],
    ) -> tuple[jax.Array, Metrics]:
        """Return the weighted sum of the task's own loss and this term, and the metrics of both.

        Args:
            own: the task's own loss.
            sums: its metrics, which are left out if its weight is 0.
            scores: the model's scores `[B, K]`.
            batch: the batch, with `TEACHER_SCORES`.
            present: bool `[B, K]`, False for padding.
            weights: number of `rows` and, for a mean over documents, of `documents` of the whole batch.
        """
        real = batch["example_weights"]
        value = (self.loss.sums(scores, batch[TEACHER_SCORES], present) * real).sum()
        total = self.weight * value / weights["documents" if self.loss.of_documents else "rows"]
        metrics: Metrics = {"soft_labels_loss": (value, self.loss.count(present, real))}
        return (total + self.labels * own, sums | metrics) if self.labels else (total, metrics)
