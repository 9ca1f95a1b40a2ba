"""The recipe of masked-diffusion pretraining."""

from bert_jax.recipes.base import ModelUse, TaskRecipe
from bert_jax.tasks.masked_diffusion.recipe import NOISE_SCHEDULE, NOISE_WEIGHTING
from bert_jax.tasks.pretraining import recipe as pretraining

KEYS = {
    name: key
    for name, key in pretraining.KEYS.items()
    if name
    not in (
        "data.mask_prob",
        "data.max_predictions",
        "data.mask_unit",
        "data.mask_replace_prob",
        "data.random_replace_prob",
    )
} | {"data.noise_schedule": NOISE_SCHEDULE, "data.noise_weighting": NOISE_WEIGHTING}

RECIPE = TaskRecipe(
    "masked-diffusion pretraining: masked LM at every mask rate",
    build="bert_jax.tasks.masked_diffusion.pretraining.build",
    keys=KEYS,
    defaults=pretraining.RECIPE.defaults,
    check=pretraining.check,
    pretraining=True,
    use=ModelUse("fill-mask", "fill-in", '"A text with {mask} {mask} words."'),
    synthetic_rows="bert_jax.tasks.pretraining.data.unpacked_rows",
)
