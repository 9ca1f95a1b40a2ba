"""Set up a distillation from a recipe: open the teacher, check that it fits the student, and wrap the job."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.data.finetuning.features import Paddable
from bert_jax.errors import InputError
from bert_jax.head_names import NAMED_CLASSIFIERS
from bert_jax.jobs.base import Job, Task
from bert_jax.jobs.distillation.settings import Distillation, check_terms
from bert_jax.jobs.distillation.task import DistillationTask
from bert_jax.jobs.distillation.teacher_outputs import TOKEN_HEAD, RowsWithOutputs, abstract_outputs, cached_outputs
from bert_jax.jobs.distillation.teachers import (
    Teacher,
    load_teacher,
    open_teacher,
    principal_embeddings,
    teacher_config,
    teacher_head,
)
from bert_jax.jobs.synthetic_rows import only_shapes
from bert_jax.modeling import Bert, Params
from bert_jax.recipes import Recipe
from bert_jax.recipes.data_sets import recipes_of_sets
from bert_jax.storage import PathLike
from bert_jax.tokenization import Tokenizer

_KEY = "config.distillation"
_LENGTHS = ("max_seq_length", "sequence_length", "packing")  # keys of recipe.data that limit the length of a row
_Init = Callable[[jax.Array], Any]
_Wrap = Callable[[Task], Task]


def with_cached_outputs(
    recipe: Recipe,
    settings: Distillation,
    model: Bert,
    tokenizer: Tokenizer,
    rows: Paddable,
    encode: Callable[[Tokenizer, TextSettings, int], Paddable],
) -> Any:
    """Add the teacher's cached outputs to training rows.

    Args:
        recipe: the resolved recipe, which names a cache.
        settings: its distillation settings.
        model: the student.
        tokenizer: the student's tokenizer.
        rows: n rows, tokenized for the student.
        encode: function of (tokenizer, text settings, max_length) that tokenizes the same n rows for the teacher.
    """
    check_terms(settings, model.head)
    load = open_teacher if only_shapes(recipe) else load_teacher
    teacher = load(settings, teacher_head(settings, model.head), model.compute)
    if of_tokens := model.head == TOKEN_HEAD:
        _check_inputs(recipe, tokenizer, teacher)
        if recipe.data.packing:
            raise InputError("config.data.packing: expected 0 with config.distillation.cache in token classification, "
                             f"found {recipe.data.packing}")  # fmt: skip
    if only_shapes(recipe):
        return RowsWithOutputs(rows, abstract_outputs(teacher.model, rows), of_tokens)
    length = min(recipe.data.max_seq_length, teacher.model.config.max_position_embeddings)
    encoded = encode(teacher.tokenizer, teacher.settings, length)
    outputs = cached_outputs(teacher, encoded, settings.cache, recipe.eval_batch_size, length)
    return RowsWithOutputs(rows, outputs, of_tokens)


def distil(job: Job, recipe: Recipe, settings: Distillation) -> Job:
    """Return the training job in which the model of `job` learns from the teacher of the recipe.

    Raises:
        InputError: the teacher is missing, lacks the head, or does not fit the student or the terms of the loss.
    """
    student = job.task.model
    if getattr(job.task, "teacher_term", None) is not None:  # the task adds the term itself, from its rows
        return job
    check_terms(settings, student.head)
    pretrained: Params = {} if job.pretrained is None else {"student": _fitting(job.pretrained, job.init_params)}
    if settings.cache:
        model, running = Bert(teacher_config(settings, student.head), student.head), None
        record = job.data
    else:
        load = open_teacher if only_shapes(recipe) else load_teacher
        teacher = load(settings, teacher_head(settings, student.head), student.compute)
        _check_inputs(recipe, job.tokenizer, teacher)
        model = running = _like_student(teacher.model, student)
        pretrained["teacher"] = teacher.params
        if settings.student_embeddings and not only_shapes(recipe):
            pretrained["student"] = principal_embeddings(teacher, student.config)

        def record() -> dict[str, Any]:
            return job.data() | {"teacher": [teacher.fingerprint]}

    wrap, init_params = _wrapped(job, settings, model, running)

    def save(directory: PathLike, params: Params) -> None:
        job.save(directory, params["student"])

    return job.with_wrapped_task(wrap, init_params=init_params, pretrained=pretrained or None, save=save, data=record)


def _wrapped(job: Job, settings: Distillation, teacher: Bert, running: Bert | None) -> tuple[_Wrap, _Init]:
    """Return the function that wraps a task, and the one that initialises the parameters of the wrapped task.

    Args:
        job: the student's training job.
        settings: the distillation settings.
        teacher: the architecture of the teacher.
        running: the teacher if it runs in every step, else None.
    """
    student = job.task.model
    settings.check(student.config, teacher.config)
    _check_outputs(settings, job.task, teacher)
    pairs = ()
    if {"hidden_states", "attentions"} & settings.weights.keys():
        pairs = settings.layer_pairs(student.config, teacher.config)
    shapes = _projection_shapes(settings, student, teacher, pairs)
    frozen = None if running is None else running.abstract_params()

    def init_params(key: jax.Array) -> Params:
        params: Params = {"student": job.init_params(key)}
        if frozen is not None:  # placeholders, which the teacher's parameters replace
            params["teacher"] = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), frozen)
        if shapes:
            make, keys = jax.nn.initializers.orthogonal(), jax.random.split(jax.random.fold_in(key, 1), len(shapes))
            params["projections"] = {
                name: {"kernel": make(k, shape)} for k, (name, shape) in zip(keys, shapes.items(), strict=True)
            }
        return params

    return lambda task: DistillationTask(task, settings, running, pairs), init_params


def _projection_shapes(settings: Distillation, student: Bert, teacher: Bert, pairs: Any) -> dict[str, tuple[int, int]]:
    """Return name -> shape of the projections to the teacher's widths, for outputs whose widths differ."""
    shapes: dict[str, tuple[int, int]] = {}
    widths = (student.config.hidden_size, teacher.config.hidden_size)
    if "hidden_states" in settings.weights and widths[0] != widths[1]:
        if any(ours < 0 for ours, _ in pairs):
            shapes["embedding_output"] = widths
        if any(ours >= 0 for ours, _ in pairs):
            shapes["hidden_states"] = widths
    if "embeddings" in settings.weights and settings.embedding_distance != "similarities":
        sizes = (_embedding_size(student), _embedding_size(teacher))
        if sizes[0] != sizes[1]:
            shapes["sentence_embedding"] = sizes
    return shapes


def _embedding_size(model: Bert) -> int:
    ids = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    output = jax.eval_shape(lambda params, ids: model.apply(params, ids), model.abstract_params(), ids)
    assert output.sentence_embedding is not None
    return output.sentence_embedding.shape[-1]


def _like_student(teacher: Bert, student: Bert) -> Bert:
    """Return the teacher with the student's `pooling_skip`, since both read the tokens of the same prompt."""
    config = teacher.config.replace(pooling_skip=student.config.pooling_skip)
    return dataclasses.replace(teacher, config=config)


def _fitting(params: Params, init_params: _Init) -> Params:
    """Return the pretrained parameters without heads whose shapes do not fit, e.g. for another number of classes."""
    expected = jax.eval_shape(init_params, jax.random.key(0))
    kept: Params = {}
    for name, tree in params.items():
        shapes = [jax.tree.map(np.shape, side) for side in (tree, expected.get(name))]
        if name in ("embeddings", "encoder") or shapes[0] == shapes[1]:
            kept[name] = tree
    return kept


def _check_inputs(recipe: Recipe, tokenizer: Any, teacher: Teacher) -> None:
    """Raise InputError when a teacher cannot read the student's tokens."""
    if tokenizer.fingerprint != teacher.tokenizer.fingerprint:
        raise InputError(
            f"{_KEY}.teacher: expected the student's vocabulary of {tokenizer.vocab_size:,} tokens, as the teacher "
            f"reads the student's tokens, found another of {teacher.tokenizer.vocab_size:,} in "
            f"{recipe.distillation.teacher}; with config.distillation.cache, a teacher of classification or of "
            "sentence embeddings may have another vocabulary"
        )
    positions = teacher.model.config.max_position_embeddings
    sections = [each.data for each in recipes_of_sets(recipe).values()] or [recipe.data]
    for name in _LENGTHS:
        if (length := max(data.get(name, 0) for data in sections)) > positions:
            raise InputError(
                f"config.data.{name}: expected at most the teacher's {positions} positions "
                f"(max_position_embeddings), found {length}"
            )


def _check_outputs(settings: Distillation, task: Any, teacher: Bert) -> None:
    """Raise InputError when the teacher's soft labels are for other classes than the student's."""
    if "soft_labels" not in settings.weights:
        return
    student = task.model
    if check_teacher := getattr(task, "check_teacher", None):
        check_teacher(teacher)
        return
    ours, theirs = student.config, teacher.config
    if student.head in NAMED_CLASSIFIERS:
        kinds = (_problem(ours), _problem(theirs))
        if kinds[0] != kinds[1]:
            raise InputError(f"{_KEY}.teacher: expected a teacher of {kinds[0]}, found one of {kinds[1]}")
        if kinds[0] != "regression" and ours.label_names != theirs.label_names:
            raise InputError(
                f"{_KEY}.teacher: expected the student's classes {', '.join(ours.label_names)}, "
                f"found {', '.join(theirs.label_names)}"
            )
    if student.head in ("masked_lm", "pretraining") and ours.vocab_size != theirs.vocab_size:
        raise InputError(
            f"config.model.vocab_size: expected the teacher's {theirs.vocab_size} for soft labels, "
            f"found {ours.vocab_size}"
        )


def _problem(config: BertConfig) -> str:
    """Return the problem type of a classifier, inferred from its number of outputs if the config does not name it."""
    if config.problem_type is None:
        return "regression" if config.num_labels == 1 else "single_label_classification"
    return config.problem_type
