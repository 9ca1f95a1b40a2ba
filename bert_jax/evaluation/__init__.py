"""Evaluate fine-tuned models over files, and write their predictions: one driver, and one module per task."""

from bert_jax.evaluation.driver import (
    EVALUATORS,
    Evaluator,
    evaluate,
    evaluator_class,
    open_predictor,
    predict,
)

__all__ = ["EVALUATORS", "Evaluator", "evaluate", "evaluator_class", "open_predictor", "predict"]
