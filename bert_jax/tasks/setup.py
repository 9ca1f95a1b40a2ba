"""Set up a task from a recipe: model, tokenizer, initial weights, and checks of the data."""

import functools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.config.parts import declared_settings
from bert_jax.conversion.huggingface import Loaded, load_pretrained, save_pretrained
from bert_jax.data.finetuning import splits as splitting
from bert_jax.data.finetuning.batching import EvalSource, TrainSource, buckets_of, few_buckets
from bert_jax.data.finetuning.features import Packable, Paddable
from bert_jax.data.finetuning.groups import INPUTS
from bert_jax.data.finetuning.packing import PackedSource
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.errors import InputError
from bert_jax.families import FAMILIES
from bert_jax.inference.loading import check_vocabulary
from bert_jax.modeling import Bert, Compute, Params
from bert_jax.recipes import model_config
from bert_jax.storage import PathLike
from bert_jax.tasks import fingerprints
from bert_jax.tasks.base import AbstractTask, Job, Stage, Task
from bert_jax.tasks.distillation.settings import distillation_of
from bert_jax.tasks.distillation.teachers import student_from_layers, teacher_tokenizer
from bert_jax.tasks.remembered import Remembered
from bert_jax.tasks.remembered import write_remembered as write_remembered
from bert_jax.tokenization import Tokenizer, load_tokenizer

_Row = TypeVar("_Row")
MAX_STEPS = 2**31 - 1  # the step of a state is an int32


def compute(recipe: Any) -> Compute:
    """Return the compute options of a resolved recipe."""
    names = ("dtype", "layers", "remat", "attention", "reduce_dtype")
    return Compute(**{name: recipe[name] for name in names})


def pretrained(recipe: Any, head: str) -> Loaded | None:
    """Load the model of `init_from` with `head` (initialised where the files lack it), or take layers of a teacher.

    Returns:
        The model; None with neither `init_from` nor `distillation.student_layers`.
    """
    distilled = distillation_of(recipe)
    if distilled and distilled.student_layers:
        if recipe.init_from:
            raise InputError("config.distillation.student_layers: expected () with init_from, found both")
        return student_from_layers(distilled, head)
    return load_pretrained(recipe.init_from, head, dequantize=True) if recipe.init_from else None


class StartingModel(NamedTuple):
    """The model that a fine-tuning recipe starts from.

    Attributes:
        loaded: the model of `init_from`, or None.
        tokenizer: of the recipe, else of that model.
        config: the architecture, with the changes of the recipe.
    """

    loaded: Loaded | None
    tokenizer: Tokenizer
    config: BertConfig


def starting_model(recipe: Any, head: str, read_head: str = "encoder") -> StartingModel:
    """Open the model that a resolved fine-tuning recipe starts from.

    Args:
        recipe: resolved.
        head: of the task.
        read_head: the head to read from `init_from`.

    Raises:
        InputError: it is missing, has no such head or too few positions, or the recipe names no training data.
    """
    loaded = pretrained(recipe, head if recipe.distillation.student_layers else read_head)
    found = tokenizer(recipe, loaded=loaded)
    architecture = config(recipe, found, loaded)
    check_head(architecture, head)
    check_length(recipe.data.max_seq_length, architecture, "config.data.max_seq_length")
    if not recipe.data.train:
        raise InputError("config.data.train: expected a file or tfds:NAME:SPLIT to learn from, found nothing")
    return StartingModel(loaded, found, architecture)


def heads(recipe: Any) -> tuple[str, ...]:
    """Return the heads that the family of a recipe's model has."""
    family = recipe.model.family
    if family is None and recipe.init_from:
        family = load_pretrained(recipe.init_from, "encoder").config.family
    return tuple(FAMILIES[family or "bert"].names.architectures)


def check_head(config: BertConfig, head: str) -> None:
    """Raise InputError when the family lacks the head, so that the trained model could not be saved, or when the
    quantization does not fit the model."""
    if FAMILIES[config.family].names.architecture_of(head) is None:
        hint = "; prepare the data with --objective mlm" if head == "pretraining" else ""
        raise InputError(f"config.model.family: expected a family with head {head!r}, found {config.family!r}{hint}")
    if config.quantization is not None:
        Bert(config, head).abstract_params()  # which checks it


def _check_layer_settings(recipe: Any, config: BertConfig) -> None:
    """Raise InputError when settings that count layers meet a model whose layers are in two stacks."""
    settings = {"optimizer.frozen_layers": 0, "optimizer.layer_decay": 1.0, "fresh_layers": 0}
    for key, expected in settings.items() if any(config.has_experts) else ():
        value = operator.attrgetter(key)(recipe)
        if value != expected:
            raise InputError(f"config.{key}: expected {expected} for a model with experts, found {value}")


def tokenizer(recipe: Any, data: str = "", loaded: Loaded | None = None) -> Tokenizer:
    """Load the tokenizer of a recipe: its own, that of directory `data`, of the loaded model, or of the teacher."""
    distilled = distillation_of(recipe)
    place = recipe.tokenizer or data or (loaded.directory if loaded else "")
    if not place and distilled:
        return teacher_tokenizer(distilled)
    if not place:
        raise InputError("config.tokenizer: expected a tokenizer, or a model in config.init_from, found neither")
    found = load_tokenizer(place)
    return loaded.settings.tokenizer(found) if loaded is not None and place == loaded.directory else found


def config(recipe: Any, tokenizer: Tokenizer, loaded: Loaded | None) -> BertConfig:
    """Return the architecture of a recipe: of `loaded` or `model.size`, changed by the other `model` fields.

    Raises:
        InputError: the fields do not fit together, the vocabulary does not fit the word embedding, or the fields change
            the shapes of the parameters of `loaded`.
    """
    sizes = {} if loaded or recipe.model.vocab_size else {"vocab_size": tokenizer.vocab_size}
    ids = {"pad_token_id": tokenizer.pad_id}
    if "sep_token_id" in FAMILIES[recipe.model.family or (loaded.config.family if loaded else "bert")].keys:
        ids["sep_token_id"] = tokenizer.sep_id
    config = model_config(recipe, loaded.config if loaded else None, **ids, **sizes)
    if config.setting("token_dropout") and config.setting("mask_token_id") != tokenizer.mask_id:
        if loaded:
            raise InputError(
                f"config.tokenizer: expected the mask token to have id {config.setting('mask_token_id')}, as "
                f"mask_token_id of the model says, found {tokenizer.mask_id}"
            )
        config = config.replace(mask_token_id=tokenizer.mask_id)
    check_vocabulary(tokenizer, config, recipe.tokenizer or recipe.init_from or "config.model.vocab_size")
    if loaded:
        _check_shapes(loaded, config)
    _check_layer_settings(recipe, config)
    config.to_hf()  # raises now, and not when the trained model is saved
    return config


def config_without_data(recipe: Any, head: str) -> BertConfig:
    """Return the architecture of a recipe without data, by default with the paper's vocabulary size."""
    loaded = pretrained(recipe, head)
    if loaded or recipe.tokenizer or recipe.distillation.teacher:
        return config(recipe, tokenizer(recipe, loaded=loaded), loaded)
    return model_config(recipe)


def _check_shapes(loaded: Loaded, config: BertConfig) -> None:
    """Raise InputError when a recipe changes the shapes or the meaning of the parameters of init_from."""
    settings_before, settings_after = loaded.config.settings(), config.settings()
    for name in (name for name, declared in declared_settings(BertConfig).items() if declared.shapes):
        before, after = settings_before.get(name), settings_after.get(name)
        if before != after:
            raise InputError(f"config.model.{name}: expected {before}, as in the model of init_from, found {after}")


def check_length(length: int, config: BertConfig, key: str) -> None:
    """Raise InputError when sequences of `length` tokens, set by recipe key `key`, are longer than the positions."""
    if length > config.max_position_embeddings:
        raise InputError(
            f"{key}: expected at most the model's {config.max_position_embeddings} positions "
            f"(max_position_embeddings), found {length}"
        )


def check_room(config: BertConfig, longest: int, what: str) -> None:
    """Raise InputError when there is no room for `longest` tokens with global attention, those of `what`."""
    if 0 < config.setting("max_global_tokens", 0) < longest:
        raise InputError(
            f"config.model.max_global_tokens: expected at least {longest}, the tokens of {what}, "
            f"found {config.setting('max_global_tokens', 0)}"
        )


def negative_columns(data: Any) -> tuple[str, ...]:
    """Return the columns of negatives that a recipe's data section names, in either of its keys."""
    return tuple(data.negative_columns) or ((data.negative_column,) if data.negative_column else ())


def check_negative_columns(data: Any) -> None:
    """Raise InputError when a data section names negatives in both of its keys."""
    if data.negative_columns and data.negative_column:
        expected = f"() with negative_column {data.negative_column!r}"
        raise InputError(f"config.data.negative_columns: expected {expected}, found {data.negative_columns}")


def invalid_rows(recipe: Any, spec: str, noun: str = "row") -> InvalidRows:
    """What becomes of the rows of a file of a recipe that do not fit."""
    return InvalidRows(spec, recipe.data.invalid_rows, noun, "--config.data.invalid_rows=skip")


def hold_out(
    recipe: Any, rows: Sequence[_Row], classes: np.ndarray | None = None, groups: np.ndarray | None = None
) -> tuple[list[_Row], list[_Row]]:
    """Split rows into training rows and the held-out share `data.dev_share`.

    Args:
        recipe: the resolved recipe.
        rows: all n rows.
        classes: int `[n]`, for a split that is stratified by class.
        groups: int `[n]`, for a split that keeps the rows of a group together.

    Raises:
        InputError: the share leaves no row on one side.
    """
    data = recipe.data
    if not data.dev_share:
        return list(rows), []
    if groups is None:
        held = splitting.held_out(
            np.zeros(len(rows), int) if classes is None else classes, data.dev_share, data.split_seed
        )
        found = f"{len(rows):,} rows"
    else:
        held = splitting.held_out_groups(groups, data.dev_share, data.split_seed)
        found = f"{len(rows):,} rows in {len(np.unique(groups)):,} groups that stay together"
    if held.all() or not held.any():
        raise InputError(
            f"config.data.dev_share: expected a share that leaves rows on both sides, found {data.dev_share} of {found}"
        )
    learned, scored = ([row for row, out in zip(rows, held, strict=True) if out == side] for side in (False, True))
    return learned, scored


def fine_tuning(
    recipe: Any,
    task: Task,
    tokenizer: Tokenizer,
    loaded: Loaded | None,
    train: Paddable,
    dev: Paddable | None,
    remembered: Remembered | None = None,
    **saved: Any,
) -> Job:
    """Return the training job of fine-tuning on tokenized rows.

    Args:
        recipe: the resolved recipe.
        task: the task.
        tokenizer: the tokenizer of the rows.
        loaded: the model to start from, or None.
        train: training rows.
        dev: evaluation rows, or None.
        remembered: properties of the training table to record with the model, or None.
        saved: further arguments of `save_pretrained`.
    """
    data, pad_id, model = recipe.data, tokenizer.pad_id, task.model
    source = _train_source(recipe, model.config, train, pad_id)
    eval_source = None
    if dev is not None:
        few = few_buckets(dev.lengths, data.max_seq_length)
        eval_source = EvalSource(dev, recipe.eval_batch_size, few, pad_id)

    def save(directory: PathLike, params: Params) -> None:
        save_pretrained(directory, model.config, model.head, params, tokenizer, **saved)
        if remembered is not None:
            write_remembered(directory, remembered)

    lengths = source.buckets if isinstance(source, TrainSource) else (data.packing,)
    return Job(
        task=task,
        tokenizer=tokenizer,
        init_params=model.init,
        pretrained=loaded.params if loaded else None,
        train_source=source,
        eval_source=eval_source,
        num_steps=recipe.num_steps or steps_of_epochs(recipe.num_epochs, source.steps_per_epoch),
        save=save,
        data=functools.partial(fingerprints.of_fine_tuning, tokenizer, model.config, train, dev, lengths),
        classes=remembered.classes if remembered else {},
        notes=tuple(_notes(model, loaded, dev)),
    )


def _notes(model: Bert, loaded: Loaded | None, dev: Paddable | None) -> Iterator[str]:
    """Yield what a user may not expect: parts without trained parameters, and a run that evaluates nothing."""
    fresh = sorted(model.abstract_params().keys() - loaded.params.keys()) if loaded else []
    if fresh:
        yield f"freshly initialised: {', '.join(fresh)}"
    if dev is None:
        yield "nothing is evaluated: there is no data.dev, and data.dev_share, such as 0.1, holds out no rows"


def steps_of_epochs(epochs: float, steps_per_epoch: float) -> int:
    """Return the number of steps of passes over the data. Raises InputError above 2^31 - 1 steps."""
    steps = epochs * steps_per_epoch
    if not steps < MAX_STEPS:
        most = MAX_STEPS / steps_per_epoch
        raise InputError(
            f"config.num_epochs: expected fewer than {most:.4g}, that is, 2^31 steps of this data, found {epochs:g}"
        )
    return math.ceil(steps)


def _train_source(recipe: Any, config: BertConfig, train: Paddable, pad_id: int) -> TrainSource | PackedSource:
    data, size = recipe.data, recipe.global_batch_size
    if data.get("packing"):
        check_length(data.packing, config, "config.data.packing")
        longest = int(train.lengths.max())
        if data.packing < longest:
            expected = f"at least the {longest} tokens of the longest example"
            raise InputError(f"config.data.packing: expected {expected}, found {data.packing}")
        return PackedSource(cast(Packable, train), size, data.packing, pad_id, recipe.seed)
    buckets = buckets_of(data.length_buckets, train.lengths, data.max_seq_length)
    return TrainSource(train, size, buckets, pad_id, recipe.seed)


def abstract_groups(recipe: Any, task: Any, texts: int, labels: jax.ShapeDtypeStruct) -> AbstractTask:
    """Return the abstract task of a recipe whose rows are groups of texts of `data.max_seq_length` tokens.

    Args:
        recipe: a resolved recipe.
        task: its task.
        texts: number of texts in a row.
        labels: shape and dtype of the labels of one row, `[1, ...]`.
    """
    ids = jax.ShapeDtypeStruct((1, texts, recipe.data.max_seq_length), jnp.int32)
    weight = jax.ShapeDtypeStruct((1,), jnp.float32)
    row = dict.fromkeys(INPUTS, ids) | {"labels": labels, "example_weights": weight}
    return AbstractTask(task, task.model.init, (Stage.of_rows(recipe.num_steps, recipe.global_batch_size, row),))


def abstract_task_of(job: Job) -> AbstractTask:
    """Return the abstract task of a fine-tuning job, with a stage for each padded length (one for packed rows)."""
    source = job.train_source
    if isinstance(source, PackedSource):
        stage = Stage.of_rows(job.num_steps, source.batch_size, source.batch(0, slice(0, 1)))
        return AbstractTask(job.task, job.init_params, (stage,))
    assert isinstance(source, TrainSource)
    stages = tuple(
        Stage.of_rows(
            round(job.num_steps * count / source.steps_per_epoch),
            source.batch_size,
            source.features.pad(np.zeros(1, int), length, 0),
        )
        for length, count in source.shapes().items()
    )
    return AbstractTask(job.task, job.init_params, stages)
