"""ELECTRA: pretraining by replaced-token detection."""

from bert_jax.tasks.entry import TaskEntry

TASK = TaskEntry(
    "electra",
    recipes={
        "electra": f"{__name__}.recipe.RECIPE",
    },
)
