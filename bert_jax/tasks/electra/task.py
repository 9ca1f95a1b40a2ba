"""Replaced-token detection: a generator predicts masked tokens, a discriminator detects the tokens that it replaced.

Clark et al. 2020 (arXiv:2003.10555), section 2; He et al. 2021 (arXiv:2111.09543), section 3. The data may be prepared
for any objective; labels of pairs are ignored.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.conversion.load_pretrained import Loaded, load_pretrained
from bert_jax.conversion.save_pretrained import save_pretrained
from bert_jax.data.batches import Batch
from bert_jax.data.pretraining.stages import most_frequent_label
from bert_jax.data.tokens import is_token, packing
from bert_jax.errors import InputError
from bert_jax.jobs import setup
from bert_jax.jobs.base import Job, Metrics
from bert_jax.metrics.ratios import ratios
from bert_jax.modeling import Electra, Params
from bert_jax.modeling.electra import generator_config
from bert_jax.recipes import Recipe
from bert_jax.tasks.pretraining.data import (
    PretrainingData,
    describe_mixtures,
    num_steps,
)
from bert_jax.tasks.pretraining.masked_lm import masked_lm_sums

HEAD = "replaced_token_detection"
GENERATOR_DIR = "generator"  # directory of the generator inside the directory of the discriminator
_EVAL_SEED = 0  # seed of the generator's samples in evaluations, the same for all evaluations

# Metric -> names of its (sum, count) in `_sums`.
_METRICS = {
    "mlm_loss": ("mlm_loss", "mlm_count"),
    "mlm_accuracy": ("mlm_correct", "mlm_count"),
    "disc_loss": ("disc_loss", "disc_count"),
    "disc_accuracy": ("disc_correct", "disc_count"),
    "disc_precision": ("disc_found", "disc_claimed"),
    "disc_recall": ("disc_found", "disc_replaced"),
}


@dataclasses.dataclass(frozen=True)
class ElectraTask:
    """ELECTRA's pretraining task.

    The loss is the generator's mean masked-LM cross entropy over masked tokens, plus `discriminator_weight` times the
    discriminator's mean binary cross entropy over all tokens.

    Attributes:
        model: generator and discriminator.
        majority_id: as in `PretrainingTask`.
        discriminator_weight: lambda of section 2.
    """

    model: Electra
    majority_id: int
    discriminator_weight: float = 50.0

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the number of masked tokens and of all tokens."""
        counts = {"mlm": batch["masked_weights"].sum(), "disc": is_token(batch).sum(dtype=jnp.float32)}
        return {name: jnp.maximum(count, 1.0) for name, count in counts.items()}

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss and the metrics of a batch or micro-batch (see `bert_jax.jobs.base.Task`).

        The generator samples with a key made from `dropout_key` or, if it is None, with the fixed key of evaluations.
        """
        sums = {name: value.sum() for name, value in self._sums(params, batch, dropout_key).items()}
        disc = self.discriminator_weight * sums["disc_loss"] / weights["disc"]
        shown = {name: (sums[part], sums[count]) for name, (part, count) in _METRICS.items()}
        shown["packing"] = packing(batch)
        return sums["mlm_loss"] / weights["mlm"] + disc, shown

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return for each row [B] the sums from which the metrics are computed, without dropout."""
        return self._sums(params, batch, None)

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return the metrics over all batches, and the share of masked tokens that are the most frequent token."""
        return ratios(predictions, _METRICS | {"mlm_majority_accuracy": ("mlm_majority", "mlm_count")})

    def _sums(self, params: Any, batch: Batch, dropout_key: jax.Array | None) -> dict[str, jax.Array]:
        sample_key = jax.random.key(_EVAL_SEED) if dropout_key is None else jax.random.fold_in(dropout_key, 1)
        out = self.model.apply(
            params,
            batch["input_ids"],
            batch.get("attention_mask"),
            batch["token_type_ids"],
            batch.get("position_ids"),
            masked_positions=batch["masked_positions"],
            masked_labels=batch["masked_labels"],
            masked_weights=batch["masked_weights"],
            segment_ids=batch.get("segment_ids"),
            sample_key=sample_key,
            dropout_key=None if dropout_key is None else jax.random.fold_in(dropout_key, 0),
        )
        real, replaced, claimed = is_token(batch), out.is_replaced, out.logits > 0
        # -log sigmoid(x) for replaced tokens, -log(1 - sigmoid(x)) for others
        losses = jax.nn.softplus(jnp.where(replaced, -out.logits, out.logits))
        of_tokens = {
            "disc_loss": losses,
            "disc_correct": claimed == replaced,
            "disc_count": jnp.ones_like(losses),
            "disc_found": claimed & replaced,
            "disc_claimed": claimed,
            "disc_replaced": replaced,
        }
        sums = {name: jnp.where(real, values, 0.0).sum(-1) for name, values in of_tokens.items()}
        return masked_lm_sums(out, batch, self.majority_id) | sums


def build(recipe: Recipe) -> Job:
    """Read the prepared data and the models that a resolved recipe names. See `bert_jax.jobs.build`."""
    data = PretrainingData.of(recipe)
    loaded = setup.pretrained(recipe, HEAD)
    model = _model(recipe, setup.config(recipe, data.tokenizer, loaded))
    pretrained = _pretrained(recipe, model, loaded) if loaded else None
    train_source = data.train_source(model.config)
    return Job(
        task=ElectraTask(model, most_frequent_label(train_source), recipe.discriminator_weight),
        tokenizer=data.tokenizer,
        init_params=model.init,
        pretrained=pretrained,
        train_source=train_source,
        eval_source=data.eval_source(model.config),
        num_steps=(steps := num_steps(recipe, train_source)),
        save=functools.partial(_save, model=model, tokenizer=data.tokenizer),
        data=functools.partial(data.fingerprint, model.config),
        notes=describe_mixtures(data, train_source, steps),
    )


def _model(recipe: Recipe, config: BertConfig) -> Electra:
    setup.check_head(config, HEAD)
    generator = generator_config(config, recipe.model.generator_size, recipe.model.generator_layers)
    return Electra(config, generator, setup.compute(recipe), recipe.model.embedding_sharing)


def _pretrained(recipe: Recipe, model: Electra, discriminator: Loaded) -> Params:
    """Load the generator beside a saved discriminator, and join the parameters of both."""
    where = storage.Path(discriminator.directory) / GENERATOR_DIR
    if not where.exists():
        raise InputError(f"{discriminator.directory}: expected the generator in {GENERATOR_DIR}/, found none")
    generator = load_pretrained(where, "masked_lm", dequantize=True)
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
        expected, actual = model.generator_config.settings().get(name), generator.config.settings().get(name)
        key = "generator_layers" if name == "num_hidden_layers" else "generator_size"
        if expected != actual:
            raise InputError(
                f"{where}: {name}: expected {expected} for config.model.{key} {recipe.model[key]}, found {actual}"
            )
    if model.embedding_sharing != "es":
        return model.joined(discriminator.params, generator.params)
    words = [loaded.params["embeddings"]["word_embeddings"]["embedding"] for loaded in (discriminator, generator)]
    if not np.array_equal(*words):
        raise InputError(
            f"{where}: expected the discriminator's embeddings, which both models share for "
            "config.model.embedding_sharing es, found others"
        )
    return model.joined(discriminator.params, generator.params)


def _save(directory: Any, params: Params, *, model: Electra, tokenizer: Any) -> None:
    save_pretrained(directory, model.config, HEAD, model.discriminator_params(params), tokenizer)
    generator = model.generator_params(params)
    save_pretrained(storage.Path(directory) / GENERATOR_DIR, model.generator_config, "masked_lm", generator, tokenizer)
