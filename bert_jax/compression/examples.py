"""Examples from which the importance of a model's parts is computed: labelled data, or text for masked LM."""

from bert_jax.conversion.load_pretrained import Loaded
from bert_jax.conversion.record import task_of_model
from bert_jax.errors import InputError
from bert_jax.jobs.examples import Examples
from bert_jax.tasks import TaskObjects
from bert_jax.tasks.entry import load_reference


def examples_of_data(loaded: Loaded, data: str, count: int) -> Examples:
    """Return a model and the batches on which to compute its loss: of labelled rows, or of text for masked LM.

    The column names are those that `bert_jax.json` records, or else the defaults of the task's recipe.

    Args:
        loaded: the model, with the head that it was saved with.
        data: a file of labelled data (`data.train` of the task's recipe), or a corpus (`open_corpus`).
        count: the maximum number of examples.

    Raises:
        InputError: the model has a head without a loss, or the data are invalid.
    """
    entry = task_of_model(loaded.directory, loaded.head, "examples")
    if entry is None:
        expected = f"a model for one of {', '.join(TaskObjects('examples'))}"
        raise InputError(f"{loaded.directory}: expected {expected}, as importance is computed from the loss, found "
                         f"one for {loaded.head}; name a recipe with --config")  # fmt: skip
    examples: Examples = load_reference(entry.examples[loaded.head])(loaded, data, count)
    return examples
