"""Synthetic rows for a job that is built only for its shapes."""

import json
from collections.abc import Sequence
from typing import Any

from bert_jax.data.finetuning.columns import Columns
from bert_jax.recipes import Recipe
from bert_jax.storage import MemoryFile

WORD = "a"  # a text of one token
ONLY_SHAPES = "only_shapes"  # key of a recipe whose job is built only for its shapes
DATA = ("train", "prepared", "mixture")  # keys of `data` that name the data to learn from


def only_shapes(recipe: Recipe) -> bool:
    """Return whether a job is built only for its shapes, so that no weights of a teacher or guide are needed."""
    return bool(recipe.get(ONLY_SHAPES))


def has_synthetic_rows(recipe: Recipe) -> bool:
    """Return whether a recipe has synthetic rows in place of data."""
    return any(isinstance(recipe.data.get(name), MemoryFile) for name in DATA)


def rows_in_memory(recipe: Recipe) -> list[dict[str, Any]]:
    """Return the synthetic rows of a recipe that has them."""
    file = next(value for name in DATA if isinstance(value := recipe.data.get(name), MemoryFile))
    return [json.loads(line) for line in file.content.splitlines()]


def table_rows(columns: Columns, labels: Sequence[Any] = ("0", "1"), text: str = WORD) -> list[dict[str, Any]]:
    """Return one table row per label, with `text` in each text column and twice in a column of lists of texts."""
    row: dict[str, Any] = {name: text for name in columns.wanted if name not in (columns.texts, columns.label)}
    lists = {columns.texts: [text, text]} if columns.texts else {}
    return [row | lists | ({columns.label: label} if columns.label else {}) for label in labels]
