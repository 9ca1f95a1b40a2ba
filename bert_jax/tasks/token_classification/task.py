"""Token classification: a tag for each word, such as named entities or parts of speech.

Devlin et al. 2018 (arXiv:1810.04805), section 5.3: the tag of a word is predicted at its first token.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.tables import Columns
from bert_jax.data.finetuning.tagged import TAGGED_COLUMNS
from bert_jax.data.finetuning.tags import UNTAGGED
from bert_jax.data.tokens import packing
from bert_jax.jobs import fine_tuning, setup
from bert_jax.jobs.base import Job, Metrics, model_inputs
from bert_jax.jobs.synthetic_rows import WORD
from bert_jax.jobs.teaching import teacher_classes, with_teacher_outputs
from bert_jax.jobs.training_metadata import TrainingMetadata
from bert_jax.metrics import entities
from bert_jax.modeling import Bert
from bert_jax.modeling.losses import cross_entropy
from bert_jax.recipes import Recipe
from bert_jax.tasks.token_classification.data import encode_tagged, in_order, read_tagged

HEAD = "token_classification"
# The tags of synthetic rows.
_USUAL_TAGS = ("O", *(f"{kind}-{name}" for name in ("PER", "ORG", "LOC", "MISC") for kind in "BI"))


@dataclasses.dataclass(frozen=True)
class TokenClassificationTask:
    """Token classification; the loss is the cross entropy over tags at the first token of every word.

    Attributes:
        model: a Bert with head `token_classification`.
        names: names of the tags, by class.
        metrics: names of `bert_jax.metrics.entities.TAGGING_METRICS`.
    """

    model: Bert
    names: tuple[str, ...]
    metrics: tuple[str, ...]

    def label_weights(self, batch: Batch) -> jax.Array:
        """Return 1 for the first token of each word, `[B, S]`, else 0."""
        weights: jax.Array = (batch["labels"] != UNTAGGED).astype(jnp.float32)
        return weights

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the number of words."""
        return {"labels": jnp.maximum(self.label_weights(batch).sum(), 1.0)}

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss and the metrics of a batch or micro-batch (see `bert_jax.jobs.base.Task`)."""
        is_word = self.label_weights(batch)
        losses, right = cross_entropy(self._logits(params, batch, dropout_key), jnp.maximum(batch["labels"], 0))
        total, correct, count = (losses * is_word).sum(), (right * is_word).sum(), is_word.sum()
        metrics = {"cross_entropy": (total, count), "accuracy": (correct, count), "packing": packing(batch)}
        return total / weights["labels"], metrics

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return the most likely class of each token, `tags` [B, S] int32, and its probability `scores`."""
        logits = self._logits(params, batch, None)
        best = jnp.argmax(logits, axis=-1)
        scores = jnp.exp(logits.max(-1) - jax.nn.logsumexp(logits, axis=-1))
        return {"tags": best.astype(jnp.int32), "scores": scores}

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return the chosen metrics over all words."""
        tags = in_order([batch["labels"] for batch in batches], batches)
        predicted = in_order([prediction["tags"] for prediction in predictions], batches)
        return entities.tagging_scores(self.metrics, self.names, tags, predicted)

    def _logits(self, params: Any, batch: Batch, dropout_key: jax.Array | None) -> jax.Array:
        logits = self.model.apply(params, **model_inputs(batch), dropout_key=dropout_key).logits
        assert logits is not None
        return logits  # [B, S, C]


def build(recipe: Recipe) -> Job:
    """Read the data and the model that a resolved recipe of token classification names. See `bert_jax.jobs.build`."""
    data = recipe.data
    loaded, tokenizer, config = fine_tuning.starting_model(recipe, HEAD)
    columns = Columns(data.text_column, "", data.label_column)
    numbered = tuple(data.tag_names)
    names = teacher_classes(recipe, HEAD)
    rows, names = read_tagged(
        data.train, columns, names, fine_tuning.invalid_rows(recipe, data.train, "sentence"), numbered
    )
    rows, held = fine_tuning.hold_out(recipe, rows)
    if data.dev:
        held, _ = read_tagged(
            data.dev, columns, names, fine_tuning.invalid_rows(recipe, data.dev, "sentence"), numbered
        )
    train = encode_tagged(tokenizer, rows, names, data.max_seq_length)
    dev = encode_tagged(tokenizer, held, names, data.max_seq_length) if held else None
    metrics = entities.choose_tagging_metrics(data.metrics, names)
    model = Bert(config.replace(num_labels=len(names), id2label=names), HEAD, setup.compute(recipe))
    task = TokenClassificationTask(model, names, metrics)
    train = with_teacher_outputs(recipe, model, tokenizer, train, lambda tokenizer, settings, length: train)
    return fine_tuning.build_job(recipe, task, tokenizer, loaded, train, dev, TrainingMetadata(columns))


def synthetic_rows(recipe: Recipe) -> list[dict[str, Any]]:
    """Return a sentence with one word per tag of the teacher, of the recipe, or of four types of entities."""
    names = list(teacher_classes(recipe, HEAD) or recipe.data.tag_names or _USUAL_TAGS)
    columns = Columns(recipe.data.text_column, "", recipe.data.label_column).filled(TAGGED_COLUMNS)
    return [{columns.text: [WORD] * len(names), columns.label: names}]
