"""Masked-LM and next-sentence pretraining. Devlin et al. 2018 (arXiv:1810.04805), section 3.1 and appendix A.2."""

import dataclasses
import functools
import math
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
from bert_jax.tasks import start
from bert_jax.tasks.job import Batch, Job, Metrics
from bert_jax.tasks.losses import cross_entropy

# Metric -> its (sum, count) among the sums that `_sums` gives; the only ones that `score` needs.
_METRICS = {
    "mlm_loss": ("mlm_loss", "mlm_count"),
    "mlm_accuracy": ("mlm_correct", "mlm_count"),
    "mlm_commonest_accuracy": ("mlm_commonest", "mlm_count"),
    "nsp_loss": ("nsp_loss", "nsp_count"),
    "nsp_accuracy": ("nsp_correct", "nsp_count"),
}


HEAD = "pretraining"
_COUNTED_LABELS = 20_000  # masked tokens among which the commonest is found


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
        assert out.prediction_logits is not None and out.seq_relationship_logits is not None
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


def build(recipe: Any, workdir: str) -> Job:
    """Reads the prepared data and the model that a resolved pretraining recipe names. See `bert_jax.tasks.build`."""
    stages = recipes.stages(recipe)
    directories = [_prepared(recipe, length) for _, length, _ in stages]
    fingerprints = [Manifest.read(directory).tokenizer_fingerprint for directory in directories]
    loaded = start.pretrained(recipe, HEAD)
    tokenizer = start.tokenizer(recipe, data=f"{directories[0]}/{TOKENIZER_DIR}")
    for directory, fingerprint in zip(directories, fingerprints, strict=True):
        if fingerprint != tokenizer.fingerprint:
            expected = f"config.tokenizer {recipe.tokenizer!r}" if recipe.tokenizer else directories[0]
            raise InputError(f"{directory}: expected examples in the vocabulary of {expected}, found another")
    config = start.config(recipe, tokenizer, loaded)
    model = Bert(config, HEAD, start.compute(recipe))
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
        task=PretrainingTask(model, _commonest_label(sources[0])),
        tokenizer=tokenizer,
        init_params=model.init,
        pretrained=loaded.params if loaded else None,
        train_source=StagedSource(list(zip(counts, sources, strict=True))),
        eval_source=_eval_source(recipe, config),
        num_steps=num_steps,
        save=functools.partial(_save, model=model, tokenizer=tokenizer),
    )


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
    save_pretrained(directory, model.config, HEAD, params, tokenizer)
