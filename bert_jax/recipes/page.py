"""Write docs/recipes.md: every key of every task."""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.recipes.base import Key
from bert_jax.recipes.describe import shown_value
from bert_jax.recipes.keys import KEYS, RECIPES
from bert_jax.recipes.optimization import OPTIMIZERS, SCHEDULES
from bert_jax.recipes.reading import flatten

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

`make docs` generates this page from `bert_jax/recipes/shared_keys.py`, and the keys of models from the declarations of
[`BertConfig`](api/config.md).
"""


def recipes_page() -> str:
    """Return the text of docs/recipes.md: every key of every task, every optimizer and every schedule."""
    tasks = {task: flatten(make()) for task, make in RECIPES.items()}
    first = next(iter(KEYS.values()))
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
    for title, key, choices in (
        ("Optimizers", "optimizer.name", OPTIMIZERS),
        ("Schedules", "optimizer.schedule", SCHEDULES),
    ):
        lines += ["", f"## {title}", "", f"| `{key}` | meaning |", "|---|---|"]
        lines += [f"| `{name}` | {choices.meaning(name)} |" for name in choices if not choices.is_registered(name)]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    return "*not set*" if value is None else f"`{shown_value(value)}`"


def _table(keys: Mapping[str, Key], names: Sequence[str], defaults: Mapping[str, Any]) -> list[str]:
    """Return the lines of a Markdown table of the keys `names`."""
    values = {name: defaults.get(name, keys[name].value) for name in names}
    rows = [f"| `{name}` | {_cell(values[name])} | {keys[name].allowed()} | {keys[name].meaning} |" for name in names]
    return ["| key | default | values | meaning |", "|---|---|---|---|", *rows]


if __name__ == "__main__":
    print(recipes_page(), end="")
