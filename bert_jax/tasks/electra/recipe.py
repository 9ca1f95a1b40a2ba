"""The recipe of ELECTRA."""

from typing import Any

from bert_jax.errors import InputError
from bert_jax.recipes.base import Key, TaskRecipe
from bert_jax.tasks.pretraining import recipe as pretraining

KEYS = pretraining.KEYS | {
    "model.generator_size": Key(0.25, "width of the generator as a fraction of the discriminator's", above=0),
    "model.generator_layers": Key(0, "number of layers of the generator; 0 = as many as the discriminator", least=0),
    "model.embedding_sharing": Key("es", "embeddings of generator and discriminator: es = shared, gdes = shared with "
                                   "disentangled gradients, none = separate", ("es", "gdes", "none")),
    "discriminator_weight": Key(50.0, "weight of the discriminator's loss; the generator's loss has weight 1", least=0),
}  # fmt: skip


def check(c: Any) -> None:
    """Raise InputError when values do not fit together."""
    pretraining.check(c)
    if c.distillation.teacher:
        raise InputError("config.distillation.teacher: expected a task that trains one model, found electra")


RECIPE = TaskRecipe(
    "replaced-token detection, with the paper's small models as defaults",
    build="bert_jax.tasks.electra.task.build",
    keys=KEYS,
    defaults={
        **pretraining.RECIPE.defaults,
        "model.family": "electra",
        "model.size": "small",
        "data.mask_replace_prob": 1.0,
        "data.random_replace_prob": 0.0,
    },
    check=check,
    pretraining=True,
    synthetic_rows="bert_jax.tasks.pretraining.data.unpacked_rows",
)
