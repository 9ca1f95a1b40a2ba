"""BERT in JAX: pretraining, fine-tuning, inference, and weights that trade with PyTorch."""

import importlib
from typing import Any

from bert_jax.compilers import give_compiler_room

__version__ = "0.1.0"

give_compiler_room()  # before anything loads libtpu

# Public name -> the module that defines it; imported on first use, so that `import bert_jax` stays quick.
_PUBLIC = {
    "BertConfig": "bert_jax.config",
    "Bert": "bert_jax.modeling",
    "BertOutput": "bert_jax.modeling",
    "Compute": "bert_jax.modeling",
    "InputError": "bert_jax.errors",
    "from_pretrained": "bert_jax.inference",
    "pipeline": "bert_jax.inference",
    "load_tokenizer": "bert_jax.tokenization",
    "train": "bert_jax.training.loop",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_PUBLIC]
