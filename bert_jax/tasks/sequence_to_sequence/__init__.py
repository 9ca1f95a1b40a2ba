"""Sequence to sequence: encoder-decoders from two encoders."""

from bert_jax.tasks.entry import TaskEntry

TASK = TaskEntry(
    "sequence_to_sequence",
    recipes={
        "sequence_to_sequence": f"{__name__}.recipe.RECIPE",
    },
    pipelines={
        "text2text-generation": f"{__name__}.pipeline.Text2TextGeneration",
    },
    aliases={"summarization": "text2text-generation", "translation": "text2text-generation"},
    evaluators={
        "encoder_decoder": f"{__name__}.evaluation.SequenceToSequenceEvaluator",
    },
    verbs=(f"{__name__}.verb",),
)
