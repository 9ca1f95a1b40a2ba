"""Token classification: a tag for each word, such as entities and parts of speech."""

from bert_jax.tasks.entry import TaskEntry

TASK = TaskEntry(
    "token_classification",
    recipes={
        "token_classification": f"{__name__}.recipe.RECIPE",
    },
    pipelines={
        "token-classification": f"{__name__}.pipeline.TokenClassification",
    },
    aliases={"ner": "token-classification", "tag": "token-classification"},
    evaluators={
        "token_classification": f"{__name__}.evaluation.TokenClassificationEvaluator",
    },
    examples={
        "token_classification": f"{__name__}.examples.examples_of_model",
    },
    verbs=(f"{__name__}.verb",),
)
