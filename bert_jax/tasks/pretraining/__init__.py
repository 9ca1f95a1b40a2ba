"""Pretraining by masked LM and next sentence, and the pipelines of a masked LM."""

from bert_jax.tasks.entry import TaskEntry

TASK = TaskEntry(
    "pretraining",
    recipes={
        "pretraining": f"{__name__}.recipe.RECIPE",
    },
    pipelines={
        "fill-mask": f"{__name__}.fill_mask.FillMask",
        "pseudo-log-likelihood": f"{__name__}.likelihood.PseudoLogLikelihood",
    },
    examples={
        "masked_lm": f"{__name__}.examples.examples_of_model",
        "pretraining": f"{__name__}.examples.examples_of_model",
    },
    verbs=(f"{__name__}.verb",),
)
