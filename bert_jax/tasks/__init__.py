"""Tasks: one file per task, found by its name in a recipe."""

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any

from bert_jax.errors import InputError, did_you_mean
from bert_jax.tasks import fingerprints, lora, trained_head
from bert_jax.tasks.distillation.job import distil, distil_abstract
from bert_jax.tasks.distillation.settings import distillation_of

if TYPE_CHECKING:
    from bert_jax.tasks.base import AbstractTask, Job

# Task name -> module with its `build` and `abstract_task`, imported on demand.
TASKS = {
    "pretraining": "bert_jax.tasks.pretraining",
    "electra": "bert_jax.tasks.electra",
    "diffusion_pretraining": "bert_jax.tasks.diffusion_pretraining",
    "classification": "bert_jax.tasks.classification",
    "token_classification": "bert_jax.tasks.token_classification",
    "question_answering": "bert_jax.tasks.question_answering",
    "sentence_embedding": "bert_jax.tasks.sentence_embedding",
    "reranking": "bert_jax.tasks.reranking",
    "sparse_embedding": "bert_jax.tasks.sparse_embedding",
    "multi_vector": "bert_jax.tasks.multi_vector",
    "multiple_choice": "bert_jax.tasks.multiple_choice",
    "zero_shot_ner": "bert_jax.tasks.zero_shot_ner",
    "masked_diffusion": "bert_jax.tasks.masked_diffusion",
    "relation_extraction": "bert_jax.tasks.relation_extraction",
    "sequence_to_sequence": "bert_jax.tasks.sequence_to_sequence",
}


def build(recipe: Any) -> "Job":
    """Read the data and models that a resolved recipe names, and return the training job.

    Raises:
        InputError: the task is not known, or the recipe's data, model or settings are invalid.
    """
    adaptation, distilled = lora.of_recipe(recipe), distillation_of(recipe)
    job = _module(recipe).build(recipe)
    if recipe.get("keep_head"):
        job = trained_head.with_trained_head(job, recipe)
    job = _with_weights(job)
    if distilled:
        return distil(job, recipe, distilled)
    return lora.adapt(job, adaptation) if adaptation else job


def _with_weights(job: "Job") -> "Job":
    """Return the job whose record of data also has a hash of the weights that it starts from."""
    if (params := job.pretrained) is None:
        return job
    return dataclasses.replace(job, data=lambda: job.data() | {"weights": fingerprints.of_params(params)})


def abstract_task(recipe: Any) -> "AbstractTask":
    """Return the abstract task of a resolved recipe, from which its training steps can be compiled.

    If the recipe names data, their shapes are used; otherwise defaults: the paper's vocabulary, unpacked pairs, two
    classes.

    Raises:
        InputError: as for `build`.
    """
    adaptation, distilled = lora.of_recipe(recipe), distillation_of(recipe)
    if distilled:
        recipe = recipe.copy_and_resolve_references()
        recipe.distillation.cache = ""  # so that no outputs are computed
        return distil_abstract(_module(recipe).abstract_task(recipe), distilled)
    abstract_task = _module(recipe).abstract_task(recipe)
    return lora.adapt_abstract(abstract_task, adaptation) if adaptation else abstract_task


def _module(recipe: Any) -> Any:
    if recipe.task not in TASKS:
        raise InputError(f"task {recipe.task!r} is not known{did_you_mean(str(recipe.task), TASKS)}")
    return importlib.import_module(TASKS[recipe.task])
