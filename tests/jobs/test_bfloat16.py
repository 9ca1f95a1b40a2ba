"""Every task and loss has gradients in bfloat16, of the shapes and dtypes of the parameters."""

import jax
import pytest

from bert_jax import jobs, recipes
from bert_jax.planning.plan import for_tpu
from bert_jax.tasks.embedding.dense.recipe import EMBEDDING_LOSSES
from bert_jax.tasks.embedding.retrieval_keys import SEARCH_LOSSES
from bert_jax.tasks.reranking.losses import RERANKING_LOSSES
from bert_jax.training import step

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
         "vocab_size": 200}  # fmt: skip
LOSSES = {
    "sentence_embedding": [loss for loss in EMBEDDING_LOSSES if loss != "none"],
    "reranking": RERANKING_LOSSES,
    "sparse_embedding": SEARCH_LOSSES,
    "multi_vector": SEARCH_LOSSES,
}
CASES = [(task, loss) for task in recipes.RECIPES for loss in LOSSES.get(task, ("",))]


@pytest.mark.sampled(42)
@pytest.mark.parametrize(("task", "loss"), CASES, ids=["-".join(filter(None, case)) for case in CASES])
@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_gradients(task, loss, platform):
    recipe = recipes.RECIPES[task]()
    recipe.model.update(SMALL)
    recipe.dtype = "bfloat16"
    if loss:
        recipe.data.loss = loss
    if task in ("sparse_embedding", "multi_vector") and loss != "in_batch_negatives":
        recipe.data.update({"label_column": "scores", "passages_column": "passages"})
    made = jobs.abstract_task(recipes.resolve(recipe, platform=platform))
    if platform == "tpu":
        made = for_tpu(made)
    batch = {name: jax.ShapeDtypeStruct((8, *x.shape[1:]), x.dtype) for name, x in made.stages[0].batch.items()}
    key = jax.random.key(0)
    params = jax.eval_shape(made.init_params, key)
    gradients, _ = jax.eval_shape(lambda *given: step._gradients(made.task, *given, 2), params, batch, key)
    assert gradients == params
