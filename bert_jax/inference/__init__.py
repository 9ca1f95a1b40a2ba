"""Inference: `from_pretrained` returns a callable model, `pipeline` one that takes text."""

from typing import TYPE_CHECKING

from bert_jax.lazy import lazy_attributes

if TYPE_CHECKING:
    from bert_jax.inference.base import Pipeline
    from bert_jax.inference.loading import from_pretrained
    from bert_jax.inference.model import PretrainedModel
    from bert_jax.inference.pipelines import pipeline
    from bert_jax.inference.registry import PIPELINES

__all__ = ["PIPELINES", "Pipeline", "PretrainedModel", "from_pretrained", "pipeline"]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "bert_jax.inference.base": ("Pipeline",),
        "bert_jax.inference.loading": ("from_pretrained",),
        "bert_jax.inference.model": ("PretrainedModel",),
        "bert_jax.inference.pipelines": ("pipeline",),
        "bert_jax.inference.registry": ("PIPELINES",),
    },
)
