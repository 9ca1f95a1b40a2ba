"""BERT in JAX: pretraining, fine-tuning, inference, and weights that are exchanged with PyTorch."""

import importlib
from typing import TYPE_CHECKING, Any

from bert_jax.version import __version__ as __version__

if TYPE_CHECKING:
    from bert_jax.config import BertConfig
    from bert_jax.errors import InputError
    from bert_jax.families import register_family
    from bert_jax.inference import PretrainedModel, from_pretrained, pipeline
    from bert_jax.modeling import Bert, BertOutput, Compute
    from bert_jax.tasks.registering import register_task
    from bert_jax.tokenization import Tokenizer, load_tokenizer
    from bert_jax.training import train

# Public name -> the module that defines it. It is imported on first use, so that `import bert_jax` is fast.
_PUBLIC = {
    "BertConfig": "bert_jax.config",
    "Bert": "bert_jax.modeling",
    "BertOutput": "bert_jax.modeling",
    "Compute": "bert_jax.modeling",
    "InputError": "bert_jax.errors",
    "PretrainedModel": "bert_jax.inference",
    "Tokenizer": "bert_jax.tokenization",
    "from_pretrained": "bert_jax.inference",
    "pipeline": "bert_jax.inference",
    "load_tokenizer": "bert_jax.tokenization",
    "register_family": "bert_jax.families",
    "register_task": "bert_jax.tasks.registering",
    "train": "bert_jax.training",
}
# Subpackages of the documented API, imported when they are first used as attributes of this package.
_PACKAGES = ("conversion", "data", "evaluation", "export", "families", "inference", "metrics", "modeling", "planning",
             "recipes", "serving", "storage", "tasks", "tokenization", "training")  # fmt: skip
__all__ = [
    "Bert",
    "BertConfig",
    "BertOutput",
    "Compute",
    "InputError",
    "PretrainedModel",
    "Tokenizer",
    "from_pretrained",
    "load_tokenizer",
    "pipeline",
    "register_family",
    "register_task",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"bert_jax.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC, *_PACKAGES})
