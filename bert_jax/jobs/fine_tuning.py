"""Set up fine-tuning: open the starting model, split the rows, and build the job from tokenized rows."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np

from bert_jax.config import BertConfig
from bert_jax.conversion.load_pretrained import Loaded
from bert_jax.conversion.save_pretrained import save_pretrained
from bert_jax.data.finetuning.batching import EvalSource, TrainSource, buckets_of, few_buckets
from bert_jax.data.finetuning.columns import Columns, recipe_key
from bert_jax.data.finetuning.features import Packable, Paddable
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.errors import InputError
from bert_jax.jobs import fingerprints, setup
from bert_jax.jobs.base import Job, Task
from bert_jax.jobs.training_metadata import TrainingMetadata, write_training_metadata
from bert_jax.modeling import Bert, Params
from bert_jax.recipes import Recipe
from bert_jax.storage import PathLike
from bert_jax.tokenization import Tokenizer

if TYPE_CHECKING:
    from bert_jax.data.finetuning.packing import PackedSource

NOT_EVALUATED = "nothing is evaluated: set data.dev, or hold out rows with data.validation_split, such as 0.1"
_Row = TypeVar("_Row")
OPEN_MODEL = "open_model"  # key of a recipe: the function in place of `opened_model`, where data sets share one model


class StartingModel(NamedTuple):
    """The model that a fine-tuning recipe starts from.

    Attributes:
        loaded: the model of `init_from`, or None.
        tokenizer: the recipe's tokenizer, or that of `loaded`.
        config: the architecture, with the recipe's changes.
    """

    loaded: Loaded | None
    tokenizer: Tokenizer
    config: BertConfig


def starting_model(recipe: Recipe, head: str, read_head: str = "encoder") -> StartingModel:
    """Open the model that a resolved fine-tuning recipe starts from.

    Args:
        recipe: the resolved recipe.
        head: the task's head.
        read_head: the head to read from `init_from`.

    Raises:
        InputError: the model is missing, lacks the head or has too few positions, or no training data is named.
    """
    open_model = recipe.get(OPEN_MODEL) or opened_model
    start: StartingModel = open_model(recipe, head, read_head)
    setup.check_length(recipe.data.max_seq_length, start.config, "config.data.max_seq_length")
    if not recipe.data.train:
        raise InputError("config.data.train: expected a file or tfds:NAME:SPLIT to learn from, found nothing")
    return start


def opened_model(recipe: Recipe, head: str, read_head: str) -> StartingModel:
    """Open the model of `starting_model`, without checks of the data."""
    loaded = setup.pretrained(recipe, head if recipe.distillation.student_layers else read_head)
    tokenizer = setup.tokenizer(recipe, loaded=loaded)
    architecture = setup.config(recipe, tokenizer, loaded)
    setup.check_head(architecture, head)
    return StartingModel(loaded, tokenizer, architecture)


def negative_columns(data: Any) -> tuple[str, ...]:
    """Return the columns of negatives that a recipe's data section names, with either of its two keys."""
    return tuple(data.negative_columns) or ((data.negative_column,) if data.negative_column else ())


def check_negative_columns(data: Any) -> None:
    """Raise InputError when a data section sets both negative_columns and negative_column."""
    if data.negative_columns and data.negative_column:
        expected = f"() with negative_column {data.negative_column!r}"
        raise InputError(f"config.data.negative_columns: expected {expected}, found {data.negative_columns}")


def invalid_rows(recipe: Recipe, spec: str, noun: str = "row") -> InvalidRows:
    """Return a collector of a file's invalid rows, as `data.invalid_rows` says."""
    return InvalidRows(spec, recipe.data.invalid_rows, noun, "--config.data.invalid_rows=skip")


def hold_out(
    recipe: Recipe, rows: Sequence[_Row], classes: np.ndarray | None = None, groups: np.ndarray | None = None
) -> tuple[list[_Row], list[_Row]]:
    """Split rows into training rows and the held-out share `data.validation_split`.

    Args:
        recipe: the resolved recipe.
        rows: all n rows.
        classes: int `[n]`, for a split that is stratified by class.
        groups: int `[n]`, for a split that keeps the rows of a group together.

    Raises:
        InputError: the share leaves no row on one side.
    """
    data = recipe.data
    if not data.validation_split:
        return list(rows), []
    from bert_jax.data.finetuning import splits as splitting

    if groups is None:
        held = splitting.held_out(
            np.zeros(len(rows), int) if classes is None else classes, data.validation_split, data.split_seed
        )
        row_counts = f"{len(rows):,} rows"
    else:
        held = splitting.held_out_groups(groups, data.validation_split, data.split_seed)
        row_counts = f"{len(rows):,} rows in {len(np.unique(groups)):,} groups that stay together"
    if held.all() or not held.any():
        raise InputError(
            "config.data.validation_split: expected a share that leaves rows on both sides, "
            f"found {data.validation_split} of {row_counts}"
        )
    train_rows, dev_rows = ([row for row, out in zip(rows, held, strict=True) if out == side] for side in (False, True))
    return train_rows, dev_rows


def train_and_dev(recipe: Recipe, read: Callable[[str, InvalidRows], list[_Row]]) -> tuple[list[_Row], list[_Row]]:
    """Return training rows, and evaluation rows from `data.dev` or held out from `data.train` ([] = none).

    Args:
        recipe: the resolved recipe.
        read: function of (file, collector of its invalid rows) that returns the rows.
    """
    data = recipe.data
    rows, held = hold_out(recipe, read(data.train, invalid_rows(recipe, data.train)))
    return rows, read(data.dev, invalid_rows(recipe, data.dev)) if data.dev else held


def table_columns(recipe: Recipe) -> Columns:
    """Return the columns of texts, pairs and labels that a recipe's data section names."""
    data = recipe.data
    return Columns(
        data.text_column, data.get("pair_column", ""), data.label_column, data.has_header, delimiter=data.delimiter,
        encoding=data.encoding, option=recipe_key,
    )  # fmt: skip


def build_job(
    recipe: Recipe,
    task: Task,
    tokenizer: Tokenizer,
    loaded: Loaded | None,
    train: Paddable,
    dev: Paddable | None,
    metadata: TrainingMetadata | None = None,
    **saved: Any,
) -> Job:
    """Return the job that fine-tunes on tokenized rows.

    Args:
        recipe: the resolved recipe.
        task: the task.
        tokenizer: the tokenizer of the rows.
        loaded: the model to start from, or None.
        train: training rows.
        dev: evaluation rows, or None.
        metadata: properties of the training table to record with the model, or None.
        saved: further arguments of `save_pretrained`.
    """
    data, pad_id, model = recipe.data, tokenizer.pad_id, task.model
    source = _train_source(recipe, model.config, train, pad_id)
    eval_source = None
    if dev is not None:
        buckets = few_buckets(dev.lengths, data.max_seq_length)
        eval_source = EvalSource(dev, recipe.eval_batch_size, buckets, pad_id)

    def save(directory: PathLike, params: Params) -> None:
        save_pretrained(directory, model.config, model.head, params, tokenizer, **saved)
        if metadata is not None:
            write_training_metadata(directory, metadata)

    lengths = source.buckets if isinstance(source, TrainSource) else (data.packing,)
    return Job(
        task=task,
        tokenizer=tokenizer,
        init_params=model.init,
        pretrained=loaded.params if loaded else None,
        train_source=source,
        eval_source=eval_source,
        num_steps=recipe.num_steps or setup.steps_of_epochs(recipe.num_epochs, source.steps_per_epoch),
        save=save,
        data=functools.partial(fingerprints.of_fine_tuning, tokenizer, model.config, train, dev, lengths),
        classes=metadata.classes if metadata else {},
        notes=tuple(_notes(model, loaded, dev)),
    )


def _notes(model: Bert, loaded: Loaded | None, dev: Paddable | None) -> Iterator[str]:
    """Yield warnings for the user: parts without pretrained parameters, a run without evaluation."""
    fresh = sorted(model.abstract_params().keys() - loaded.params.keys()) if loaded else []
    if fresh:
        yield f"freshly initialised: {', '.join(fresh)}"
    if dev is None:
        yield NOT_EVALUATED


def _train_source(recipe: Recipe, config: BertConfig, train: Paddable, pad_id: int) -> "TrainSource | PackedSource":
    data, size = recipe.data, recipe.global_batch_size
    if data.get("packing"):
        setup.check_length(data.packing, config, "config.data.packing")
        longest = int(train.lengths.max())
        if data.packing < longest:
            expected = f"at least the {longest} tokens of the longest example"
            raise InputError(f"config.data.packing: expected {expected}, found {data.packing}")
        from bert_jax.data.finetuning.packing import PackedSource

        return PackedSource(cast(Packable, train), size, data.packing, pad_id, recipe.seed)
    buckets = buckets_of(data.length_buckets, train.lengths, data.max_seq_length)
    return TrainSource(train, size, buckets, pad_id, recipe.seed)
