"""Registries of the optimizers and schedules by name, and functions that add others."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from bert_jax.errors import InputError
from bert_jax.registry import Registry

_MODULE = "bert_jax.training"
OPTIMIZERS: Registry[Any] = Registry(
    f"{_MODULE}.register_optimizer",
    {name: f"{_MODULE}.optimizers.{name}" for name in ("adamw", "lamb", "adafactor")}
    | {"muon": f"{_MODULE}.muon.muon"},
)
SCHEDULES: Registry[Callable[[float, int, int], Callable[[Any], Any]]] = Registry(
    f"{_MODULE}.register_schedule",
    {
        name: f"{_MODULE}.schedules.{name}"
        for name in ("bert_linear", "linear", "constant", "quadratic", "cosine", "rsqrt", "wsd")
    },
)


def register_optimizer(name: str, optimizer: Any) -> None:
    """Add an optimizer of your own, which recipes then choose by `optimizer.name`.

    Clipping, `optimizer.layer_decay`, the learning rate, freezing and parameter averaging are added to it.

    Args:
        name: a new name; an optimizer that was registered before is replaced.
        optimizer: an `optax.GradientTransformation` whose updates are not yet multiplied by the learning rate, such as
            `optax.scale_by_lion()`; or a function that returns one, given the recipe's values as a
            `bert_jax.training.optimizers.OptimizerSettings`.

    Raises:
        InputError: the name is that of an optimizer of this package, or `optimizer` is neither of the two.
    """
    if not callable(optimizer) and not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        expected = "an optax.GradientTransformation, or a function that returns one"
        raise InputError(f"{OPTIMIZERS.register}: {name!r}: expected {expected}, found {type(optimizer).__name__}")
    OPTIMIZERS.add(name, optimizer)


def register_schedule(name: str, schedule: Callable[..., Any]) -> None:
    """Add a learning-rate schedule of your own, which recipes then choose by `optimizer.schedule`.

    Args:
        name: a new name; a schedule that was registered before is replaced.
        schedule: a function of peak, number of steps and number of warm-up steps that returns an Optax schedule; or an
            Optax schedule, a function of the step from 0, for which `optimizer.learning_rate` has no meaning.

    Raises:
        InputError: the name is that of a schedule of this package, or the function has other arguments.
    """
    match _required(schedule):
        case 3:
            SCHEDULES.add(name, schedule)
        case 1:

            @functools.wraps(schedule)
            def fixed(peak: float, num_steps: int, warmup_steps: int) -> Any:
                return schedule

            SCHEDULES.add(name, fixed)
        case count:
            expected = "a function of the step, or of (peak, num_steps, warmup_steps)"
            problem = type(schedule).__name__ if count is None else f"one of {count} arguments"
            raise InputError(f"{SCHEDULES.register}: {name!r}: expected {expected}, found {problem}")


def _required(function: Any) -> int | None:
    """Return the number of positional arguments without defaults; None if `function` is no function."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in kinds and each.default is each.empty for each in parameters)
