"""Describe the keys of a recipe: value, default, type, choices, range and meaning."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from bert_jax.errors import InputError
from bert_jax.recipes.base import Key
from bert_jax.recipes.definitions import KEYS
from bert_jax.recipes.keys import RECIPES
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
    described = [Described(key, values[key], defaults[key], kind) for key, kind in KEYS[recipe.task].items()]
    name = name.removeprefix("--").removeprefix("config.").rstrip(".")
    if name in ("", "config"):
        return described
    chosen = [item for item in described if item.name == name or item.name.startswith(f"{name}.")]
    if not chosen:
        find_key(recipe, name)  # raises with a hint
        raise InputError(f"config.{name}: no such key")
    return chosen


def key_as_json(item: Described) -> dict[str, Any]:
    """Return a key as values that JSON can hold; a limit that is infinite or missing is null."""
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


_INTRODUCTION = """# Recipe keys

A recipe holds every setting of a run. `bert-jax config` lists the recipes that come with bert_jax, `bert-jax config
RECIPE [KEY]` prints the keys of a recipe with their values, and `--config.KEY=VALUE` changes a value for a run:

```bash
bert-jax config
bert-jax config classification optimizer
bert-jax finetune --config classification --workdir runs/reviews --config.init_from=path/to/bert \\
    --config.data.train=train.csv --config.data.text_column=review --config.num_epochs=2
```

Your own recipe is a Python file with a function `get_config`. Pass its path, and optionally an argument, as
`--config my/recipe.py:ARGUMENT`:

```python
from bert_jax import recipes


def get_config(directory="data"):
    c = recipes.classification()  # or recipes.load_recipe("sst2_minilm")
    c.data.train, c.data.dev = f"{directory}/train.csv", f"{directory}/dev.csv"
    c.num_epochs = 2.0
    return c
```

A work directory, or the `config.json` in it, is a recipe too. *Not set* in a table means that the value comes from the
model of `init_from` or, without one, from the size `model.size`.

`make docs` generates this page from `bert_jax/recipes/definitions.py`, and the keys of models from the declarations of
[`BertConfig`](api/config.md).
"""


def recipes_page() -> str:
    """Return the text of docs/recipes.md: every key of every task."""
    tasks = {task: flatten(make()) for task, make in RECIPES.items()}
    first = KEYS["pretraining"]
    alike = [name for name, key in first.items() if all(keys.get(name) == key for keys in KEYS.values())]
    lines = [_INTRODUCTION, "## Every task", "", *_table(first, alike, {name: first[name].value for name in alike})]
    for task, defaults in tasks.items():
        lines += [
            "",
            f"## {task}",
            "",
            *_table(KEYS[task], [name for name in KEYS[task] if name not in alike], defaults),
        ]
        others = [f"`{name}={shown_value(defaults[name])}`" for name in alike if defaults[name] != first[name].value]
        lines += ["", f"Defaults that differ from the table that all tasks share: {', '.join(others)}."]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    return "*not set*" if value is None else f"`{shown_value(value)}`"


def _table(keys: Mapping[str, Key], names: Sequence[str], defaults: Mapping[str, Any]) -> list[str]:
    """Return the lines of a Markdown table of the keys `names`."""
    rows = [f"| `{name}` | {_cell(defaults[name])} | {keys[name].allowed()} | {keys[name].meaning} |" for name in names]
    return ["| key | default | values | meaning |", "|---|---|---|---|", *rows]


if __name__ == "__main__":
    print(recipes_page(), end="")
