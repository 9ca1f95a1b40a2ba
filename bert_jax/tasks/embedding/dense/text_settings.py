"""The text settings of a model of sentence embeddings in training: its prompts, and which texts get which."""

import dataclasses
from typing import Any

from bert_jax.conversion.load_pretrained import Loaded
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.data.finetuning.columns import Columns
from bert_jax.errors import InputError
from bert_jax.jobs.distillation.teachers import teacher_text_settings
from bert_jax.jobs.teaching import distillation_of
from bert_jax.recipes import Recipe
from bert_jax.tasks.embedding.dense.recipe import EMBEDDING_LOSSES
from bert_jax.tasks.embedding.prompts import PromptedRows, sets_prompts, with_recipe_prompts


def reads_by_role(data: Any) -> bool:
    """Return whether training puts the prompts of queries and documents before texts, not the default prompt."""
    return sets_prompts(data) or EMBEDDING_LOSSES[data.loss].searches


def training_text_settings(recipe: Recipe, loaded: Loaded | None) -> TextSettings:
    """Return the text settings of the model to train: of `loaded` or, for a new student, of its teacher."""
    distilled, of_model = distillation_of(recipe), loaded.settings if loaded else TextSettings()
    if distilled is None or "embeddings" not in distilled.weights:
        return with_recipe_prompts(of_model, recipe.data)
    taught = teacher_text_settings(distilled)
    if distilled.cache:  # the teacher reads texts with its own prompts
        of_model = of_model if loaded else TextSettings(similarity=taught.similarity)
        return with_recipe_prompts(of_model, recipe.data)
    settings = with_recipe_prompts(of_model if loaded else dataclasses.replace(taught, truncate_dim=None), recipe.data)
    no_rows = PromptedRows((), Columns(), reads_by_role(recipe.data))
    ours, theirs = no_rows.prompts(settings), no_rows.prompts(taught)
    if ours != theirs:
        found, expected = (prompts if len({*prompts}) > 1 else prompts[0] for prompts in (theirs, ours))
        raise InputError(
            f"config.distillation.teacher: expected the student's prompts {expected!r}, as both read the same tokens, "
            f"found {found!r}; set config.distillation.cache"
        )
    return settings
