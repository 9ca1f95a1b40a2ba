"""A model's loss on examples of its task, used to compute the importance of the model's parts."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bert_jax import jobs, recipes, storage
from bert_jax.conversion.load_pretrained import Loaded
from bert_jax.conversion.model_tokenizer import open_tokenizer
from bert_jax.conversion.open_checkpoint import open_model
from bert_jax.data.batches import Batch
from bert_jax.errors import InputError
from bert_jax.jobs.base import Task
from bert_jax.jobs.training_metadata import read_training_metadata
from bert_jax.modeling import Params

EXAMPLE_BATCH = 8  # examples per batch
_LONGEST = 128  # maximum number of tokens in an example


class Examples(NamedTuple):
    """A model's loss on examples.

    Attributes:
        task: the task, with the model.
        params: the parameters of the model.
        batches: the batches; they can be read only once.
    """

    task: Task
    params: Params
    batches: Iterable[Batch]


def examples_of_recipe(recipe: recipes.Recipe, model_dir: storage.PathLike, count: int) -> Examples:
    """Return the loss of a recipe's task, with the parameters of a model directory, on the recipe's training data.

    Args:
        recipe: a recipe with training data.
        model_dir: the model, saved with the head of the recipe's task.
        count: maximum number of examples.

    Raises:
        InputError: as `jobs.build`; or the model was saved with another head or other classes, or is an ELECTRA with
            its generator.
    """
    if recipe.data.get("sets"):
        raise InputError(f"config.data.sets: expected one data set of examples, found {', '.join(recipe.data.sets)}")
    recipe = starting_from(recipe, model_dir)
    recipe.distillation = recipes.RECIPES[recipe.task]().distillation  # a recipe without distillation
    changes: dict[str, Any] = {"lora.rank": 0}
    if "stages" not in recipe:
        changes |= {"global_batch_size": EXAMPLE_BATCH, "accumulation_steps": 1, "data.dev": "",
                    "data.validation_split": 0.0, "best_metric": "", "stop_after": 0}  # fmt: skip
        longest = recipe.data.max_seq_length
        # Only three padded lengths, since each one is compiled.
        changes["data.length_buckets"] = tuple(-(-longest // part) for part in (4, 2, 1))
        if "packing" in recipe.data:
            changes["data.packing"] = 0
    recipe.update_from_flattened_dict(changes)
    job = jobs.build(recipes.resolve(recipe))
    if len(job.task.model.models) > 1 or job.pretrained is None:
        raise InputError(f"config.task: expected a task of one pretrained model, found {recipe.task}")
    source = job.train_source
    steps = getattr(source, "steps_per_epoch", job.num_steps)
    return Examples(job.task, job.pretrained, _first(map(source.batch, range(steps)), count))


def starting_from(recipe: recipes.Recipe, model_dir: storage.PathLike) -> Any:
    """Return a copy of a recipe that starts from a model directory, and keeps the model's head and order of classes."""
    changed = recipe.copy_and_resolve_references()
    changed.unlock()
    changed.init_from = str(model_dir)
    if not recipes.is_pretraining(changed):
        changed.tokenizer = ""  # the tokenizer of the model, which may have been pruned
    if "keep_head" in changed:
        changed.keep_head = True
    if "label_names" in changed.data and not changed.data.label_names and changed.data.get("task_type") != "regression":
        with open_model(str(model_dir), None, "") as opened:
            changed.data.label_names = opened.model.config.label_names
    return changed.lock()


def _first(batches: Iterable[Batch], count: int) -> Iterator[Batch]:
    """Yield batches until they have `count` examples; the last one is cut."""
    for batch in batches:
        rows = batch["input_ids"].shape[0]
        yield {name: array[:count] for name, array in batch.items()}
        count -= rows
        if count <= 0:
            return


def recipe_of_model(task: str, loaded: Loaded, data: str, longest: int = _LONGEST) -> Any:
    """Return a recipe that trains a saved model on data, with the columns recorded in the model's directory.

    Args:
        task: value of the recipe's `task`.
        loaded: the model, with the head that it was saved with.
        data: `data.train` of the recipe.
        longest: maximum number of tokens in an example.
    """
    recipe, columns = recipes.RECIPES[task](), read_training_metadata(loaded.directory).columns
    changes: dict[str, Any] = {"data.train": data, "data.max_seq_length": example_length(loaded, longest)}
    changes["num_epochs"] = 1.0
    if columns.wanted:
        named = {"text_column": columns.text, "pair_column": columns.pair, "label_column": columns.label,
                 "has_header": columns.has_header, "delimiter": columns.delimiter}  # fmt: skip
        changes |= {f"data.{name}": value for name, value in named.items() if name in recipe.data}
    recipe.update_from_flattened_dict(changes)
    return recipe


def example_length(loaded: Loaded, longest: int = _LONGEST) -> int:
    """Return the maximum length of a model's examples: `longest`, or the model's own limit if that is lower."""
    return min(loaded.settings.longest(loaded.config.max_position_embeddings, open_tokenizer(loaded)), longest)
