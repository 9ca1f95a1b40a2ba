"""Fine-tuning that starts from the trained head of `init_from` (the recipe key `keep_head`)."""

import dataclasses

import numpy as np

from bert_jax.conversion.load_pretrained import Loaded, load_pretrained
from bert_jax.errors import InputError
from bert_jax.head_names import NAMED_CLASSIFIERS
from bert_jax.jobs.base import Job
from bert_jax.modeling import Bert, Params
from bert_jax.recipes import Recipe


def with_trained_head(job: Job, recipe: Recipe) -> Job:
    """Return the training job that starts from all parameters of `init_from`, including its head.

    The outputs of a classifier are reordered to match the job's classes.

    Args:
        job: a fine-tuning job.
        recipe: its resolved recipe.

    Raises:
        InputError: there is no `init_from`, or it was saved with another head or other classes.
    """
    if not recipe.init_from:
        raise InputError("config.keep_head: expected a model in config.init_from, whose head is kept, found none")
    loaded, model = load_pretrained(recipe.init_from, dequantize=True), job.task.model
    if loaded.head != model.head:
        raise InputError(f"config.keep_head: expected a model for {model.head} in {recipe.init_from}, found one for "
                         f"{loaded.head}")  # fmt: skip
    params = loaded.params
    if model.head in NAMED_CLASSIFIERS:
        params = params | {"classifier": _in_order(params["classifier"], loaded, model, recipe.init_from)}
    return dataclasses.replace(job, pretrained=params)


def _in_order(classifier: Params, loaded: Loaded, model: Bert, where: str) -> Params:
    ours, theirs = model.config.label_names, loaded.config.label_names
    if model.config.num_labels == loaded.config.num_labels == 1:
        return classifier
    if sorted(ours) != sorted(theirs):
        raise InputError(f"config.keep_head: expected data with the classes of {where}, {', '.join(theirs)}, found "
                         f"{', '.join(ours)}")  # fmt: skip
    order = [theirs.index(name) for name in ours]
    return {name: np.asarray(array)[..., order] for name, array in classifier.items()}
