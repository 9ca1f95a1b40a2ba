"""Evaluate fine-tuned models of every task on files, and write their predictions."""

from typing import TYPE_CHECKING

from bert_jax.evaluation.driver import Evaluator, evaluate, evaluator_class
from bert_jax.lazy import lazy_attributes

if TYPE_CHECKING:
    from bert_jax.evaluation.predicting import open_predictor, predict

__all__ = ["Evaluator", "evaluate", "evaluator_class", "open_predictor", "predict"]

__getattr__, __dir__ = lazy_attributes(__name__, {"bert_jax.evaluation.predicting": ("open_predictor", "predict")})
