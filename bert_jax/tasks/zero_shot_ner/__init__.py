"""Zero-shot NER (GLiNER): find spans of entity types that are named at inference."""

from bert_jax.tasks.entry import TaskEntry

TASK = TaskEntry(
    "zero_shot_ner",
    recipes={
        "zero_shot_ner": f"{__name__}.recipe.RECIPE",
    },
    pipelines={
        "zero-shot-ner": f"{__name__}.pipeline.ZeroShotNer",
    },
    evaluators={
        "zero_shot_ner": f"{__name__}.evaluation.ZeroShotNerEvaluator",
    },
)
