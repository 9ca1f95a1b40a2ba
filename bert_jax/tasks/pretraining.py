"""Masked-LM pretraining, alone or with next-sentence or sentence-order prediction, as the prepared data have it.

Devlin et al. 2018 (arXiv:1810.04805), section 3.1 and appendix A.2; for the others see
`bert_jax.data.pretraining.instances`.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.conversion.huggingface import save_pretrained
from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.packing import packing
from bert_jax.data.pretraining.stages import most_frequent_label
from bert_jax.metrics.scores import ratios
from bert_jax.modeling import Bert
from bert_jax.modeling.losses import cross_entropy
from bert_jax.tasks import fingerprints, setup
from bert_jax.tasks.base import AbstractTask, Job, Metrics, model_inputs
from bert_jax.tasks.masked_lm import masked_lm_sums
from bert_jax.tasks.pretraining_data import (
    PretrainingData,
    abstract_pretraining_task,
    abstract_stages,
    check_lengths,
    num_steps,
)


@dataclasses.dataclass(frozen=True)
class PretrainingTask:
    """Mean masked-LM cross entropy over all masked tokens plus mean cross entropy of the labels over all pairs.

    Attributes:
        model: a Bert with head `pretraining`, or `masked_lm` for objective mlm.
        commonest_id: the token that is masked most often in the training data; answering it always is the baseline
            that `mlm_commonest_accuracy` shows.
        objective: nsp, sop or mlm (`bert_jax.data.pretraining.instances`); names the metrics of pairs.
    """

    model: Bert
    commonest_id: int
    objective: str = "nsp"

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """The number of masked tokens and, by the name of the objective, of pairs."""
        counts = {"mlm": batch["masked_weights"].sum()}
        if self.has_pairs:
            counts[self.objective] = batch["example_weights"].sum()
        return {name: jnp.maximum(count, 1.0) for name, count in counts.items()}

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Both summed losses of these rows over their `weights`, and metrics (see `bert_jax.tasks.base.Task`)."""
        sums = {name: value.sum() for name, value in self._sums(params, batch, dropout_key).items()}
        loss = sum((sums[f"{term}_loss"] / weight for term, weight in weights.items()), start=jnp.float32(0))
        shown = {name: (sums[part], sums[count]) for name, (part, count) in self._metrics().items()}
        del shown["mlm_commonest_accuracy"]  # tells nothing while training
        shown["packing"] = packing(batch)
        return loss, shown

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """For each row [B], the sums that the metrics are made of, without dropout."""
        return self._sums(params, batch, None)

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """The metrics of `loss` over all batches, and `mlm_commonest_accuracy`; perplexity is exp(mlm_loss)."""
        return ratios(predictions, self._metrics())

    @property
    def has_pairs(self) -> bool:
        """Whether there is something to tell of pairs of segments."""
        return self.objective != "mlm"

    def _metrics(self) -> dict[str, tuple[str, str]]:
        """Metric -> its (sum, count) among the sums that `_sums` gives; the only ones that `score` needs."""
        metrics = {
            "mlm_loss": ("mlm_loss", "mlm_count"),
            "mlm_accuracy": ("mlm_correct", "mlm_count"),
            "mlm_commonest_accuracy": ("mlm_commonest", "mlm_count"),
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
        sums = masked_lm_sums(out, batch, self.commonest_id)
        if self.has_pairs:
            assert out.seq_relationship_logits is not None
            real, pairs = batch["example_weights"], self.objective
            losses, right = cross_entropy(out.seq_relationship_logits, batch["next_sentence_labels"])
            parts = {f"{pairs}_loss": losses * real, f"{pairs}_correct": right * real, f"{pairs}_count": real}
            sums |= {name: part.reshape(len(part), -1).sum(-1) for name, part in parts.items()}
        return sums


def build(recipe: Any, workdir: str) -> Job:
    """Reads the prepared data and the model that a resolved pretraining recipe names. See `bert_jax.tasks.build`."""
    data = PretrainingData.of(recipe)
    loaded = setup.pretrained(recipe, _head(data.objective))
    config = setup.config(recipe, data.tokenizer, loaded)
    setup.check_head(config, _head(data.objective))
    model = Bert(config, _head(data.objective), setup.compute(recipe))
    train_source = data.train_source(config)
    return Job(
        task=PretrainingTask(model, most_frequent_label(train_source), data.objective),
        tokenizer=data.tokenizer,
        init_params=model.init,
        pretrained=loaded.params if loaded else None,
        train_source=train_source,
        eval_source=data.eval_source(config),
        num_steps=num_steps(recipe, train_source),
        save=functools.partial(_save, model=model, tokenizer=data.tokenizer),
        data=functools.partial(fingerprints.of_prepared, data.tokenizer, config, data.directories),
    )


def abstract_task(recipe: Any) -> AbstractTask:
    """The steps of a resolved pretraining recipe. See `bert_jax.tasks.abstract_task`."""
    if recipe.data.prepared:
        return abstract_pretraining_task(recipe, build(recipe, ""))
    objective = "nsp" if "pretraining" in setup.heads(recipe) else "mlm"
    config = setup.config_without_data(recipe, _head(objective))
    check_lengths(recipe, config)
    task = PretrainingTask(Bert(config, _head(objective), setup.compute(recipe)), commonest_id=0, objective=objective)
    return AbstractTask(
        task, task.model.init, abstract_stages(recipe, None, recipe.num_steps, pairs=objective == "nsp")
    )


def _head(objective: str) -> str:
    return "masked_lm" if objective == "mlm" else "pretraining"


def _save(directory: Any, params: Any, *, model: Bert, tokenizer: Any) -> None:
    save_pretrained(directory, model.config, model.head, params, tokenizer)
