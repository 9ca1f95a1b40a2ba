"""Inference: `from_pretrained` returns a callable model, `pipeline` one that takes text."""

from bert_jax.inference.base import Pipeline
from bert_jax.inference.loading import from_pretrained
from bert_jax.inference.model import PretrainedModel
from bert_jax.inference.pipelines import pipeline
from bert_jax.inference.registry import PIPELINES

__all__ = ["PIPELINES", "Pipeline", "PretrainedModel", "from_pretrained", "pipeline"]
