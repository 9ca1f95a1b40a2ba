"""Low-rank adaptation (LoRA): frozen matrices, each with a trainable product of two thin ones added.

Hu et al. 2021 (arXiv:2106.09685), section 4.1. The heads on the encoder learn in full. A finished model is written with
the products added, so that it is a model like any other.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.errors import InputError, did_you_mean
from bert_jax.modeling import Params
from bert_jax.storage import PathLike
from bert_jax.tasks.base import AbstractTask, Job, Metrics, Task

TARGETS = {
    "query": "attention", "key": "attention", "value": "attention", "output": "attention",
    "up": "mlp", "gate": "mlp", "down": "mlp",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Lora:
    """What is added to the matrices of a model.

    The parameters are `{"base": the model's, "lora": {"encoder": {"layers": {"attention": {"query": {"a", "b"}}}}}}`;
    `a` is `[L, in, r]`, `b` is `[L, r, out]`, both float32.

    Attributes:
        rank: r.
        alpha: the product is added `alpha / rank` times.
        targets: of TARGETS.
    """

    rank: int
    alpha: float
    targets: tuple[str, ...]

    def on(self, init_params: Callable[[jax.Array], Params]) -> Callable[[jax.Array], Params]:
        """key -> the parameters of an adapted model whose own `init_params` makes."""
        return lambda key: self.init(init_params(key), jax.random.fold_in(key, 1))

    def init(self, base: Params, key: jax.Array) -> Params:
        """Fresh parameters on those of a model: `b` is 0, so that at first nothing is added."""
        lora: Params = {}
        for i, name in enumerate(self.targets):
            part = TARGETS[name]
            if name not in base["encoder"]["layers"][part]:
                raise InputError(f"config.lora.targets: {name!r} is no matrix of this model's layers")
            layers, rows, columns = base["encoder"]["layers"][part][name]["kernel"].shape
            a = jax.random.normal(jax.random.fold_in(key, i), (layers, rows, self.rank)) * rows**-0.5
            lora.setdefault(part, {})[name] = {"a": a, "b": jnp.zeros((layers, self.rank, columns))}
        return {"base": base, "lora": {"encoder": {"layers": lora}}}

    def merge(self, params: Params) -> Params:
        """The parameters of the adapted model; no gradient goes to its embeddings and its layers."""
        base, lora = params["base"], params["lora"]["encoder"]["layers"]
        merged = base | {name: jax.lax.stop_gradient(base[name]) for name in ("embeddings", "encoder")}
        layers = dict(merged["encoder"]["layers"])
        for name in self.targets:
            part = TARGETS[name]
            pair = lora[part][name]
            added = jnp.einsum("lir,lro->lio", pair["a"], pair["b"], precision=jax.lax.Precision.HIGHEST)
            matrix = layers[part][name]
            layers[part] = layers[part] | {name: matrix | {"kernel": matrix["kernel"] + self.alpha / self.rank * added}}
        return merged | {"encoder": merged["encoder"] | {"layers": layers}}


@dataclasses.dataclass(frozen=True)
class LoraTask:
    """A task whose model is adapted: see `bert_jax.tasks.base.Task`."""

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


def of_recipe(recipe: Any) -> Lora | None:
    """What a resolved recipe asks for. Raises InputError for a target that is not known."""
    c = recipe.lora
    if not c.rank:
        return None
    for name in c.targets:
        if name not in TARGETS:
            raise InputError(f"config.lora.targets: {name!r} is not known{did_you_mean(str(name), TARGETS)}")
    if not c.targets:
        raise InputError(f"config.lora.targets: expected some of {', '.join(TARGETS)}, found none")
    return Lora(c.rank, c.alpha, tuple(c.targets))


def adapt(job: Job, lora: Lora) -> Job:
    """The job of learning what is added to the model of `job`."""

    def save(directory: PathLike, params: Params) -> None:
        job.save(directory, jax.tree.map(np.asarray, lora.merge(params)))

    return dataclasses.replace(
        job,
        task=LoraTask(job.task, lora),
        init_params=lora.on(job.init_params),
        pretrained=None if job.pretrained is None else {"base": job.pretrained},
        save=save,
    )


def adapt_abstract(abstract_task: AbstractTask, lora: Lora) -> AbstractTask:
    """The same for an abstract task."""
    return dataclasses.replace(
        abstract_task, task=LoraTask(abstract_task.task, lora), init_params=lora.on(abstract_task.init_params)
    )
