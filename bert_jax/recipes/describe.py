"""Describe the keys of a recipe: value, default, type, choices, range and meaning."""

import dataclasses
from typing import Any

from ml_collections import ConfigDict

from bert_jax.errors import InputError
from bert_jax.recipes.base import Key
from bert_jax.recipes.keys import KEYS, RECIPES, SETS
from bert_jax.recipes.reading import find_key, flatten


@dataclasses.dataclass(frozen=True)
class Described:
    """A key of a recipe with its value.

    Attributes:
        name: the dotted name, without `config.`.
        value: the value in this recipe; None = not set.
        default: the default of the task; None = not set.
        key: the definition of the key.
    """

    name: str
    value: Any
    default: Any
    key: Key


def describe_keys(recipe: ConfigDict, name: str = "") -> list[Described]:
    """Return the keys of `recipe`: all keys, the key `name`, or the keys of the group `name`.

    Raises:
        InputError: there is no such key.
    """
    values, defaults = flatten(recipe), flatten(RECIPES[recipe.task]())
    described = [
        Described(key, values.get(key, kind.value), defaults.get(key, kind.value), kind)
        for key, kind in KEYS[recipe.task].items()
    ]
    if recipe.data.get("sets"):
        from bert_jax.recipes.data_sets import described_sets

        described = [item for item in described if item.name != SETS]
        described += [Described(key, values[key], None, kind) for key, kind in described_sets(recipe, values)]
    name = name.removeprefix("--").removeprefix("config.").rstrip(".")
    if name in ("", "config"):
        return described
    chosen = [item for item in described if item.name == name or item.name.startswith(f"{name}.")]
    if not chosen:
        find_key(recipe, name)  # raises an error with a hint
        raise InputError(f"config.{name}: no such key")
    return chosen


def key_as_json(item: Described) -> dict[str, Any]:
    """Return a key as JSON values; an infinite or missing limit is null."""
    key = item.key
    limits = {name: getattr(key, name) for name in ("least", "above", "below")}
    return {
        "key": item.name,
        "value": item.value,
        "default": item.default,
        "type": key.type.__name__,
        "choices": list(key.choices),
        **{name: limit if limit is not None and abs(limit) != float("inf") else None for name, limit in limits.items()},
        "meaning": key.meaning,
    }


def shown_value(value: Any) -> str:
    """Return a value as `--config.KEY=` accepts it, or "not set" for None."""
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'
