"""Masked-diffusion pretraining on prepared data: a masked LM is trained at every mask rate (`task.py`)."""

from bert_jax.errors import InputError
from bert_jax.jobs.base import Job
from bert_jax.recipes import Recipe
from bert_jax.tasks.masked_diffusion.task import HEAD, MaskedDiffusionTask
from bert_jax.tasks.pretraining.data import (
    PretrainingData,
)
from bert_jax.tasks.pretraining.task import pretraining_job


def build(recipe: Recipe) -> Job:
    """Read the prepared data and the model that a resolved recipe names. See `bert_jax.jobs.build`."""
    data = PretrainingData.of(recipe)
    if data.objective != "mlm":
        raise InputError(
            f"config.data: expected data prepared with --objective mlm, found {data.objective}: masked diffusion "
            "has no loss for sentence pairs"
        )
    return pretraining_job(recipe, data, HEAD, lambda model, source: MaskedDiffusionTask(model))
