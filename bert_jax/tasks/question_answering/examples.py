"""The loss of a saved model of question answering on labelled data."""

from bert_jax.conversion.load_pretrained import Loaded
from bert_jax.jobs.examples import Examples, examples_of_recipe, recipe_of_model
from bert_jax.tasks.question_answering.recipe import KEYS


def examples_of_model(loaded: Loaded, data: str, count: int) -> Examples:
    """Return the loss of a saved model on labelled questions."""
    recipe = recipe_of_model("question_answering", loaded, data, KEYS["data.max_seq_length"].value)
    room = recipe.data.max_seq_length
    recipe.data.doc_stride = min(recipe.data.doc_stride, room // 3)
    recipe.data.max_query_length = min(recipe.data.max_query_length, room // 3)
    return examples_of_recipe(recipe, loaded.directory, count)
