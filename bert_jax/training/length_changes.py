"""Describe how a run continues whose number of steps has changed."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bert_jax import recipes
from bert_jax.training.program import schedule_and_optimizer


def describe_new_length(
    recipe: recipes.Recipe, before: int, now: int, start: int, schedule: Callable[[Any], Any]
) -> str:
    """Return a sentence on the learning rate of a run of `before` steps that becomes one of `now` steps.

    Args:
        recipe: the resolved recipe of the run.
        before: its number of steps until now.
        now: its number of steps from here on.
        start: number of steps that are done, at least 1.
        schedule: the learning rate of a step in a run of `now` steps.
    """
    former, _ = schedule_and_optimizer(recipe, before)
    done = np.unique(np.linspace(0, start - 1, 1000).astype(np.int32))
    text = f"{before} steps become {now}"
    if np.array_equal(former(done), schedule(done)):
        return f"{text}; the learning rate so far is the same as in one run of {now} steps"
    rates = f"{float(former(start - 1)):.3g} to {float(schedule(start)):.3g}"
    return (
        f"{text}: at step {start} the learning rate changes from {rates}, and then follows the schedule "
        f"of {now} steps; the steps so far followed the schedule of {before} steps"
    )
