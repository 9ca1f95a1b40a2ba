"""Masked-LM pretraining, with next-sentence or sentence-order prediction if the data is prepared for it.

Devlin et al. 2018 (arXiv:1810.04805), section 3.1 and appendix A.2; for the other objectives see
`bert_jax.data.pretraining.instances`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.conversion.save_pretrained import save_pretrained
from bert_jax.data.batches import Batch
from bert_jax.data.pretraining.stages import StagedSource, most_frequent_label
from bert_jax.data.tokens import packing
from bert_jax.jobs import setup
from bert_jax.jobs.base import Job, Metrics, Task, model_inputs
from bert_jax.metrics.ratios import ratios
from bert_jax.modeling import Bert
from bert_jax.modeling.losses import cross_entropy
from bert_jax.recipes import Recipe
from bert_jax.tasks.pretraining.data import (
    PretrainingData,
    describe_mixtures,
    num_steps,
    unpacked_rows,
)
from bert_jax.tasks.pretraining.masked_lm import masked_lm_sums


@dataclasses.dataclass(frozen=True)
class PretrainingTask:
    """BERT's pretraining task.

    The loss is the mean cross entropy of the masked tokens, plus the mean cross entropy of the sentence-pair labels.

    Attributes:
        model: a Bert with head `pretraining`, or `masked_lm` for objective mlm.
        majority_id: id of the most frequent masked token in the training data; always predicting it is the baseline
            `mlm_majority_accuracy`.
        objective: nsp, sop or mlm (`bert_jax.data.pretraining.instances`); the prefix of pair metrics.
    """

    model: Bert
    majority_id: int
    objective: str = "nsp"

    def label_weights(self, batch: Batch) -> jax.Array:
        """Return the weights of masked tokens, `[B, P]`."""
        weights: jax.Array = batch["masked_weights"]
        return weights

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the number of masked tokens and, under the objective's name, of pairs."""
        counts = {"mlm": batch["masked_weights"].sum()}
        if self.has_pairs:
            counts[self.objective] = batch["example_weights"].sum()
        return {name: jnp.maximum(count, 1.0) for name, count in counts.items()}

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss and the metrics of a batch or micro-batch (see `bert_jax.jobs.base.Task`)."""
        sums = {name: value.sum() for name, value in self._sums(params, batch, dropout_key).items()}
        loss = sum((sums[f"{term}_loss"] / weight for term, weight in weights.items()), start=jnp.float32(0))
        shown = {name: (sums[part], sums[count]) for name, (part, count) in self._metrics().items()}
        del shown["mlm_majority_accuracy"]  # only evaluations report the baseline
        shown["packing"] = packing(batch)
        return loss, shown

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return for each row [B] the sums from which the metrics are computed, without dropout."""
        return self._sums(params, batch, None)

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return the metrics over all batches, including `mlm_majority_accuracy`."""
        return ratios(predictions, self._metrics())

    @property
    def has_pairs(self) -> bool:
        """Whether examples are labelled pairs of segments, for next-sentence or sentence-order prediction."""
        return self.objective != "mlm"

    def _metrics(self) -> dict[str, tuple[str, str]]:
        """Return metric -> names of its (sum, count) in `_sums`."""
        metrics = {
            "mlm_loss": ("mlm_loss", "mlm_count"),
            "mlm_accuracy": ("mlm_correct", "mlm_count"),
            "mlm_majority_accuracy": ("mlm_majority", "mlm_count"),
        }
        if self.has_pairs:
            pairs = self.objective
            metrics[f"{pairs}_loss"] = (f"{pairs}_loss", f"{pairs}_count")
            metrics[f"{pairs}_accuracy"] = (f"{pairs}_correct", f"{pairs}_count")
        return metrics

    def _sums(self, params: Any, batch: Batch, dropout_key: jax.Array | None) -> dict[str, jax.Array]:
        out = self.model.apply(
            params,
            **model_inputs(batch),
            masked_positions=batch["masked_positions"],
            masked_labels=batch["masked_labels"],
            dropout_key=dropout_key,
            output_last_hidden_state=False,
        )
        assert out.masked_lm_losses is not None and out.masked_lm_correct is not None
        sums = masked_lm_sums(out, batch, self.majority_id)
        if self.has_pairs:
            assert out.seq_relationship_logits is not None
            real, pairs = batch["example_weights"], self.objective
            losses, right = cross_entropy(out.seq_relationship_logits, batch["next_sentence_labels"])
            parts = {f"{pairs}_loss": losses * real, f"{pairs}_correct": right * real, f"{pairs}_count": real}
            sums |= {name: part.reshape(len(part), -1).sum(-1) for name, part in parts.items()}
        return sums


def build(recipe: Recipe) -> Job:
    """Read the prepared data and the model that a resolved pretraining recipe names. See `bert_jax.jobs.build`."""
    data = PretrainingData.of(recipe)

    def make_task(model: Bert, source: StagedSource) -> PretrainingTask:
        return PretrainingTask(model, most_frequent_label(source), data.objective)

    return pretraining_job(recipe, data, _head(data.objective), make_task)


def pretraining_job(
    recipe: Recipe, data: PretrainingData, head: str, make_task: Callable[[Bert, StagedSource], Task]
) -> Job:
    """Return the training job of a masked LM on prepared data.

    Args:
        recipe: the resolved recipe.
        data: its data.
        head: the head of the model.
        make_task: function from the model and the training batches to the task.
    """
    loaded = setup.pretrained(recipe, head)
    config = setup.config(recipe, data.tokenizer, loaded)
    setup.check_head(config, head, "; prepare the data with --objective mlm" if head == "pretraining" else "")
    model = Bert(config, head, setup.compute(recipe))
    train_source = data.train_source(config)
    return Job(
        task=make_task(model, train_source),
        tokenizer=data.tokenizer,
        init_params=model.init,
        pretrained=loaded.params if loaded else None,
        train_source=train_source,
        eval_source=data.eval_source(config),
        num_steps=(steps := num_steps(recipe, train_source)),
        save=functools.partial(_save, model=model, tokenizer=data.tokenizer),
        data=functools.partial(data.fingerprint, config),
        notes=describe_mixtures(data, train_source, steps),
    )


def synthetic_rows(recipe: Recipe) -> list[dict[str, Any]]:
    """Return synthetic rows, with sentence-pair labels if the family has a head for them."""
    return unpacked_rows(recipe, pairs="pretraining" in setup.heads(recipe))


def _head(objective: str) -> str:
    return "masked_lm" if objective == "mlm" else "pretraining"


def _save(directory: Any, params: Any, *, model: Bert, tokenizer: Any) -> None:
    save_pretrained(directory, model.config, model.head, params, tokenizer)
