"""Distillation for a task's `build`; `jobs.distillation` is imported only for a recipe with a teacher."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bert_jax.errors import InputError
from bert_jax.recipes import Recipe

if TYPE_CHECKING:
    from bert_jax.conversion.text_settings import TextSettings
    from bert_jax.data.finetuning.features import Paddable
    from bert_jax.jobs.distillation.settings import Distillation
    from bert_jax.modeling import Bert
    from bert_jax.tokenization import Tokenizer


def distillation_of(recipe: Recipe) -> "Distillation | None":
    """Return the distillation settings of a resolved recipe, or None if it names no teacher.

    Raises:
        InputError: the settings are invalid, or the recipe has others that cannot be combined with distillation.
    """
    c = recipe.distillation
    if not c.teacher and not any(weight for term, weight in c.weights.items() if term != "labels"):
        return None
    from bert_jax.jobs.distillation.settings import read_settings

    return read_settings(recipe)


def teacher_classes(recipe: Recipe, head: str) -> tuple[str, ...] | None:
    """Return the teacher's class names, which a student of its soft labels must have, or None without soft labels."""
    settings = distillation_of(recipe)
    if settings is None or "soft_labels" not in settings.weights:
        return None
    from bert_jax.jobs.distillation.teachers import teacher_config

    return teacher_config(settings, head).label_names


def reads_no_labels(recipe: Recipe) -> bool:
    """Return whether the labels of the training data are not read, since the weight of the task's own loss is 0."""
    settings = distillation_of(recipe)
    if settings is None or settings.labels:
        return False
    if recipe.data.get("validation_split"):
        raise InputError("config.data.validation_split: expected 0 where labels of data.train are not read "
                         "(distillation.weights.labels=0), "
                         f"found {recipe.data.validation_split}; use data.dev")  # fmt: skip
    return True


def with_teacher_outputs(
    recipe: Recipe,
    model: "Bert",
    tokenizer: "Tokenizer",
    rows: "Paddable",
    encode: "Callable[[Tokenizer, TextSettings, int], Paddable]",
) -> Any:
    """Add the teacher's cached outputs to training rows if the recipe names a cache.

    Args:
        recipe: the resolved recipe.
        model: the student.
        tokenizer: its tokenizer.
        rows: n rows, tokenized for the student.
        encode: function of (tokenizer, text settings, max_length) that tokenizes the same n rows for the teacher.
    """
    settings = distillation_of(recipe)
    if settings is None or not settings.cache:
        return rows
    from bert_jax.jobs.distillation.job import with_cached_outputs

    return with_cached_outputs(recipe, settings, model, tokenizer, rows, encode)
