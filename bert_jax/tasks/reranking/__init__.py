"""Reranking: cross-encoders that score the relevance of a passage to a query."""

from bert_jax.tasks.entry import TaskEntry

TASK = TaskEntry(
    "reranking",
    recipes={
        "reranking": f"{__name__}.recipe.RECIPE",
    },
    pipelines={
        "rerank": f"{__name__}.pipeline.Rerank",
    },
    verbs=(f"{__name__}.verb",),
)
