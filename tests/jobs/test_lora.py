"""LoRA of the models of all tasks."""

import jax
import pytest

from bert_jax import jobs, recipes
from bert_jax.errors import InputError
from bert_jax.recipes.keys import RECIPES, TASK_RECIPES

SEVERAL_MODELS = ("electra", "sequence_to_sequence")


@pytest.mark.parametrize("task", [name for name in RECIPES if not TASK_RECIPES[name].tasks_of_sets])
def test_a_task_that_trains_one_model_is_adapted(task):
    recipe = RECIPES[task]()
    recipe.model.size, recipe.lora.rank = "tiny", 2

    def params():
        job = jobs.abstract_task(recipes.resolve(recipe))
        return jax.eval_shape(job.init_params, jax.random.key(0))

    if task in SEVERAL_MODELS:
        with pytest.raises(InputError, match=r"^config\.lora\.rank: expected .*, found "):
            params()
        return
    (part,) = params()["lora"]["encoder"]["layers"].values()
    assert all(pair["a"].shape[-1] == pair["b"].shape[-2] == 2 for pair in part.values())
