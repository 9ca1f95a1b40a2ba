"""Multiple choice: questions with several choices, one of them right."""

from bert_jax.tasks.entry import TaskEntry

TASK = TaskEntry(
    "multiple_choice",
    recipes={
        "multiple_choice": f"{__name__}.recipe.RECIPE",
    },
    evaluators={
        "multiple_choice": f"{__name__}.evaluation.MultipleChoiceEvaluator",
    },
    examples={
        "multiple_choice": f"{__name__}.examples.examples_of_model",
    },
)
