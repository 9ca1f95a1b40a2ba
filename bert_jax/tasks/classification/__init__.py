"""Sequence classification and regression of texts and pairs."""

from bert_jax.tasks.entry import TaskEntry

TASK = TaskEntry(
    "classification",
    recipes={
        "classification": f"{__name__}.recipe.RECIPE",
    },
    pipelines={
        "text-classification": f"{__name__}.pipeline.TextClassification",
        "zero-shot-classification": f"{__name__}.zero_shot.ZeroShotClassification",
    },
    aliases={
        "classify": "text-classification",
        "sentiment-analysis": "text-classification",
        "zero-shot": "zero-shot-classification",
    },
    evaluators={
        "sequence_classification": f"{__name__}.evaluation.ClassificationEvaluator",
    },
    examples={
        "sequence_classification": f"{__name__}.examples.examples_of_model",
    },
    verbs=(f"{__name__}.verb",),
)
