"""Text classification from few labels: pairs of texts train the embedding, and a logistic regression classifies it."""

from bert_jax.tasks.entry import TaskEntry

TASK = TaskEntry(
    "few_labels",
    recipes={
        "few_labels": f"{__name__}.recipe.RECIPE",
    },
)
