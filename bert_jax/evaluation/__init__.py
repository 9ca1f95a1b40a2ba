"""Evaluate fine-tuned models over files, and write their predictions: one driver, and a small file a task."""

from bert_jax.evaluation.driver import EVALUATORS, Evaluator, evaluate, evaluator_class, predict

__all__ = ["EVALUATORS", "Evaluator", "evaluate", "evaluator_class", "predict"]
