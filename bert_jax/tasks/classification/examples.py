"""The loss of a saved classification model on labelled data."""

from bert_jax.conversion.load_pretrained import Loaded
from bert_jax.jobs.examples import Examples, examples_of_recipe, recipe_of_model
from bert_jax.jobs.training_metadata import read_training_metadata


def examples_of_model(loaded: Loaded, data: str, count: int) -> Examples:
    """Return the loss of a saved model on labelled rows, read with the columns of its training."""
    recipe = recipe_of_model("classification", loaded, data)
    metadata, config = read_training_metadata(loaded.directory), loaded.config
    kind = "multi_label" if config.problem_type == "multi_label_classification" else "classification"
    if config.problem_type == "regression" or config.num_labels == 1:
        kind = "regression"
    changes = {"data.task_type": kind, "data.missing_labels": metadata.missing_labels}
    if metadata.columns.wanted and metadata.columns.separator:
        changes["data.label_separator"] = metadata.columns.separator
    recipe.update_from_flattened_dict(changes)
    return examples_of_recipe(recipe, loaded.directory, count)
