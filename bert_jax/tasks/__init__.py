"""Tasks: one file each, found by the name in a recipe."""

import importlib
from typing import TYPE_CHECKING, Any

from bert_jax.errors import InputError, did_you_mean
from bert_jax.tasks import lora

if TYPE_CHECKING:
    from bert_jax.tasks.base import AbstractTask, Job

# Name in a recipe -> the module whose `build` makes its Job; imported when it is asked for.
TASKS = {
    "pretraining": "bert_jax.tasks.pretraining",
    "electra": "bert_jax.tasks.electra",
    "classification": "bert_jax.tasks.classification",
    "token_classification": "bert_jax.tasks.token_classification",
    "question_answering": "bert_jax.tasks.question_answering",
    "sentence_embedding": "bert_jax.tasks.sentence_embedding",
    "multiple_choice": "bert_jax.tasks.multiple_choice",
}


def build(recipe: Any, workdir: str) -> "Job":
    """Reads the data and models that `recipe` names and returns what the training loop needs to run it.

    Raises:
        InputError: the task is not known, or something that the recipe names does not fit.
    """
    adaptation = lora.of_recipe(recipe)
    job = _module(recipe).build(recipe, workdir)
    return lora.adapt(job, adaptation) if adaptation else job


def abstract_task(recipe: Any) -> "AbstractTask":
    """Returns what compiling the steps of `recipe` takes. Data that it names are read for their shapes; where it names
    none, those of the usual data are assumed: the vocabulary of the paper, unpacked pairs, two classes.

    Raises:
        InputError: as `build`.
    """
    adaptation = lora.of_recipe(recipe)
    abstract_task = _module(recipe).abstract_task(recipe)
    return lora.adapt_abstract(abstract_task, adaptation) if adaptation else abstract_task


def _module(recipe: Any) -> Any:
    if recipe.task not in TASKS:
        raise InputError(f"task {recipe.task!r} is not known{did_you_mean(str(recipe.task), TASKS)}")
    return importlib.import_module(TASKS[recipe.task])
