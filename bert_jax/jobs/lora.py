"""LoRA: add a trainable product of two low-rank matrices to each frozen matrix.

Hu et al. 2021 (arXiv:2106.09685), section 4.1. Heads are trained in full. The saved model has the products merged into
its matrices.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.errors import InputError, did_you_mean
from bert_jax.jobs.base import Job, Metrics, Task
from bert_jax.modeling import Params
from bert_jax.recipes import Recipe
from bert_jax.storage import PathLike

TARGETS = {
    "query": "attention", "key": "attention", "value": "attention", "output": "attention",
    "up": "mlp", "gate": "mlp", "down": "mlp",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Lora:
    """A LoRA configuration.

    The parameters are `{"base": tree of the model, "lora": {"encoder": {"layers": {"attention": {"query": {"a", "b"}}}}
    }}`; `a` is `[L, in, r]`, `b` is `[L, r, out]`, both float32.

    Attributes:
        rank: r.
        alpha: the product is scaled by `alpha / rank`.
        targets: names of TARGETS.
    """

    rank: int
    alpha: float
    targets: tuple[str, ...]

    def on(self, init_params: Callable[[jax.Array], Params]) -> Callable[[jax.Array], Params]:
        """Wrap a model's `init_params`: return a function from a key to the parameters of the adapted model."""
        return lambda key: self.init(init_params(key), jax.random.fold_in(key, 1))

    def init(self, base: Params, key: jax.Array) -> Params:
        """Initialise LoRA's parameters for the model `base`; `b` is 0, so that at first nothing is added."""
        lora: Params = {}
        if "encoder" not in base:
            raise InputError(f"config.lora.rank: expected a task that trains one model, found {' and '.join(base)}")
        if "moe_layers" in base["encoder"]:
            raise InputError("config.lora: expected a model without experts, found experts")
        for i, name in enumerate(self.targets):
            part = TARGETS[name]
            if name not in base["encoder"]["layers"][part]:
                raise InputError(f"config.lora.targets: expected matrices of this model's layers, found {name!r}")
            layers, rows, columns = base["encoder"]["layers"][part][name]["kernel"].shape
            a = jax.random.normal(jax.random.fold_in(key, i), (layers, rows, self.rank)) * rows**-0.5
            lora.setdefault(part, {})[name] = {"a": a, "b": jnp.zeros((layers, self.rank, columns))}
        return {"base": base, "lora": {"encoder": {"layers": lora}}}

    def merge(self, params: Params) -> Params:
        """Return the parameters of the adapted model; no gradient flows to its embeddings and layers."""
        base, lora = params["base"], params["lora"]["encoder"]["layers"]
        merged = base | {name: jax.lax.stop_gradient(base[name]) for name in ("embeddings", "encoder")}
        layers = dict(merged["encoder"]["layers"])
        for name in self.targets:
            part = TARGETS[name]
            pair = lora[part][name]
            delta = jnp.einsum("lir,lro->lio", pair["a"], pair["b"], precision=jax.lax.Precision.HIGHEST)
            matrix = layers[part][name]
            layers[part] = layers[part] | {name: matrix | {"kernel": matrix["kernel"] + self.alpha / self.rank * delta}}
        return merged | {"encoder": merged["encoder"] | {"layers": layers}}


@dataclasses.dataclass(frozen=True)
class LoraTask:
    """A task with a LoRA-adapted model (see `bert_jax.jobs.base.Task`)."""

    task: Task
    lora: Lora

    @property
    def model(self) -> Any:
        return self.task.model

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        return self.task.weights(batch)

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        return self.task.loss(self.lora.merge(params), batch, dropout_key, weights)

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        return self.task.predict(self.lora.merge(params), batch)

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        return self.task.score(predictions, batches)


def of_recipe(recipe: Recipe) -> Lora | None:
    """Return the LoRA configuration of a resolved recipe, or None. Raises InputError for an unknown target."""
    c = recipe.lora
    if not c.rank:
        return None
    for name in c.targets:
        if name not in TARGETS:
            raise InputError(f"config.lora.targets: {name!r} is not known{did_you_mean(str(name), TARGETS)}")
    if not c.targets:
        raise InputError(f"config.lora.targets: expected at least one of {', '.join(TARGETS)}, found none")
    return Lora(c.rank, c.alpha, tuple(c.targets))


def adapt(job: Job, lora: Lora) -> Job:
    """Return the training job with a LoRA-adapted model."""

    def save(directory: PathLike, params: Params) -> None:
        job.save(directory, jax.tree.map(np.asarray, lora.merge(params)))

    return job.with_wrapped_task(
        lambda task: LoraTask(task, lora),
        init_params=lora.on(job.init_params),
        pretrained=None if job.pretrained is None else {"base": job.pretrained},
        save=save,
    )
