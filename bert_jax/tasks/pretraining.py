"""Masked-LM and next-sentence pretraining. Devlin et al. 2018 (arXiv:1810.04805), section 3.1 and appendix A.2."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.modeling import Bert
from bert_jax.tasks.job import Batch, Metrics
from bert_jax.tasks.losses import cross_entropy

# Metric -> its (sum, count) among the sums that `_sums` gives; the only ones that `score` needs.
_METRICS = {
    "mlm_loss": ("mlm_loss", "mlm_count"),
    "mlm_accuracy": ("mlm_correct", "mlm_count"),
    "mlm_commonest_accuracy": ("mlm_commonest", "mlm_count"),
    "nsp_loss": ("nsp_loss", "nsp_count"),
    "nsp_accuracy": ("nsp_correct", "nsp_count"),
}


@dataclasses.dataclass(frozen=True)
class PretrainingTask:
    """Mean masked-LM cross entropy over all masked tokens plus mean next-sentence cross entropy over all pairs.

    Attributes:
        model: a Bert with head `pretraining`.
        commonest_id: the token that is masked most often in the training data; answering it always is the baseline
            that `mlm_commonest_accuracy` shows.
    """

    model: Bert
    commonest_id: int

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """The number of masked tokens and of pairs."""
        return {
            "mlm": jnp.maximum(batch["masked_weights"].sum(), 1.0),
            "nsp": jnp.maximum(batch["example_weights"].sum(), 1.0),
        }

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Both summed losses of these rows over their `weights`, and metrics (see `bert_jax.tasks.job.Task`)."""
        sums = {name: value.sum() for name, value in self._sums(params, batch, dropout_key).items()}
        loss = sums["mlm_loss"] / weights["mlm"] + sums["nsp_loss"] / weights["nsp"]
        shown = {name: (sums[part], sums[count]) for name, (part, count) in _METRICS.items()}
        del shown["mlm_commonest_accuracy"]  # tells nothing while training
        return loss, shown

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """For each pair [B], the sums that the metrics are made of, without dropout."""
        return self._sums(params, batch, None)

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """The metrics of `loss` over all batches, and `mlm_commonest_accuracy`; perplexity is exp(mlm_loss)."""
        sums = {name: sum(float(p[name].sum(dtype=np.float64)) for p in predictions) for name in predictions[0]}
        return {name: sums[part] / max(sums[count], 1.0) for name, (part, count) in _METRICS.items()}

    def _sums(self, params: Any, batch: Batch, dropout_key: jax.Array | None) -> dict[str, jax.Array]:
        out = self.model.apply(
            params,
            batch["input_ids"],
            batch["attention_mask"],
            batch["token_type_ids"],
            masked_positions=batch["masked_positions"],
            dropout_key=dropout_key,
        )
        labels, masked = batch["masked_labels"], batch["masked_weights"]
        follows, real = batch["next_sentence_labels"], batch["example_weights"]
        mlm_losses, mlm_right = cross_entropy(out.prediction_logits, labels)
        nsp_losses, nsp_right = cross_entropy(out.seq_relationship_logits, follows)
        return {
            "mlm_loss": (mlm_losses * masked).sum(-1),
            "mlm_correct": (mlm_right * masked).sum(-1),
            "mlm_commonest": ((labels == self.commonest_id) * masked).sum(-1),
            "mlm_count": masked.sum(-1),
            "nsp_loss": nsp_losses * real,
            "nsp_correct": nsp_right * real,
            "nsp_count": real,
        }
