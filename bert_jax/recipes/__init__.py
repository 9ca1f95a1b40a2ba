"""Recipes: every setting of a run as a typed key with default, meaning and checks.

A recipe file is a Python file whose `get_config(arg)` starts from a function of `keys.py`, such as `pretraining()`, and
changes some keys. On the command line `--config.a.b=value` changes a key after that. Unknown keys are an error.
"""

from bert_jax.recipes.checks import resolve
from bert_jax.recipes.definitions import DTYPE_CHOICES, MASK_UNITS, OPTIMIZER_CHOICES, SCHEDULE_CHOICES
from bert_jax.recipes.keys import (
    PRETRAINING,
    RECIPES,
    batch_size_at,
    classification,
    diffusion_pretraining,
    electra,
    masked_diffusion,
    model_config,
    multi_vector,
    multiple_choice,
    pretraining,
    question_answering,
    relation_extraction,
    reranking,
    sentence_embedding,
    sequence_to_sequence,
    sparse_embedding,
    stages,
    token_classification,
    zero_shot_ner,
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
    "diffusion_pretraining",
    "electra",
    "flatten",
    "load_recipe",
    "masked_diffusion",
    "model_config",
    "multi_vector",
    "multiple_choice",
    "pretraining",
    "question_answering",
    "relation_extraction",
    "reranking",
    "resolve",
    "sentence_embedding",
    "sequence_to_sequence",
    "sparse_embedding",
    "stages",
    "to_json",
    "token_classification",
    "with_current_names",
    "zero_shot_ner",
]
