"""The loss of a saved sentence-embedding model on labelled data."""

from bert_jax.conversion.load_pretrained import Loaded
from bert_jax.data.finetuning.columns import Columns
from bert_jax.jobs.examples import Examples, examples_of_recipe, recipe_of_model
from bert_jax.tasks.embedding.text_pairs import read_pairs


def examples_of_model(loaded: Loaded, data: str, count: int) -> Examples:
    """Return the loss of a saved model on labelled rows, read with the columns of its training."""
    recipe = recipe_of_model("sentence_embedding", loaded, data)
    named = recipe.data
    if named.label_column:
        columns = Columns(
            named.text_column, named.pair_column, named.label_column, named.has_header, delimiter=named.delimiter
        )
        scale = max((abs(float(row[columns.label])) for _, row in read_pairs(data, columns)), default=1.0)
        recipe.update_from_flattened_dict({"data.loss": "cosine", "data.label_scale": scale or 1.0})
    return examples_of_recipe(recipe, loaded.directory, count)
