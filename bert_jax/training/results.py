"""`Results`, the return value of a run."""

import math

from ml_collections import ConfigDict

from bert_jax.training.checkpoints import merit
from bert_jax.training.metrics import read_metrics
from bert_jax.training.state import State
from bert_jax.training.workdir import Workdir


class Results(dict[str, float]):
    """The last training metrics (`train/...`) and the evaluation metrics (`eval/...`) of the finished model, by name,
    and its `step`; empty on processes other than the first.

    Attributes:
        state: parameters, optimizer state and step of the finished model; None where it was finished before this call.
    """

    state: State | None = None


def results_of(place: Workdir, recipe: ConfigDict) -> Results:
    """The last training line and the evaluation line of the finished model, as one dict."""
    lines = read_metrics(place.metrics)
    trained = [line for line in lines if any(name.startswith("train/") for name in line)]
    scored = [line for line in lines if any(name.startswith("eval/") for name in line)]
    if recipe.best_metric and scored:
        metric = recipe.best_metric.removeprefix("eval/")
        scored.sort(key=lambda line: (merit(metric, line.get(f"eval/{metric}")), line["step"]))
    chosen: dict[str, float] = {}
    for found in (trained, scored):
        chosen |= found[-1] if found else {}
    return Results({name: math.nan if value is None else value for name, value in chosen.items()})
