"""Build the recipe of each task from its keys, and read its stages, batch sizes and architecture."""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict, config_dict

from bert_jax.config import BertConfig
from bert_jax.config.quantization import Quantization
from bert_jax.recipes.base import Key, TaskRecipe
from bert_jax.recipes.model_keys import model_fields, model_keys
from bert_jax.recipes.shared_keys import SHARED_KEYS
from bert_jax.tasks import TaskObjects

# Value of a recipe's `task` -> the recipe of the task, imported on lookup.
TASK_RECIPES: Mapping[str, TaskRecipe] = TaskObjects("recipes")
SETS = "data.sets"  # key of several data sets in one run


class _Keys(Mapping[str, Mapping[str, Key]]):
    """Keys by task, including model keys of families that are registered later."""

    def __getitem__(self, task: str) -> Mapping[str, Key]:
        return {**SHARED_KEYS, **TASK_RECIPES[task].keys, **model_keys()}

    def __iter__(self) -> Iterator[str]:
        return iter(TASK_RECIPES)

    def __len__(self) -> int:
        return len(TASK_RECIPES)


class _Recipes(Mapping[str, Callable[[], ConfigDict]]):
    """Task -> a function that returns its recipe with the defaults."""

    def __getitem__(self, task: str) -> Callable[[], ConfigDict]:
        if task not in TASK_RECIPES:
            raise KeyError(task)
        return functools.partial(default_recipe, task)

    def __iter__(self) -> Iterator[str]:
        return iter(TASK_RECIPES)

    def __len__(self) -> int:
        return len(TASK_RECIPES)


KEYS = _Keys()
RECIPES = _Recipes()


def default_recipe(task: str) -> ConfigDict:
    """Return the locked recipe of a task: every key of its table, with the defaults of the task."""
    c = ConfigDict()
    for name, key in KEYS[task].items():
        *parents, last = name.split(".")
        node = c
        for parent in parents:
            if parent not in node:
                node[parent] = ConfigDict()
            node = node[parent]
        node[last] = config_dict.placeholder(key.type) if key.value is None else key.default
    c.update_from_flattened_dict({"task": task, **TASK_RECIPES[task].defaults})
    return c.lock()


def synonyms(*tasks: str) -> dict[str, str]:
    """Return the last part of each key's name -> its names in other libraries, separated by spaces.

    Args:
        tasks: the tasks that have the keys; none = all.
    """
    names: dict[str, dict[str, None]] = {}
    for task in tasks or KEYS:
        for name, key in KEYS[task].items():
            others = [*key.synonyms.split(), *filter(None, [key.former.rpartition(".")[2]])]
            names.setdefault(name.rpartition(".")[2], {}).update(dict.fromkeys(others))
    return {last: " ".join(others) for last, others in names.items() if others}


def renamed_keys(task: str) -> dict[str, str]:
    """Return former name -> current name for each renamed key of a task; {} for an unknown task."""
    return {key.former: name for name, key in KEYS.get(task, {}).items() if key.former}


def is_pretraining(recipe: ConfigDict) -> bool:
    """Return whether a recipe trains on prepared corpora (`bert-jax pretrain`)."""
    return TASK_RECIPES[recipe.task].pretraining


def compares_rows(recipe: ConfigDict) -> bool:
    """Return whether the loss, or that of one of several data sets, compares the rows of a batch, so that only the task
    itself can split the batch."""
    for each in (recipe.data.get("sets") or {"": {}}).values():
        task = each.get("task", recipe.task)
        default = recipe.data.get("loss") if task == recipe.task else KEYS[task].get("data.loss", Key("", "")).default
        if each.get("loss", default) in TASK_RECIPES[task].whole_batch_losses:
            return True
    return False


def stages(recipe: ConfigDict) -> tuple[tuple[int, int, int], ...]:
    """Return the stages of a pretraining recipe: `(num_steps, sequence_length, global_batch_size)` each."""
    if recipe.stages:
        return tuple(tuple(stage) for stage in recipe.stages)
    return ((recipe.num_steps, recipe.data.sequence_length, recipe.global_batch_size),)


def batch_size_at(recipe: ConfigDict, step: int) -> int:
    """Return the number of examples in the batch of `step`, counted from 0."""
    if "stages" in recipe and recipe.stages:
        ends = itertools.accumulate(stage[0] for stage in recipe.stages)
        sizes = (stage[2] for stage in recipe.stages)
        return next((size for end, size in zip(ends, sizes, strict=True) if step < end), recipe.global_batch_size)
    return recipe.global_batch_size


def model_config(recipe: ConfigDict, base: BertConfig | None = None, **changes: Any) -> BertConfig:
    """Return the architecture that `recipe.model` describes.

    Args:
        recipe: fields of its `model` group that are set override the base.
        base: the architecture to start from, such as that of init_from; None means the named size `model.size`.
        changes: fields that override the recipe, such as the tokenizer's vocab_size.

    Raises:
        InputError: the fields do not fit together.
    """
    changed_fields = {name: recipe.model[name] for name in model_fields() if recipe.model.get(name) is not None}
    if not changed_fields["vocab_size"]:
        del changed_fields["vocab_size"]
    changed_fields |= changes
    if (q := recipe.quantization).mode:
        changed_fields["quantization"] = Quantization(q.mode, tuple(q.keep), q.group_size, stage="training")
    return base.replace(**changed_fields) if base is not None else BertConfig.named(recipe.model.size, **changed_fields)
