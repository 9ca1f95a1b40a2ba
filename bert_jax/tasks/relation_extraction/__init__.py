"""Relation extraction: the relation between two entities of a text."""

from bert_jax.tasks.entry import TaskEntry
from bert_jax.tasks.record import Record

TASK = TaskEntry(
    "relation_extraction",
    recipes={
        "relation_extraction": f"{__name__}.recipe.RECIPE",
    },
    pipelines={
        "relation-extraction": f"{__name__}.pipeline.RelationExtraction",
    },
    evaluators={
        "sequence_classification": f"{__name__}.evaluation.RelationExtractionEvaluator",
    },
    examples={
        "sequence_classification": f"{__name__}.examples.examples_of_model",
    },
    record=Record(
        "relations",
        "sequence_classification",
        "relation extraction: markers of entities, and the class of pairs without a relation",
        f"{__name__}.settings.relation_settings_of",
    ),
    verbs=(f"{__name__}.verb",),
)
