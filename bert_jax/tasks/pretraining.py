"""Masked-LM pretraining, alone or with the next sentence or the order of sentences, as the prepared data have it.

Devlin et al. 2018 (arXiv:1810.04805), section 3.1 and appendix A.2; `bert_jax.data.instances` for the others.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import recipes
from bert_jax.config import BertConfig
from bert_jax.conversion.huggingface import save_pretrained
from bert_jax.data.manifest import TOKENIZER_DIR, Manifest
from bert_jax.data.pipeline import PretrainingEvalSource, PretrainingSource, StagedSource
from bert_jax.errors import InputError
from bert_jax.modeling import Bert
from bert_jax.modeling.losses import cross_entropy
from bert_jax.tasks import start
from bert_jax.tasks.job import Batch, Job, Metrics, Outline, Stage

_COUNTED_LABELS = 20_000  # masked tokens among which the commonest is found


@dataclasses.dataclass(frozen=True)
class PretrainingTask:
    """Mean masked-LM cross entropy over all masked tokens plus mean cross entropy of the labels over all pairs.

    Attributes:
        model: a Bert with head `pretraining`, or `masked_lm` for objective mlm.
        commonest_id: the token that is masked most often in the training data; answering it always is the baseline
            that `mlm_commonest_accuracy` shows.
        objective: nsp, sop or mlm (`bert_jax.data.instances`); names the metrics of pairs.
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
        """Both summed losses of these rows over their `weights`, and metrics (see `bert_jax.tasks.job.Task`)."""
        sums = {name: value.sum() for name, value in self._sums(params, batch, dropout_key).items()}
        loss = sum((sums[f"{term}_loss"] / weight for term, weight in weights.items()), start=jnp.float32(0))
        shown = {name: (sums[part], sums[count]) for name, (part, count) in self._metrics().items()}
        del shown["mlm_commonest_accuracy"]  # tells nothing while training
        is_token = batch["segment_ids" if "segment_ids" in batch else "attention_mask"] > 0
        shown["packing"] = (is_token.sum(dtype=jnp.float32), jnp.float32(is_token.size))
        return loss, shown

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """For each row [B], the sums that the metrics are made of, without dropout."""
        return self._sums(params, batch, None)

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """The metrics of `loss` over all batches, and `mlm_commonest_accuracy`; perplexity is exp(mlm_loss)."""
        sums = {name: sum(float(p[name].sum(dtype=np.float64)) for p in predictions) for name in predictions[0]}
        return {name: sums[part] / max(sums[count], 1.0) for name, (part, count) in self._metrics().items()}

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
            batch["input_ids"],
            batch.get("attention_mask"),
            batch["token_type_ids"],
            batch.get("position_ids"),
            masked_positions=batch["masked_positions"],
            masked_labels=batch["masked_labels"],
            segment_ids=batch.get("segment_ids"),
            cls_positions=batch.get("cls_positions"),
            dropout_key=dropout_key,
        )
        assert out.masked_lm_losses is not None and out.masked_lm_correct is not None
        labels, masked = batch["masked_labels"], batch["masked_weights"]
        sums = {
            "mlm_loss": (out.masked_lm_losses * masked).sum(-1),
            "mlm_correct": (out.masked_lm_correct * masked).sum(-1),
            "mlm_commonest": ((labels == self.commonest_id) * masked).sum(-1),
            "mlm_count": masked.sum(-1),
        }
        if self.has_pairs:
            assert out.seq_relationship_logits is not None
            real, pairs = batch["example_weights"], self.objective
            losses, right = cross_entropy(out.seq_relationship_logits, batch["next_sentence_labels"])
            parts = {f"{pairs}_loss": losses * real, f"{pairs}_correct": right * real, f"{pairs}_count": real}
            sums |= {name: part.reshape(len(part), -1).sum(-1) for name, part in parts.items()}
        return sums


def build(recipe: Any, workdir: str) -> Job:
    """Reads the prepared data and the model that a resolved pretraining recipe names. See `bert_jax.tasks.build`."""
    stages = recipes.stages(recipe)
    directories = [_prepared(recipe, length) for _, length, _ in stages]
    manifests = [Manifest.read(directory) for directory in directories]
    objective = manifests[0].objective
    head = "masked_lm" if objective == "mlm" else "pretraining"
    loaded = start.pretrained(recipe, head)
    tokenizer = start.tokenizer(recipe, data=f"{directories[0]}/{TOKENIZER_DIR}")
    for directory, manifest in zip(directories, manifests, strict=True):
        if manifest.objective != objective:
            raise InputError(f"{directory}: expected objective {objective}, as in {directories[0]}, "
                             f"found {manifest.objective}")  # fmt: skip
        if manifest.tokenizer_fingerprint != tokenizer.fingerprint:
            expected = f"config.tokenizer {recipe.tokenizer!r}" if recipe.tokenizer else directories[0]
            raise InputError(f"{directory}: expected examples in the vocabulary of {expected}, found another")
    config = start.config(recipe, tokenizer, loaded)
    model = Bert(config, head, start.compute(recipe))
    sources = []
    for i, (_, length, batch_size) in enumerate(stages):
        start.check_length(length, config, "config.stages" if recipe.stages else "config.data.sequence_length")
        # Stages draw orders and masks of their own: each begins its examples anew.
        options = _masking(recipe, recipe.seed + i, config)
        sources.append(PretrainingSource(directories[i], "train", length, batch_size, **options))
    if recipe.stages:
        counts: list[int | None] = [count for count, _, _ in stages]
        num_steps = recipe.num_steps
    else:
        counts = [None]
        epochs = recipe.num_epochs * sources[0].num_examples / recipe.global_batch_size
        num_steps = recipe.num_steps or math.ceil(epochs)
    return Job(
        task=PretrainingTask(model, _commonest_label(sources[0]), objective),
        tokenizer=tokenizer,
        init_params=model.init,
        pretrained=loaded.params if loaded else None,
        train_source=StagedSource(list(zip(counts, sources, strict=True))),
        eval_source=_eval_source(recipe, config),
        num_steps=num_steps,
        save=functools.partial(_save, model=model, tokenizer=tokenizer),
    )


def outline(recipe: Any) -> Outline:
    """The steps of a resolved pretraining recipe. See `bert_jax.tasks.outline`."""
    stages = recipes.stages(recipe)
    rows: list[Mapping[str, Any]]
    if recipe.data.prepared:
        job = build(recipe, "")
        assert isinstance(job.train_source, StagedSource)
        task, num_steps = job.task, job.num_steps
        rows = [source.batch(0, slice(0, 1)) for _, source in job.train_source.stages]
    else:
        config = start.config_without_data(recipe, "pretraining")
        for _, length, _ in stages:
            start.check_length(length, config, "config.stages" if recipe.stages else "config.data.sequence_length")
        task = PretrainingTask(Bert(config, "pretraining", start.compute(recipe)), commonest_id=0)
        num_steps = recipe.num_steps
        share, most = recipe.data.mask_prob, recipe.data.max_predictions
        rows = [_row(length, most or math.ceil(share * length)) for _, length, _ in stages]
    return Outline(
        task=task,
        init_params=task.model.init,
        stages=tuple(
            Stage.of_rows(count if recipe.stages else num_steps, size, row)
            for (count, _, size), row in zip(stages, rows, strict=True)
        ),
    )


def _row(length: int, predictions: int) -> dict[str, jax.ShapeDtypeStruct]:
    """One row of unpacked pairs, as `PreparedInstances.batch` makes it."""

    def array(dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((1, *shape), dtype)

    return {
        **{name: array(jnp.int32, length) for name in ("input_ids", "attention_mask", "token_type_ids")},
        **{name: array(jnp.int32, predictions) for name in ("masked_positions", "masked_labels")},
        "masked_weights": array(jnp.float32, predictions),
        "example_weights": array(jnp.float32),
        "next_sentence_labels": array(jnp.int32),
    }


def _prepared(recipe: Any, length: int) -> str:
    """The directory with the examples of a stage."""
    if not recipe.data.prepared:
        raise InputError("config.data.prepared: expected a directory made by `bert-jax prepare`, found nothing")
    return recipe.data.prepared.replace("{sequence_length}", str(length))


def _masking(recipe: Any, seed: int, config: BertConfig) -> dict[str, Any]:
    data = recipe.data
    return {
        "max_predictions": data.max_predictions or None,
        "mask_prob": data.mask_prob,
        "mask_unit": data.mask_unit,
        "hidden_share": data.hidden_share,
        "random_share": data.random_share,
        "static_masks": data.static_masks,
        "seed": seed,
        "config": config,
    }


def _eval_source(recipe: Any, config: BertConfig) -> PretrainingEvalSource | None:
    """The held-out examples at one length for the whole run, so that its curve compares like with like."""
    length = recipe.data.eval_sequence_length or max(recipes.stages(recipe))[1]
    start.check_length(length, config, "config.data.eval_sequence_length")
    directory = _prepared(recipe, length)
    if not Manifest.read(directory).lengths("validation"):
        return None
    most = recipe.data.eval_batches * recipe.eval_batch_size or None
    options = _masking(recipe, recipe.seed, config)
    return PretrainingEvalSource(directory, "validation", length, recipe.eval_batch_size, max_examples=most, **options)


def _commonest_label(source: PretrainingSource) -> int:
    """The id masked most often in the first training batches: the answer of somebody who looks at nothing."""
    counts = np.zeros(source.instances.tokenizer.vocab_size, np.int64)
    for step in range(source.steps_per_epoch):
        batch = source.batch(step)
        counts += np.bincount(batch["masked_labels"][batch["masked_weights"] > 0], minlength=len(counts))
        if counts.sum() >= _COUNTED_LABELS:
            break
    return int(counts.argmax())


def _save(directory: Any, params: Any, *, model: Bert, tokenizer: Any) -> None:
    save_pretrained(directory, model.config, model.head, params, tokenizer)
