"""`TaskEntry`: the recipes, pipelines, evaluators and verbs of a task by name, and where they are defined."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bert_jax.lazy import import_object

if TYPE_CHECKING:
    from bert_jax.tasks.record import Record

# `package.module.name` of an object, which is imported on first use, or the object itself.
Reference = str | Any


@dataclasses.dataclass(frozen=True)
class TaskEntry:
    """A task: names of its recipes, pipelines, evaluators and verbs, by which the rest of the package finds them.

    Attributes:
        name: the name of the task; in this package, that of its folder.
        recipes: value of a recipe's `task` -> its `bert_jax.recipes.TaskRecipe`.
        pipelines: name of a pipeline -> its class.
        aliases: another name of a pipeline -> its name.
        pipelines_of_head: saved head -> prefix: such a model's `sentence-embedding`, `similarity` and `search` are
            PREFIX-embedding, PREFIX-similarity and PREFIX-search.
        evaluators: head -> the `bert_jax.evaluation.Evaluator` of such models.
        examples: head -> function (loaded model, data, count) that returns the model's loss on `count` examples
            (`bert_jax.jobs.examples.Examples`).
        record: the task's entry in `bert_jax.json`; it decides between tasks with the same head.
        verbs: names of modules with a function `add_verbs`.
    """

    name: str
    recipes: Mapping[str, Reference] = dataclasses.field(default_factory=dict)
    pipelines: Mapping[str, Reference] = dataclasses.field(default_factory=dict)
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pipelines_of_head: Mapping[str, str] = dataclasses.field(default_factory=dict)
    evaluators: Mapping[str, Reference] = dataclasses.field(default_factory=dict)
    examples: Mapping[str, Reference] = dataclasses.field(default_factory=dict)
    record: "Record | None" = None
    verbs: tuple[str, ...] = ()


def load_reference(reference: Reference) -> Any:
    """Return the object of a reference."""
    return import_object(reference) if isinstance(reference, str) else reference


def full_name(reference: Reference) -> str:
    """Return `package.module.name` of a reference."""
    return reference if isinstance(reference, str) else f"{reference.__module__}.{reference.__qualname__}"
