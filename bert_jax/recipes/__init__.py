"""Recipes: every key of a run with default and meaning, recipe files, and checks.

A recipe file is Python with `get_config(arg)` that starts from a function of `keys.py`, say `pretraining()`, and sets
what differs; `--config.a.b=value` on the command line changes a key after that. Keys are typed, none can be invented.
"""

from bert_jax.recipes.checks import resolve
from bert_jax.recipes.definitions import DTYPE_CHOICES, MASK_UNITS, OPTIMIZER_CHOICES, SCHEDULE_CHOICES
from bert_jax.recipes.keys import (
    PRETRAINING,
    RECIPES,
    batch_size_at,
    classification,
    electra,
    model_config,
    multiple_choice,
    pretraining,
    question_answering,
    sentence_embedding,
    stages,
    token_classification,
)
from bert_jax.recipes.reading import flatten, load_recipe, to_json, with_current_names

__all__ = [
    "DTYPE_CHOICES",
    "MASK_UNITS",
    "OPTIMIZER_CHOICES",
    "PRETRAINING",
    "RECIPES",
    "SCHEDULE_CHOICES",
    "batch_size_at",
    "classification",
    "electra",
    "flatten",
    "load_recipe",
    "model_config",
    "multiple_choice",
    "pretraining",
    "question_answering",
    "resolve",
    "sentence_embedding",
    "stages",
    "to_json",
    "token_classification",
    "with_current_names",
]
