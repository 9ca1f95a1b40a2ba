"""Training jobs: build the `Job` that the training loop runs from a resolved recipe, for any task."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from bert_jax.errors import InputError, did_you_mean
from bert_jax.jobs import fingerprints
from bert_jax.jobs.base import Job
from bert_jax.jobs.teaching import distillation_of
from bert_jax.recipes.base import Recipe, TaskRecipe
from bert_jax.recipes.keys import TASK_RECIPES
from bert_jax.tasks.entry import load_reference

if TYPE_CHECKING:
    from bert_jax.jobs.abstract import AbstractTask


def build(recipe: Recipe) -> Job:
    """Read the data and models that a resolved recipe names, and return the training job.

    Raises:
        InputError: the task is not known, or the recipe's data, model or settings are invalid.
    """
    wrap = _wrapper(recipe)
    job = _on_all_sets(recipe) if recipe.data.get("sets") else _on_one_set(recipe)
    if recipe.get("keep_head"):
        from bert_jax.jobs import trained_head

        job = trained_head.with_trained_head(job, recipe)
    return wrap(_with_weights(job))


def _on_all_sets(recipe: Recipe) -> Job:
    from bert_jax.jobs import several_sets

    return several_sets.build_on_sets(recipe, _on_one_set)


def _on_one_set(recipe: Recipe) -> Job:
    job: Job = load_reference(_recipe_of(recipe).build)(recipe)
    return job


def _wrapper(recipe: Recipe) -> Callable[[Job], Job]:
    """Return a function that wraps a job for the recipe's distillation or LoRA; without either, it changes nothing.

    Raises:
        InputError: the settings of distillation or LoRA are invalid.
    """
    distilled, adaptation = distillation_of(recipe), None
    if recipe.lora.rank:
        from bert_jax.jobs import lora

        adaptation = lora.of_recipe(recipe)
    if distilled is not None:
        from bert_jax.jobs.distillation.job import distil

        return lambda job: distil(job, recipe, distilled)
    return (lambda job: lora.adapt(job, adaptation)) if adaptation else lambda job: job


def _with_weights(job: Job) -> Job:
    """Add a hash of the pretrained weights to the job's data fingerprints."""
    if (params := job.pretrained) is None:
        return job
    return dataclasses.replace(job, data=lambda: job.data() | {"weights": fingerprints.of_params(params)})


def abstract_task(recipe: Recipe) -> "AbstractTask":
    """Return the abstract task of a resolved recipe, from which its training steps can be compiled.

    It is built like the training job, but no teacher or guide computes outputs. A recipe without data gets synthetic
    rows: unpacked, of `max_seq_length` tokens, with the vocabulary size of `model` and the task's synthetic classes.

    Raises:
        InputError: as for `build`, or the recipe has no data and its task no synthetic rows.
    """
    from bert_jax.jobs import synthetic
    from bert_jax.jobs.abstract import AbstractTask

    if recipe.data.get("sets"):
        from bert_jax.jobs import several_sets

        marked = synthetic.marked_for_shapes(recipe)
        built = several_sets.build_on_sets(
            marked, lambda of_set: _on_one_set(synthetic.recipe_for_shapes(of_set, _recipe_of(of_set)))
        )
        job = _wrapper(marked)(built)
        return AbstractTask(job.task, job.init_params, several_sets.stages_of_sets(job, recipe))
    recipe = synthetic.recipe_for_shapes(recipe, _recipe_of(recipe))
    wrap = _wrapper(recipe)
    job = wrap(_on_one_set(recipe))
    return AbstractTask(job.task, job.init_params, synthetic.stages_of(job, recipe))


def _recipe_of(recipe: Recipe) -> TaskRecipe:
    if recipe.task not in TASK_RECIPES:
        raise InputError(f"task {recipe.task!r} is not known{did_you_mean(str(recipe.task), TASK_RECIPES)}")
    return TASK_RECIPES[recipe.task]
