"""Sweep over values of recipe keys: a run for each combination, with scores averaged over seeds."""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax import recipes, storage
from bert_jax.errors import InputError
from bert_jax.training.loop import train
from bert_jax.training.metrics import merit

RESULTS = "sweep.json"


class SweepRow(NamedTuple):
    """The scores of a combination of values, over all seeds.

    Attributes:
        values: key -> value, without the seed.
        seeds: the number of runs.
        mean, spread: metric -> mean over seeds, and metric -> sample standard deviation (0 for one seed).
    """

    values: dict[str, str]
    seeds: int
    mean: dict[str, float]
    spread: dict[str, float]


def sweep(
    config: str,
    overrides: Sequence[str],
    grid: Mapping[str, Sequence[str]],
    workdir: storage.PathLike,
    progress: bool = True,
) -> list[SweepRow]:
    """Train every combination of `grid`, one after the other, each in a directory of `workdir` named after it.

    Finished runs are skipped, and interrupted ones are resumed.

    Args:
        config, overrides: arguments of `recipes.load_recipe`.
        grid: key of the recipe -> its values, as on the command line.
        workdir: a local or `gs://` directory, to which RESULTS is written too.
        progress: as for `train`.

    Returns:
        The rows, the best first by best_metric; without one, in the order of the grid.

    Raises:
        InputError: as `train`; an invalid recipe is reported before the first run.
    """
    root = storage.Path(workdir)
    runs = []
    for chosen in itertools.product(*grid.values()):
        values = dict(zip(grid, chosen, strict=True))
        recipe = recipes.load_recipe(config, [*overrides, *(f"{key}={value}" for key, value in values.items())])
        recipes.resolve(recipe)  # check all recipes before the first run
        name = ",".join(f"{key}={value}" for key, value in values.items())
        runs.append((values, recipe, root / name.replace("/", "_")))
    if len({directory for _, _, directory in runs}) < len(runs):
        raise InputError(f"--sweep: expected each value once, found {dict(grid)}")
    scores: dict[tuple[tuple[str, str], ...], list[dict[str, float]]] = {}
    for values, recipe, directory in runs:
        results = train(recipe, directory, progress=progress)
        run_scores = {name.removeprefix("eval/"): score for name, score in results.items() if name.startswith("eval/")}
        run_scores = run_scores or {"train/loss": results.get("train/loss", math.nan)}
        scores.setdefault(tuple((k, v) for k, v in values.items() if k != "seed"), []).append(run_scores)
    rows = [_row(dict(values), run_scores) for values, run_scores in scores.items()]
    metric = runs[0][1].best_metric.removeprefix("eval/")
    if metric:
        rows.sort(key=lambda row: -merit(metric, row.mean[metric]))
    storage.write_atomically(root / RESULTS, json.dumps([_plain(row) for row in rows], indent=2) + "\n")
    return rows


def parse_grid(words: Sequence[str]) -> dict[str, list[str]]:
    """Parse a grid, `["seed=0,1"]` -> `{"seed": ["0", "1"]}`. Raises InputError for any other form."""
    grid: dict[str, list[str]] = {}
    for word in words:
        key, _, values = word.removeprefix("config.").partition("=")
        if not key or not all(values.split(",")) or key in grid:
            raise InputError(f"--sweep: expected KEY=VALUE,VALUE,... with a new key, found {word!r}")
        grid[key] = values.split(",")
    return grid


def _row(values: dict[str, str], seed_scores: list[dict[str, float]]) -> SweepRow:
    columns: dict[str, list[Any]] = {name: [scores[name] for scores in seed_scores] for name in seed_scores[0]}
    return SweepRow(
        values,
        len(seed_scores),
        {name: float(np.mean(column)) for name, column in columns.items()},
        {name: float(np.std(column, ddof=1)) if len(column) > 1 else 0.0 for name, column in columns.items()},
    )


def _plain(row: SweepRow) -> dict[str, Any]:
    """Return a row as a JSON object; numbers that are not finite become null."""

    def finite(values: dict[str, float]) -> dict[str, float | None]:
        return {name: value if math.isfinite(value) else None for name, value in values.items()}

    return row._asdict() | {"mean": finite(row.mean), "spread": finite(row.spread)}
