"""Several data sets in one run: the keys of `data.sets`, their checks, and the recipe of each set."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from bert_jax.errors import InputError, did_you_mean
from bert_jax.recipes.base import Key, Recipe
from bert_jax.recipes.keys import KEYS, SETS, TASK_RECIPES, default_recipe, synonyms

SAMPLINGS = ("proportional", "temperature", "weights", "round_robin")
BATCH_KINDS = ("one_set", "mixed")
# Keys of the section `data` of a task that can train on several data sets in one run.
SET_KEYS = {
    SETS: Key({}, "several data sets in one run: name -> its own keys of data, and weight, loss_weight "
              "(docs/sentence_embeddings.md); {} = one set", per_set=False),
    "data.sampling": Key("proportional", "share of each set: proportional to its rows, or to them by temperature, or "
                         "to its weight; round_robin = equal", SAMPLINGS, per_set=False,
                         synonyms="multi_dataset_batch_sampler dataset_sampling sampling_strategy"),
    "data.sampling_temperature": Key(1.0, "sampling=temperature: T, where a set's share is in proportion to "
                                     "rows ** (1 / T)", above=0, per_set=False),
    "data.batches": Key("one_set", "several data sets: one_set = all rows of a batch are of one, mixed = each batch "
                        "has rows of all in fixed shares", BATCH_KINDS, per_set=False),
}  # fmt: skip
# Keys of a set besides those of `data`.
OWN_KEYS = {
    "weight": Key(float, "sampling=weights: share of the set, in proportion to the sum of the weights", above=0),
    "loss_weight": Key(1.0, "factor of the loss of the set", least=0),
}
_NAME = re.compile(r"[A-Za-z]\w*(-\w+)*")
_PREFIX = f"{SETS}."


def keys_of_sets(task: str) -> dict[str, Key]:
    """Return the keys that a set of a task may have, without `data.`; {} for a task that has no `data.sets`."""
    declared = KEYS[task]
    if SETS not in declared:
        return {}
    if tasks := TASK_RECIPES[task].tasks_of_sets:
        joined = {"task": Key(str, "task of the set, which has a head of its own", tuple(tasks))}
        for each in tasks:
            joined = _keys_of_data(each) | joined
        return OWN_KEYS | joined
    return OWN_KEYS | _keys_of_data(task)


def _keys_of_data(task: str) -> dict[str, Key]:
    """Return the keys of `data` that each set of a task may have, without `data.`."""
    declared = KEYS[task]
    of_data = {name.removeprefix("data."): key for name, key in declared.items() if name.startswith("data.")}
    return {name: key for name, key in of_data.items() if key.per_set}


def declared_key(task: str, name: str) -> Key:
    """Return the definition of a dotted key of a recipe, such as `data.sets.nli.loss`."""
    if name.startswith(_PREFIX):
        return keys_of_sets(task)[name.rpartition(".")[2]]
    return KEYS[task][name]


def find_set_key(recipe: ConfigDict, name: str) -> tuple[ConfigDict, str]:
    """Return the ConfigDict that holds the key `data.sets.NAME.KEY` of a recipe, and KEY; add the set and the key.

    Raises:
        InputError: the task has no `data.sets`, or a set has no such key.
    """
    if SETS not in KEYS[recipe.task]:
        raise InputError(f"config.{name}: expected one data set for task {recipe.task!r}, found {SETS}")
    parts = name.removeprefix(_PREFIX).split(".")
    if len(parts) != 2:
        raise InputError(f"config.{name}: expected config.{SETS}.NAME.KEY")
    named, last = parts
    _check_name(named)
    key = _check_key(recipe.task, named, last)
    sets = recipe.data.sets
    with sets.unlocked():
        if named not in sets:
            sets[named] = {}
        if last not in sets[named]:
            default = recipe.data.get(last, key.value)
            with sets[named].unlocked():
                sets[named][last] = key.type() if default is None else default
    return sets[named], last


def check_each_set(recipe: ConfigDict, *checks: Callable[[ConfigDict], None]) -> None:
    """Check the sets of a recipe: their names, keys and types of values, and the recipe of each set by `checks`.

    Ints and lists are converted where a key has floats or tuples. A recipe without sets is checked by `checks` alone.

    Raises:
        InputError: a name, a key or a value does not fit; or a key of several sets is set where there are none.
    """
    if not recipe.data.sets:
        for check in checks:
            check(recipe)
    _check_sets(recipe)
    for name, of_set in recipes_of_sets(recipe).items():
        _check_own_values(recipe, name)
        with naming_set(recipe, name):
            for check in checks:
                check(of_set)


def described_sets(recipe: Recipe, values: Mapping[str, Any]) -> list[tuple[str, Key]]:
    """Return the dotted keys of all sets among those of a flattened recipe, and the definition of each."""
    keys = keys_of_sets(recipe.task)
    return [(name, keys[name.rpartition(".")[2]]) for name in values if name.startswith(_PREFIX)]


def _check_sets(recipe: ConfigDict) -> None:
    data = recipe.data
    for name in ("train", "dev"):
        if data[name] and data.sets and all(name in each for each in data.sets.values()):
            raise InputError(f"config.data.{name}: expected none, as each of {SETS} has its own, found {data[name]}")
    for name in ("sampling", "sampling_temperature", "batches"):
        default = SET_KEYS[f"data.{name}"].default
        if not data.sets and data[name] != default:
            raise InputError(f"config.data.{name}: expected {default!r} without {SETS}, found {data[name]!r}")
    if data.sampling != "temperature" and data.sampling_temperature != 1:
        expected = f"1.0 with sampling {data.sampling!r}"
        raise InputError(f"config.data.sampling_temperature: expected {expected}, found {data.sampling_temperature}")
    for named, values in data.sets.items():
        _check_name(named)
        where = f"config.{SETS}.{named}"
        if not isinstance(values, ConfigDict):
            raise InputError(f"{where}: expected keys of data and their values, found {values!r}")
        for last, value in values.items():
            key = _check_key(recipe.task, named, last)
            with values.ignore_type():
                values[last] = _converted(f"{where}.{last}", key, value)
        if TASK_RECIPES[recipe.task].tasks_of_sets:
            _check_keys_of_task(recipe, named)
        if ("weight" in values) != (data.sampling == "weights"):
            expected = "a number" if data.sampling == "weights" else "none"
            found = values.get("weight", "none")
            raise InputError(f"{where}.weight: expected {expected} with sampling {data.sampling!r}, found {found}")


def _check_keys_of_task(recipe: ConfigDict, name: str) -> None:
    """Raise InputError when a set of a recipe of several tasks has no task, or a key that its task lacks."""
    values, where = recipe.data.sets[name], f"config.{SETS}.{name}"
    tasks = TASK_RECIPES[recipe.task].tasks_of_sets
    if values.get("task") not in tasks:
        raise InputError(f"{where}.task: expected one of {', '.join(tasks)}, found {values.get('task')!r}")
    allowed = {"task", *OWN_KEYS, *_keys_of_data(values.task)}
    for key in values:
        if key not in allowed:
            raise InputError(f"{where}: a set of {values.task} has no key {key!r}{did_you_mean(str(key), allowed)}")


def recipes_of_sets(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe of each set by name, in the order of the names; {} for a recipe with one data set.

    The recipe of a set is that of a run on this set alone: `data` has the set's own keys over those of the recipe.
    """
    return {name: _recipe_of_set(recipe, name) for name in sorted(recipe.data.get("sets") or ())}


def _recipe_of_set(recipe: Any, name: str) -> Any:
    values = recipe.data.sets[name]
    of_set = recipe.copy_and_resolve_references()
    if "task" in values:
        of_set = _recipe_of_task(of_set, name, values.task)
    with of_set.data.unlocked(), of_set.data.ignore_type():
        of_set.data.sets = {}
        for key, value in values.items():
            if key not in (*OWN_KEYS, "task"):
                of_set.data[key] = value
    return of_set


def _recipe_of_task(recipe: Any, name: str, task: str) -> Any:
    """Return the recipe of a task for the set `name`, with the values of all keys that `recipe` has too."""
    of_task = default_recipe(task)
    with of_task.unlocked(), of_task.ignore_type():
        for name in (KEYS[task].keys() & KEYS[recipe.task].keys()) - {"task"}:
            *parents, last = name.split(".")
            source, target = recipe, of_task
            for parent in parents:
                source, target = source[parent], target[parent]
            target[last] = source[last]
        of_other_sets = not recipe.best_metric.startswith(f"{name}/")
        of_task.best_metric = "" if of_other_sets else recipe.best_metric.removeprefix(f"{name}/")
        of_task.stop_after = 0 if of_other_sets else recipe.stop_after
    return of_task


def own_value(recipe: Recipe, name: str, key: str) -> Any:
    """Return the value of one of `OWN_KEYS` of the set `name`."""
    return recipe.data.sets[name].get(key, OWN_KEYS[key].value)


@contextlib.contextmanager
def naming_set(recipe: Recipe, name: str) -> Iterator[None]:
    """Name the keys of the set `name` in InputErrors of the block: `config.data.loss` as `config.data.sets.NAME.loss`,
    and in an error without a key, the set."""
    allowed = keys_of_sets(recipe.task)

    def renamed(match: re.Match[str]) -> str:
        return f"config.{_PREFIX}{name}.{match[1]}" if match[1] in allowed else match[0]

    try:
        yield
    except InputError as error:
        text = str(error)
        changed = re.sub(r"\bconfig\.data\.(\w+)", renamed, text)
        if changed == text and not text.startswith("config."):
            changed = f"{SETS}.{name}: {text}"
        raise InputError(changed) from error


def _check_own_values(recipe: Recipe, name: str) -> None:
    """Raise InputError when a value of `OWN_KEYS` of the set `name` is out of its range."""
    for key, declared in OWN_KEYS.items():
        value = own_value(recipe, name, key)
        if value is not None and not declared.in_range(value):
            raise InputError(f"config.{_PREFIX}{name}.{key}: expected {declared.limits()}, found {value}")


def paths_of_sets(recipe: Recipe) -> dict[str, str]:
    """Return `SET/train` and `SET/dev` -> file, for messages about changed data."""
    each = recipes_of_sets(recipe).items()
    return {f"{name}/{key}": of_set.data[key] for name, of_set in each for key in ("train", "dev")}


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"config.{SETS}: expected names of letters, digits, _ and -, such as 'nli', found {name!r}")


def _check_key(task: str, named: str, last: str) -> Key:
    """Return the definition of a set's key."""
    allowed = keys_of_sets(task)
    if last in allowed:
        return allowed[last]
    where = f"config.{SETS}.{named}"
    if f"data.{last}" in KEYS[task]:
        raise InputError(f"{where}.{last}: expected no such key in a set, as all sets share config.data.{last}")
    raise InputError(f"{where}: a set has no key {last!r}{did_you_mean(str(last), allowed, synonyms(task))}")


def _converted(where: str, key: Key, value: Any) -> Any:
    """Return a value of the key's type. Raises InputError for another type."""
    if key.type is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if key.type is tuple and isinstance(value, list):
        value = tuple(value)
    if not isinstance(value, key.type) or (key.type is int and isinstance(value, bool)):
        raise InputError(f"{where}: expected {key.type.__name__}, found {value!r}")
    return value
