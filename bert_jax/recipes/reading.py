"""Recipe files, the `config.json` that a run leaves, and `--config.a.b=value`: all of them set keys that are there."""

import ast
import json
import re
import traceback
import types
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from bert_jax import storage
from bert_jax.errors import InputError, did_you_mean
from bert_jax.recipes.keys import RECIPES


def load_recipe(spec: str, overrides: Sequence[str] = ()) -> ConfigDict:
    """Returns the recipe that `spec` names, changed by `overrides`, locked and not yet resolved.

    Args:
        spec: `FILE.py` or `FILE.py:arg` (passed to its `get_config`), or a `config.json` that a run left.
        overrides: strings such as `--config.optimizer.learning_rate=1e-4` (the dashes are optional).

    Raises:
        InputError: the file is missing or broken, a key does not exist, or a value has the wrong type.
    """
    path, arg = _split(spec)
    recipe = _from_json(path) if path.endswith(".json") else _from_python(path, arg)
    for override in overrides:
        _override(recipe, override)
    return recipe


def _split(spec: str) -> tuple[str, str]:
    """The file that a spec names, local or in an object store, and what stands behind the colon."""
    if not storage.is_remote(spec) and storage.Path(spec).exists():
        return spec, ""
    scheme = spec.find("://") + 3 if storage.is_remote(spec) else 0
    path, _, arg = spec[scheme:].partition(":")
    return spec[:scheme] + path, arg


def to_json(recipe: ConfigDict) -> str:
    """The recipe as the text of `config.json`: nested, sorted, tuples as lists."""
    return json.dumps(recipe.to_dict(), indent=2, sort_keys=True) + "\n"


def flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` -> `{"a.b": 1}`, for a ConfigDict or a dict."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, name + ".") if isinstance(value, (dict, ConfigDict)) else {name: value}
    return flat


def _from_python(path: str, arg: str) -> ConfigDict:
    if not path.endswith(".py"):
        raise InputError(f"{path}: expected a recipe file ending in .py or .json")
    if not storage.Path(path).is_file():
        raise InputError(f"{path}: no such recipe file")
    source = storage.read_text(path)
    module = types.ModuleType("bert_jax_recipe")
    module.__file__ = path
    try:
        exec(compile(source, path, "exec"), vars(module))
        if not hasattr(module, "get_config"):
            raise InputError(f"{path}: expected a function get_config, found none")
        recipe = module.get_config(arg) if arg else module.get_config()
    except InputError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == path]
        line = lines[-1] if lines else getattr(error, "lineno", None)
        raise InputError(f"{path}:{line or 1}: {_reason(error)}") from error
    if not isinstance(recipe, ConfigDict) or recipe.get("task") not in RECIPES:
        raise InputError(f"{path}: get_config must return a recipe of bert_jax.recipes, found {type(recipe).__name__}")
    return recipe.lock()


def _reason(error: Exception) -> str:
    """What is wrong in a recipe file; of what ml_collections says, which quotes the whole recipe, only the point."""
    text = str(error).strip()
    if key := re.search(r'Key "([^"]+)" does not exist', text):
        guess = re.search(r'Did you mean "([^"]+)"', text)
        return f"there is no key {key[1]!r}" + (f"; did you mean {guess[1]!r}?" if guess else "")
    if field := re.search(r"override field '([^']+)'.* type <class '(\w+)'> .* type <class '(\w+)'>", text, re.DOTALL):
        return f"{field[1]}: expected {field[3]}, found {field[2]}"
    return f"{type(error).__name__}: {(text.splitlines() or [''])[0]}"


def _from_json(path: str) -> ConfigDict:
    try:
        saved = json.loads(storage.read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: expected JSON, found {error.msg} at line {error.lineno}") from None
    task = saved.get("task") if isinstance(saved, dict) else None
    if task not in RECIPES:
        raise InputError(f"{path}: expected the config.json of a run, with task one of {', '.join(RECIPES)}")
    recipe = RECIPES[task]()
    for key, value in flatten(saved).items():
        _set(recipe, key, _tuples(value), repr(value))
    return recipe


def _override(recipe: ConfigDict, override: str) -> None:
    name, equals, text = override.removeprefix("--").removeprefix("config.").partition("=")
    if not equals:
        raise InputError(f"{override}: expected --config.KEY=VALUE")
    _set(recipe, name, _parse(recipe, name, text), repr(text))


def _leaf(recipe: ConfigDict, name: str) -> tuple[ConfigDict, str]:
    """The ConfigDict that holds a dotted key, and the key's last part."""
    node = recipe
    *parents, last = name.split(".")
    for depth, part in enumerate([*parents, last]):
        if part not in node:
            where = ".".join(["config", *parents[:depth]])
            raise InputError(f"config.{name}: {where} has no key {part!r}{did_you_mean(part, node.keys())}")
        if depth < len(parents):
            if not isinstance(node[part], ConfigDict):
                raise InputError(f"config.{name}: config.{'.'.join(parents[: depth + 1])} has no keys inside")
            node = node[part]
    if isinstance(node[last], ConfigDict):
        raise InputError(f"config.{name}: expected one of its keys: {', '.join(sorted(node[last].keys()))}")
    return node, last


def _set(recipe: ConfigDict, name: str, value: Any, found: str) -> None:
    node, last = _leaf(recipe, name)
    expected = node.get_type(last)
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if value is not None and (not isinstance(value, expected) or (expected is int and isinstance(value, bool))):
        raise InputError(f"config.{name}: expected {expected.__name__}, found {found}")
    try:
        node[last] = value
    except TypeError:
        raise InputError(f"config.{name}: expected {expected.__name__}, found {found}") from None


def _parse(recipe: ConfigDict, name: str, text: str) -> Any:
    """`text` as a value of the key's type. What cannot be read comes back as text, which _set refuses."""
    node, last = _leaf(recipe, name)
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
        return int(value)  # 1e6
    return _tuples(value)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, (list, tuple)) else value
