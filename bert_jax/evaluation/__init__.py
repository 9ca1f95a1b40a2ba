"""Evaluate fine-tuned models over files, and predict with them: one module a task."""

import importlib
from typing import Any

from bert_jax.conversion.huggingface import saved_head
from bert_jax.errors import InputError
from bert_jax.storage import PathLike

# Head of a model -> the module whose `evaluate` and `predict` run it over files.
EVALUATORS = {
    "sequence_classification": "bert_jax.evaluation.classification",
    "token_classification": "bert_jax.evaluation.token_classification",
    "question_answering": "bert_jax.evaluation.question_answering",
    "sentence_embedding": "bert_jax.evaluation.sentence_embedding",
    "multiple_choice": "bert_jax.evaluation.multiple_choice",
}


def of_model(model_dir: PathLike) -> Any:
    """Return the module that evaluates, and predicts with, the model in a directory.

    Raises:
        InputError: the model was not fine-tuned for a task.
    """
    head = saved_head(model_dir)
    if head not in EVALUATORS:
        raise InputError(f"{model_dir}: expected a model for {', '.join(EVALUATORS)}, found one for {head}")
    return importlib.import_module(EVALUATORS[head])
