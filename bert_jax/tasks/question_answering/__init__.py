"""Extractive question answering."""

from bert_jax.tasks.entry import TaskEntry

TASK = TaskEntry(
    "question_answering",
    recipes={
        "question_answering": f"{__name__}.recipe.RECIPE",
    },
    pipelines={
        "question-answering": f"{__name__}.pipeline.QuestionAnswering",
    },
    aliases={"answer": "question-answering"},
    evaluators={
        "question_answering": f"{__name__}.evaluation.QuestionAnsweringEvaluator",
    },
    examples={
        "question_answering": f"{__name__}.examples.examples_of_model",
    },
    verbs=(f"{__name__}.verb",),
)
