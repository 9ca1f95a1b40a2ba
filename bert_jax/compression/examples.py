"""Examples from which the importance of a model's parts is computed: labelled data, or text for masked LM."""

from bert_jax.conversion.load_pretrained import Loaded
from bert_jax.conversion.record import task_of_model
from bert_jax.errors import InputError
from bert_jax.jobs.examples import Examples
from bert_jax.tasks import TaskObjects
from bert_jax.tasks.entry import load_reference


def examples_of_data(loaded: Loaded, data: str, count: int) -> Examples:
    """Return the loss of a model on data: labelled rows, or text for a model with a masked-LM head.

    Columns are those that `bert_jax.json` records, or else the defaults of the task's recipe.

    Args:
        loaded: the model, with the head that it was saved with.
        data: a file of labelled data (`data.train` of the task's recipe), or a corpus (`open_corpus`).
        count: the most examples.

    Raises:
        InputError: the model has a head without a loss, or the data are invalid.
    """
    entry = task_of_model(loaded.directory, loaded.head, "examples")
    if entry is None:
        expected = f"a model for one of {', '.join(TaskObjects('examples'))}"
        raise InputError(f"{loaded.directory}: expected {expected}, whose loss importance is computed from, found one "
                         f"for {loaded.head}; name a recipe with --config")  # fmt: skip
    examples: Examples = load_reference(entry.examples[loaded.head])(loaded, data, count)
    return examples
