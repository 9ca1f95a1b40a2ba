"""The record of a run in its work directory: its recipe and its data."""

import dataclasses
import json
from typing import Any

from bert_jax.recipes.keys import KEYS


@dataclasses.dataclass(frozen=True)
class DataRecord:
    """A run's data when it began (`Job.data`), and its number of steps; None where the work directory has no record."""

    data: dict[str, Any] | None = None
    num_steps: int | None = None

    def to_json(self) -> str:
        """Return the content of `data.json`."""
        content = {"num_steps": self.num_steps, "data": self.data}
        return json.dumps(content, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace").decode() + "\n"


def is_recipe(content: Any) -> bool:
    """Return whether the content of a `config.json` can be a recipe that a run has written."""
    return isinstance(content, dict) and isinstance(content.get("task"), str) and content["task"] in KEYS


def is_data_record(content: Any) -> bool:
    """Return whether the content of a `data.json` looks like the data record of a run."""
    return isinstance(content, dict) and type(content.get("num_steps")) is int and isinstance(content.get("data"), dict)
