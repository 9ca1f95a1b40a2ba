"""The loss of a saved multiple-choice model on labelled data."""

from bert_jax.conversion.load_pretrained import Loaded
from bert_jax.jobs.examples import Examples, examples_of_recipe, recipe_of_model
from bert_jax.jobs.training_metadata import read_training_metadata


def examples_of_model(loaded: Loaded, data: str, count: int) -> Examples:
    """Return the loss of a saved model on labelled rows, read with the columns of its training."""
    recipe = recipe_of_model("multiple_choice", loaded, data)
    columns = read_training_metadata(loaded.directory).columns
    if columns.wanted:
        recipe.data.context_column, recipe.data.question_column = columns.text, columns.pair
        recipe.data.choice_columns = columns.more or (columns.texts,)
    return examples_of_recipe(recipe, loaded.directory, count)
