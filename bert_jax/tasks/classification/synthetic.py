"""Synthetic rows of a classifier, from which the shapes of a run are derived."""

from typing import Any

from bert_jax.jobs.synthetic_rows import table_rows
from bert_jax.jobs.teaching import teacher_classes
from bert_jax.recipes import Recipe
from bert_jax.tasks.classification.task import HEAD, labelled_columns


def synthetic_rows(recipe: Recipe) -> list[dict[str, Any]]:
    """Return a row for each class of the teacher or the recipe, else for two. See `bert_jax.recipes.TaskRecipe`."""
    if recipe.data.task_type == "regression":
        return table_rows(labelled_columns(recipe))
    return table_rows(labelled_columns(recipe), teacher_classes(recipe, HEAD) or recipe.data.label_names or ("0", "1"))
