"""Load recipes from recipe files or the `config.json` of a run, and apply overrides such as `--config.a.b=value`."""

import ast
import json
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from bert_jax import storage
from bert_jax.errors import InputError
from bert_jax.recipes.keys import KEYS, RECIPES, SETS, renamed_keys
from bert_jax.recipes.shipped import find_recipe
from bert_jax.registry import Registry


def load_recipe(spec: str, overrides: Sequence[str] = ()) -> ConfigDict:
    """Load the recipe that `spec` names and apply `overrides`; the recipe is locked and not yet resolved.

    Args:
        spec: the name of a recipe that comes with bert_jax, a `FILE.py`, a work directory, or the `config.json` in it.
            `:ARGUMENT` after a name or a `FILE.py` is passed to its `get_config`.
        overrides: strings such as `--config.optimizer.learning_rate=1e-4` (the dashes are optional).

    Raises:
        InputError: the file is missing or broken, a key does not exist, or a value has the wrong type.
    """
    source, argument = find_recipe(spec)
    if source in RECIPES:
        if argument:
            raise InputError(f"{source}: expected no argument after the name of a task, found {argument!r}")
        recipe = RECIPES[source]()
    else:
        recipe = _from_json(source) if source.endswith(".json") else _from_python(source, argument)
    for override in overrides:
        _override(recipe, override)
    return recipe


def to_json(recipe: ConfigDict) -> str:
    """Return the recipe as the text of `config.json`: nested, sorted, tuples as lists."""
    return json.dumps(recipe.to_dict(), indent=2, sort_keys=True) + "\n"


def flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten a nested ConfigDict or dict to dotted names: `{"a": {"b": 1}}` -> `{"a.b": 1}`."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, name + ".") if isinstance(value, (dict, ConfigDict)) else {name: value}
    return flat


def with_current_names(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flattened recipe with renamed keys under their current names."""
    renamed = renamed_keys(flat["task"])
    return {renamed.get(key, key): value for key, value in flat.items()}


def _from_python(path: str, arg: str) -> ConfigDict:
    try:
        module = storage.run_python(path)
        if not hasattr(module, "get_config"):
            raise InputError(f"{path}: expected a function get_config, found none")
        recipe = module.get_config(arg) if arg else module.get_config()
    except InputError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == path]
        line = lines[-1] if lines else getattr(error, "lineno", None)
        from bert_jax.recipes.hints import reason_of_error

        raise InputError(f"{path}:{line or 1}: {reason_of_error(error)}") from error
    if not isinstance(recipe, ConfigDict) or recipe.get("task") not in RECIPES:
        raise InputError(f"{path}: get_config must return a recipe of bert_jax.recipes, found {type(recipe).__name__}")
    return recipe.lock()


def _from_json(path: str) -> ConfigDict:
    saved = storage.read_json(path)
    task = saved.get("task")
    if not isinstance(task, str) or task not in RECIPES:
        raise InputError(f"{path}: expected the config.json of a run, with task one of {', '.join(RECIPES)}")
    recipe = RECIPES[task]()
    known = flatten(recipe)
    for key, value in with_current_names(flatten(saved)).items():
        if value is None and key.startswith("model.") and key not in known:
            continue  # a setting of a family that is not installed
        _set(recipe, key, _tuples(value), repr(value))
    _check_registered(path, recipe)
    return recipe


def _check_registered(path: str, recipe: ConfigDict) -> None:
    """Raise InputError when a saved recipe names a function of a user that is not registered in this process."""
    values = flatten(recipe)
    for name, key in KEYS[recipe.task].items():
        if isinstance(key.choices, Registry) and values[name] not in key.choices:
            raise InputError(
                f"{path}: config.{name}: {values[name]!r} is not registered: expected a call of "
                f"{key.choices.register}({values[name]!r}, ...) before, or --config with a recipe file that calls it"
            )


def _override(recipe: ConfigDict, override: str) -> None:
    name, equals, text = override.removeprefix("--").removeprefix("config.").partition("=")
    if name == "help":
        raise InputError("--config.help: expected a key; `bert-jax config RECIPE` prints all keys")
    if not equals:
        raise InputError(f"{override}: expected --config.KEY=VALUE")
    if text.lower() in ("--help", "-h", "help", "?"):
        from bert_jax.recipes.data_sets import declared_key

        node, last = find_key(recipe, name)
        key = declared_key(recipe.task, name)
        raise InputError(f"config.{name}: expected a value ({key.allowed()}), found {text!r}; its meaning: "
                         f"{key.meaning}; now {node[last]!r}")  # fmt: skip
    _set(recipe, name, _parse(recipe, name, text), repr(text))


def find_key(recipe: ConfigDict, name: str) -> tuple[ConfigDict, str]:
    """Return the ConfigDict that holds a dotted key, and the key's last part.

    Raises:
        InputError: there is no such key, or it is a group of keys.
    """
    if name.startswith(f"{SETS}."):
        from bert_jax.recipes.data_sets import find_set_key

        return find_set_key(recipe, name)
    node = recipe
    *parents, last = name.split(".")
    for depth, part in enumerate([*parents, last]):
        if part not in node:
            from bert_jax.recipes.hints import hint_for_key

            where = ".".join(["config", *parents[:depth]])
            hint = hint_for_key(recipe.task, flatten(recipe), node, part, last)
            raise InputError(f"config.{name}: {where} has no key {part!r}{hint}")
        if depth < len(parents):
            if not isinstance(node[part], ConfigDict):
                raise InputError(f"config.{name}: config.{'.'.join(parents[: depth + 1])} has no keys inside")
            node = node[part]
    if isinstance(node[last], ConfigDict):
        raise InputError(f"config.{name}: expected one of its keys: {', '.join(sorted(node[last].keys()))}")
    return node, last


def _set(recipe: ConfigDict, name: str, value: Any, value_text: str) -> None:
    node, last = find_key(recipe, name)
    expected = node.get_type(last)
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if value is not None and (not isinstance(value, expected) or (expected is int and isinstance(value, bool))):
        raise InputError(f"config.{name}: expected {expected.__name__}, found {value_text}")
    try:
        node[last] = value
    except TypeError:
        raise InputError(f"config.{name}: expected {expected.__name__}, found {value_text}") from None


def _parse(recipe: ConfigDict, name: str, text: str) -> Any:
    """Parse `text` as a value of the key's type; if that fails, return `text` itself, which `_set` rejects."""
    node, last = find_key(recipe, name)
    expected = node.get_type(last)
    if expected is str:
        return text
    if expected is bool:
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    if expected is int and isinstance(value, float) and value.is_integer():
        return int(value)  # an int may be written as 1e6
    return _tuples(value)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, (list, tuple)) else value
