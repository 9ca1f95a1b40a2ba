"""Training of several tasks at once: one encoder, and a head of its own for each data set (`multi_task`).

The parameters are those of the encoder, with the paths that they have in every model, and `heads/SET/...` for each
set. A set's task computes with the encoder and its own head alone.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from bert_jax import storage
from bert_jax.data.batches import Batch
from bert_jax.errors import InputError
from bert_jax.jobs.base import Evaluation, Job, Metrics
from bert_jax.recipes import Recipe
from bert_jax.recipes.keys import SETS

_SHARED = ("embeddings", "encoder")  # the parts of a model that all sets train
_HEADS = "heads"


@dataclasses.dataclass(frozen=True)
class HeadTask:
    """The task of a set, whose parameters are the shared ones and those of the head `name`."""

    task: Any
    name: str

    @property
    def model(self) -> Any:
        """Return the model of the set: the encoder with its head."""
        return self.task.model

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """See `bert_jax.jobs.base.Task`."""
        weights: dict[str, jax.Array] = self.task.weights(batch)
        return weights

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """See `bert_jax.jobs.base.Task`."""
        loss: tuple[jax.Array, Metrics] = self.task.loss(model_params(params, self.name), batch, dropout_key, weights)
        return loss

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """See `bert_jax.jobs.base.Task`."""
        outputs: dict[str, jax.Array] = self.task.predict(model_params(params, self.name), batch)
        return outputs

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """See `bert_jax.jobs.base.Task`."""
        scores: dict[str, float] = self.task.score(predictions, batches)
        return scores


def model_params(params: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the parameters of the model of a set: the shared ones and those of its head."""
    return {part: params[part] for part in _SHARED} | params[_HEADS][name]


def check_recipe(recipe: Recipe) -> None:
    """Raise InputError when a recipe of several tasks sets what only a recipe of one task supports."""
    settings = {
        "keep_head": recipe.keep_head,
        "lora.rank": recipe.lora.rank,
        "distillation.teacher": recipe.distillation.teacher,
        "quantization.mode": recipe.quantization.mode,
    }
    for key, value in settings.items():
        if value:
            raise InputError(f"config.{key}: expected none with tasks of several heads, found {value!r}")


def with_shared_encoder(jobs: Mapping[str, Job]) -> dict[str, Job]:
    """Return the jobs of all sets with one tree of parameters, and one function that saves the model of each set.

    Raises:
        InputError: the encoders of two sets have other shapes.
    """
    _check_encoders(jobs)
    first = next(iter(jobs.values()))

    def init_params(key: jax.Array) -> dict[str, Any]:
        of_sets = {
            name: job.init_params(jax.random.fold_in(key, number)) for number, (name, job) in enumerate(jobs.items())
        }
        return _joined(of_sets)

    pretrained = None
    if first.pretrained is not None:
        pretrained = _joined({name: job.pretrained for name, job in jobs.items()})

    def save(directory: storage.PathLike, params: Any) -> None:
        for name, job in jobs.items():
            job.save(storage.Path(directory) / name, model_params(params, name))

    return {
        name: dataclasses.replace(
            job,
            task=HeadTask(job.task, name),
            init_params=init_params,
            pretrained=pretrained,
            save=save,
            eval_source=None,
            more_evaluations=tuple(_evaluations(name, job)),
        )
        for name, job in jobs.items()
    }


def _joined(of_sets: Mapping[str, Any]) -> dict[str, Any]:
    """Return one tree: the shared parameters of the first set, and the heads of all."""
    first = next(iter(of_sets.values()))
    heads = {
        name: {part: tree for part, tree in params.items() if part not in _SHARED} for name, params in of_sets.items()
    }
    return {part: first[part] for part in _SHARED} | {_HEADS: heads}


def _evaluations(name: str, job: Job) -> list[tuple[str, Evaluation]]:
    return [(held_out, each._replace(task=HeadTask(each.task, name))) for held_out, each in job.evaluations]


def _check_encoders(jobs: Mapping[str, Job]) -> None:
    (first, of_first), *others = ((name, _shapes(job)) for name, job in jobs.items())
    for name, shapes in others:
        if shapes != of_first:
            raise InputError(
                f"config.{SETS}.{name}: expected the encoder of set {first!r}, as all sets share one, found another"
            )


def _shapes(job: Job) -> list[tuple[str, tuple[int, ...]]]:
    """Return path and shape of each shared parameter."""
    params = jax.eval_shape(job.init_params, jax.random.key(0))
    shared = {part: params[part] for part in _SHARED}
    leaves = jax.tree_util.tree_leaves_with_path(shared)
    return [(jax.tree_util.keystr(path), leaf.shape) for path, leaf in leaves]
