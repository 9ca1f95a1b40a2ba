"""The loss of a saved model of token classification on labelled data."""

from bert_jax.conversion.load_pretrained import Loaded
from bert_jax.jobs.examples import Examples, examples_of_recipe, recipe_of_model


def examples_of_model(loaded: Loaded, data: str, count: int) -> Examples:
    """Return the loss of a saved model on labelled rows, with the classes and columns of its training."""
    recipe = recipe_of_model("token_classification", loaded, data)
    return examples_of_recipe(recipe, loaded.directory, count)
