"""Recipes of tasks made small, so that tests train them in seconds."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax import jobs, recipes
from bert_jax.jobs.abstract import AbstractTask
from bert_jax.training.loop import train


@dataclasses.dataclass(frozen=True)
class SmallTask:
    """A recipe for the files of a folder, which tests get as their `place`.

    Attributes:
        spec: the recipe, as the command line names it; {place} in it is the folder.
        settings: key -> value over those of the recipe; {place} in a text is the folder.
    """

    spec: str
    settings: Mapping[str, Any]

    def recipe(self, place: Path, **changes: Any) -> Any:
        """Return the recipe with `changes`, which come after the settings."""
        spec = self.spec.format(place=place)
        c = recipes.load_recipe(spec) if ":" in spec else recipes.RECIPES[spec]()
        settings = {key: value.format(place=place) if isinstance(value, str) else value
                    for key, value in self.settings.items()}  # fmt: skip
        c.update_from_flattened_dict(settings | changes)
        return c

    def job(self, place: Path, **changes: Any) -> jobs.Job:
        """Return the training job of `recipe`."""
        return jobs.build(recipes.resolve(self.recipe(place, **changes)))

    def abstract_task(self, place: Path, **changes: Any) -> AbstractTask:
        """Return the abstract task of `recipe`."""
        return jobs.abstract_task(recipes.resolve(self.recipe(place, **changes)))

    def train(self, place: Path, **changes: Any) -> tuple[dict[str, Any], Path]:
        """Train in the folder `run`; return the results and the directory of the finished model."""
        return train(self.recipe(place, **changes), place / "run", progress=False), place / "run" / "model"
