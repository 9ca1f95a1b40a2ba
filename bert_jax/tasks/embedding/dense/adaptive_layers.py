"""Adaptive layers: train embeddings of earlier layers too, so that a model cut to its first layers embeds well.

Li et al. 2024 (arXiv:2402.14776), section 3.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.batching import TrainSource
from bert_jax.errors import InputError
from bert_jax.jobs.base import Job, Metrics

_LAYER = "layer_{}"  # batch array: i-th layer of this step


@dataclasses.dataclass(frozen=True)
class AdaptiveLayers:
    """Settings of adaptive layers.

    Attributes:
        count: number n of earlier layers that a step trains.
        weight: weight of the mean loss of these layers.
        kl_weight: weight of the KL divergence between the softmax over an earlier layer's embedding and that over the
            last layer's, which gets no gradient.
        temperature: temperature of both softmaxes; it also multiplies the divergence.
    """

    count: int
    weight: float = 1.0
    kl_weight: float = 1.0
    temperature: float = 0.3

    @classmethod
    def of_recipe(cls, data: Any, num_layers: int) -> "AdaptiveLayers | None":
        """Return the settings of a recipe's data section; None without adaptive layers.

        Raises:
            InputError: the model has too few layers, or the loss does not allow adaptive layers.
        """
        if not data.layers_per_step:
            return None
        if data.loss in ("tsdae", "none"):
            expected = f"0 for loss {data.loss!r}"
            raise InputError(f"config.data.layers_per_step: expected {expected}, found {data.layers_per_step}")
        if data.layers_per_step >= num_layers:
            expected = f"at most {num_layers - 1}, the number of layers before the last"
            raise InputError(f"config.data.layers_per_step: expected {expected}, found {data.layers_per_step}")
        return cls(data.layers_per_step, data.layers_weight, data.layers_kl_weight, data.layers_kl_temperature)

    def layers(self, batch: Batch) -> list[jax.Array]:
        """Return the layers that a batch names, from 0; the first layers if it names none."""
        drawn = [batch.get(_LAYER.format(i)) for i in range(self.count)]
        return [jnp.int32(i) if layer is None else layer.max().astype(jnp.int32) for i, layer in enumerate(drawn)]

    def loss(
        self, embeddings: jax.Array, objective: Callable[[jax.Array], tuple[jax.Array, Metrics]], real: jax.Array,
        rows: jax.Array,
    ) -> tuple[jax.Array, Metrics]:  # fmt: skip
        """Return the total loss over the layers, and the metrics of the last layer.

        Args:
            embeddings: `[B, T, 1 + n, D]`, of the last layer and of the layers of this step.
            objective: function from embeddings `[B, T, D]` to their loss and metrics.
            real: 1 for rows, 0 for padding, `[B]`.
            rows: number by which sums over rows are divided.
        """
        total, sums = objective(embeddings[:, :, 0])
        final = jax.lax.stop_gradient(jax.nn.log_softmax(embeddings[:, :, 0] / self.temperature))
        for i in range(self.count):
            earlier = embeddings[:, :, 1 + i]
            total += self.weight / self.count * objective(earlier)[0]
            log_softmax = jax.nn.log_softmax(earlier / self.temperature)
            divergence = (jnp.exp(final) * (final - log_softmax)).sum(-1).mean(1)  # [B]
            total += self.kl_weight * self.temperature * (divergence * real).sum() / rows
        return total, sums

    def with_layers(self, job: Job, num_layers: int, seed: int) -> Job:
        """Return a job whose batches name the earlier layers to train, a pure function of seed and step."""

        def values(step: int, _num_steps: int) -> Mapping[str, float]:
            chosen = np.random.default_rng([seed, step]).choice(num_layers - 1, self.count, replace=False)
            return {_LAYER.format(i): float(layer) for i, layer in enumerate(chosen)}

        assert isinstance(job.train_source, TrainSource)
        return dataclasses.replace(job, train_source=job.train_source.with_values(values))
