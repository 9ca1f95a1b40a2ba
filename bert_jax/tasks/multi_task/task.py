"""The task of several heads without data sets, which cannot be trained."""

from typing import NoReturn

from bert_jax.errors import InputError
from bert_jax.recipes import Recipe
from bert_jax.recipes.keys import SETS


def build(recipe: Recipe) -> NoReturn:
    """Raise InputError, as a recipe without sets has no head; `bert_jax.jobs.several_sets` builds the job of sets."""
    raise InputError(f"config.{SETS}: expected a data set for each head, such as "
                     "config.data.sets.topics.task=classification, found none")  # fmt: skip
