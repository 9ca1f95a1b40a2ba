"""Masked-diffusion pretraining on prepared data: a masked LM at every mask rate (`bert_jax.tasks.masked_diffusion`)."""

from typing import Any

from bert_jax.errors import InputError
from bert_jax.modeling import Bert
from bert_jax.tasks import setup
from bert_jax.tasks.base import AbstractTask, Job
from bert_jax.tasks.masked_diffusion import HEAD, MaskedDiffusionTask
from bert_jax.tasks.pretraining import pretraining_job
from bert_jax.tasks.pretraining_data import (
    PretrainingData,
    abstract_pretraining_task,
    abstract_stages,
    check_lengths,
    has_data,
)


def build(recipe: Any) -> Job:
    """Read the prepared data and the model that a resolved recipe names. See `bert_jax.tasks.build`."""
    data = PretrainingData.of(recipe)
    if data.objective != "mlm":
        raise InputError(
            f"config.data: expected data prepared with --objective mlm, found {data.objective}: masked diffusion "
            "has no labels of pairs"
        )
    return pretraining_job(recipe, data, HEAD, lambda model, source: MaskedDiffusionTask(model))


def abstract_task(recipe: Any) -> AbstractTask:
    """Return the abstract task of a resolved recipe. See `bert_jax.tasks.abstract_task`."""
    if has_data(recipe):
        return abstract_pretraining_task(recipe, build(recipe))
    config = setup.config_without_data(recipe, HEAD)
    check_lengths(recipe, config)
    task = MaskedDiffusionTask(Bert(config, HEAD, setup.compute(recipe)))
    return AbstractTask(task, task.model.init, abstract_stages(recipe, None, recipe.num_steps))
