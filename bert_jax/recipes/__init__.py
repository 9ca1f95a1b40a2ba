"""Recipes: every setting of a run as a typed key with default, meaning and checks.

A recipe file is a Python file whose `get_config(arg)` starts from the recipe of a task, such as
`recipes.classification()`, and changes some keys. On the command line `--config.a.b=value` changes a key after that.
Unknown keys are an error.
"""

from typing import Any

from bert_jax.recipes.base import Key, ModelUse, Recipe, TaskRecipe
from bert_jax.recipes.checks import resolve
from bert_jax.recipes.keys import KEYS, RECIPES, batch_size_at, is_pretraining, model_config, stages
from bert_jax.recipes.optimization import OPTIMIZERS, SCHEDULES
from bert_jax.recipes.reading import flatten, load_recipe, to_json, with_current_names
from bert_jax.recipes.shared_keys import DTYPE_CHOICES

__all__ = [
    "DTYPE_CHOICES",
    "KEYS",
    "OPTIMIZERS",
    "RECIPES",
    "SCHEDULES",
    "Key",
    "ModelUse",
    "Recipe",
    "TaskRecipe",
    "batch_size_at",
    "flatten",
    "is_pretraining",
    "load_recipe",
    "model_config",
    "resolve",
    "stages",
    "to_json",
    "with_current_names",
]


def __getattr__(name: str) -> Any:
    """Return the function that makes the recipe of a task, such as `recipes.classification`."""
    if name not in RECIPES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}, and no task has that name")
    return RECIPES[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *RECIPES})
