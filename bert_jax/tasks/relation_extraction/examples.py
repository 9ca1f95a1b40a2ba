"""The loss of a saved model of relation extraction on labelled data."""

from bert_jax.conversion.load_pretrained import Loaded
from bert_jax.jobs.examples import Examples, examples_of_recipe, recipe_of_model


def examples_of_model(loaded: Loaded, data: str, count: int) -> Examples:
    """Return the loss of a saved model on labelled rows, with the classes and markers of its training."""
    recipe = recipe_of_model("relation_extraction", loaded, data)
    relations = loaded.settings.records["relations"]
    recipe.data.markers, recipe.data.null_label = relations.markers, relations.null_label
    recipe.data.multi_label = loaded.config.problem_type == "multi_label_classification"
    return examples_of_recipe(recipe, loaded.directory, count)
