"""Training: `train` runs a recipe to its finished model, `steps` yields after every step."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert_jax.training.loop import Interrupted, Preempted, Results, steps, train

__all__ = ["Interrupted", "Preempted", "Results", "steps", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'bert_jax.training' has no attribute {name!r}")
    return getattr(importlib.import_module("bert_jax.training.loop"), name)
