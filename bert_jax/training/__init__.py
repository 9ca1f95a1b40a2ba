"""Training: `train` runs a recipe to its finished model, `steps` yields after every step."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert_jax.recipes.optimization import register_optimizer, register_schedule
    from bert_jax.training.loop import Interrupted, Preempted, Results, steps, train

_REGISTERS = ("register_optimizer", "register_schedule")
__all__ = ["Interrupted", "Preempted", "Results", "register_optimizer", "register_schedule", "steps", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'bert_jax.training' has no attribute {name!r}")
    module = "bert_jax.recipes.optimization" if name in _REGISTERS else "bert_jax.training.loop"
    return getattr(importlib.import_module(module), name)
