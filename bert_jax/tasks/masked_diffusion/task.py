"""Masked diffusion: train a masked LM at every mask rate to generate answers to prompts, or texts.

Sahoo et al. 2024 (arXiv:2406.07524) and Nie et al. 2025 (arXiv:2502.09992, section 2.3): prompts are never masked. The
noise is that of `bert_jax.data.diffusion`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.diffusion import Noise
from bert_jax.data.finetuning.columns import Columns, recipe_key
from bert_jax.data.tokens import packing
from bert_jax.errors import InputError
from bert_jax.jobs import fine_tuning, setup
from bert_jax.jobs.base import Job, Metrics, model_inputs
from bert_jax.jobs.synthetic_rows import WORD, table_rows
from bert_jax.jobs.training_metadata import TrainingMetadata
from bert_jax.metrics.ratios import ratios
from bert_jax.modeling import Bert
from bert_jax.recipes import Recipe
from bert_jax.tasks.masked_diffusion.data import (
    ANSWERING_ROLE,
    AnswerRegion,
    NoisyBatches,
    PromptAnswer,
    encode_answers,
    evaluation_features,
    read_answers,
)
from bert_jax.tasks.masked_diffusion.settings import Generated

HEAD = "masked_lm"
# Metric -> names of its sum and count in the predictions of a batch.
_METRICS = {"diffusion_loss": ("loss", "targets"), "masked_accuracy": ("correct", "masked")}


@dataclasses.dataclass(frozen=True)
class MaskedDiffusionTask:
    """Masked diffusion; the loss is an upper bound of the negative log-likelihood per target token, in nats.

    Attributes:
        model: a Bert with head `masked_lm`.
    """

    model: Bert

    def label_weights(self, batch: Batch) -> jax.Array:
        """Return the weights of masked tokens, `[B, P]`."""
        weights: jax.Array = batch["masked_weights"]
        return weights

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the number of target tokens."""
        return {"tokens": jnp.maximum(batch["target_counts"].sum(), 1.0)}

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss and the metrics of a batch or micro-batch (see `bert_jax.jobs.base.Task`)."""
        sums = {name: value.sum() for name, value in self._sums(params, batch, dropout_key).items()}
        metrics = {name: (sums[part], sums[count]) for name, (part, count) in _METRICS.items()}
        return sums["loss"] / weights["tokens"], metrics | {"packing": packing(batch)}

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return for each row [B] the sums from which the metrics are computed, without dropout."""
        return self._sums(params, batch, None)

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return the metrics over all batches; `diffusion_perplexity` is exp of the bound."""
        scores = ratios(predictions, _METRICS)
        return scores | {"diffusion_perplexity": float(np.exp(scores["diffusion_loss"]))}

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
        weights, targets = batch["masked_weights"], batch["target_counts"]
        masked = (weights > 0).astype(jnp.float32)
        return {
            "loss": (out.masked_lm_losses * weights).sum(-1),
            "targets": targets.reshape(len(targets), -1).sum(-1),
            "correct": (out.masked_lm_correct * masked).sum(-1),
            "masked": masked.sum(-1),
        }


def build(recipe: Recipe) -> Job:
    """Read the data and the model that a resolved recipe of masked diffusion names. See `bert_jax.jobs.build`."""
    data, columns = recipe.data, diffusion_columns(recipe)
    loaded, tokenizer, config = fine_tuning.starting_model(recipe, HEAD, HEAD)
    region = AnswerRegion(data.answer_length, data.answer_fill, recipe.seed)
    rows: list[PromptAnswer] = list(_read(recipe, data.train, columns))
    lines, groups = np.unique([row.line for row in rows], return_inverse=True)
    together = groups if len(lines) < len(rows) else None  # keep a conversation's answers together
    rows, held = fine_tuning.hold_out(recipe, rows, groups=together)
    if data.dev:
        held = list(_read(recipe, data.dev, columns))
    train = encode_answers(tokenizer, rows, data.max_seq_length, region)
    dev = None
    if held:
        held_out = encode_answers(tokenizer, held, data.max_seq_length, region)
        dev = evaluation_features(held_out, tokenizer.mask_id, data.answer_length)
    task = MaskedDiffusionTask(Bert(config, HEAD, setup.compute(recipe)))
    generated = Generated(region.length, region.fill, tuple(np.bincount(train.answer_lengths).tolist()))
    metadata = TrainingMetadata(columns, records={"generated": generated})
    job = fine_tuning.build_job(recipe, task, tokenizer, loaded, train, dev, metadata)
    noise = Noise(tokenizer.mask_id, data.noise_schedule, data.noise_weighting)
    slots = data.packing or data.answer_length  # maximum number of target tokens in a row
    source = NoisyBatches(job.train_source, noise, slots, recipe.seed)  # type: ignore[arg-type]
    return dataclasses.replace(job, train_source=source)


def _read(recipe: Recipe, spec: str, columns: Columns) -> Any:
    bad = fine_tuning.invalid_rows(recipe, spec)
    return bad.fitting(read_answers(spec, columns, bad))


def diffusion_columns(recipe: Recipe) -> Columns:
    """Return the columns that a recipe of masked diffusion names.

    Raises:
        InputError: the recipe names both conversations and prompts, or neither answers nor conversations.
    """
    data = recipe.data
    if data.messages_column and (data.text_column or data.answer_column):
        other_column = data.text_column or data.answer_column
        raise InputError(f"config.data.messages_column: expected no other column of texts, found {other_column!r}")
    if not data.messages_column and not data.answer_column:
        raise InputError("config.data.answer_column: expected a column of answers, or data.messages_column, found none")
    roles: Mapping[str, str] = {"label": "answer"}
    return Columns(
        data.text_column, label=data.answer_column, texts=data.messages_column, has_header=data.has_header,
        delimiter=data.delimiter, encoding=data.encoding, option=recipe_key, roles=roles,
    )  # fmt: skip


def synthetic_rows(recipe: Recipe) -> list[dict[str, Any]]:
    """Return one row: a prompt with its answer, or a conversation."""
    if not recipe.data.messages_column:
        recipe.data.answer_column = recipe.data.answer_column or "answer"
    columns = diffusion_columns(recipe)
    if columns.texts:
        return [{columns.texts: [{"role": role, "content": WORD} for role in ("user", ANSWERING_ROLE)]}]
    return table_rows(columns, (WORD,))
