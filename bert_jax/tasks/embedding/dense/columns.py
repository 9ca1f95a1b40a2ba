"""The columns of a recipe of sentence embeddings, and the checks of its keys, which depend on the loss."""

import dataclasses
from typing import Any

from bert_jax.data.finetuning.columns import Columns, recipe_key
from bert_jax.errors import InputError
from bert_jax.jobs import fine_tuning
from bert_jax.jobs.teaching import distillation_of
from bert_jax.recipes import Recipe
from bert_jax.tasks.embedding.dense import class_batches
from bert_jax.tasks.embedding.dense.recipe import EMBEDDING_LOSSES


def pair_columns(recipe: Recipe) -> tuple[Columns, Columns]:
    """Return the columns of training, which depend on the loss, and those of evaluation."""
    data = recipe.data
    negative = fine_tuning.negative_columns(data)
    pairs = Columns(
        data.text_column, data.pair_column, has_header=data.has_header, delimiter=data.delimiter,
        encoding=data.encoding, option=recipe_key,
    )  # fmt: skip
    labelled = dataclasses.replace(pairs, label=data.label_column)
    with_negatives = dataclasses.replace(pairs, more=negative)
    scored = labelled if has_similarities(data) else with_negatives
    if data.loss == "margin_mse":
        return dataclasses.replace(labelled, more=negative), scored
    if EMBEDDING_LOSSES[data.loss].classes:
        return (of_classes := dataclasses.replace(labelled, pair="")), of_classes
    if EMBEDDING_LOSSES[data.loss].single_texts:
        pair = (data.pair_column,) if data.pair_column and data.loss == "none" else ()
        first, *more = data.train_columns or (data.text_column, *pair)
        return dataclasses.replace(pairs, text=first, pair="", more=tuple(more)), scored
    return (labelled if EMBEDDING_LOSSES[data.loss].labels else with_negatives, scored)


def has_similarities(data: Any) -> bool:
    """Return whether evaluation has labels: similarities of pairs, not differences of scores."""
    return bool(data.label_column) and data.loss != "margin_mse" and not EMBEDDING_LOSSES[data.loss].classes


def check_embedding_keys(recipe: Recipe) -> None:
    """Raise InputError when keys of a resolved recipe do not fit its loss."""
    data = recipe.data
    needs = EMBEDDING_LOSSES[data.loss]
    if data.loss == "none" and distillation_of(recipe) is None:
        raise InputError("config.data.loss: expected 'none' only with config.distillation.teacher, found no teacher")
    if data.loss == "simcse" and recipe.distillation.teacher:
        teacher = recipe.distillation.teacher
        raise InputError(f"config.distillation.teacher: expected none for loss 'simcse', found {teacher}")
    if data.loss in ("simcse", "tsdae") and len(data.train_columns) > 1:
        expected = f"one column for loss {data.loss!r}"
        raise InputError(f"config.data.train_columns: expected {expected}, found {data.train_columns}")
    for name in ("query_prefix", "document_prefix") if data.loss in ("simcse", "tsdae") else ():
        if data[name] is not None:
            expected = f"no value for loss {data.loss!r}, whose texts are neither queries nor documents"
            raise InputError(f"config.data.{name}: expected {expected}, found {data[name]!r}")
    if data.train_columns and not needs.single_texts:
        raise InputError(f"config.data.train_columns: expected () for loss {data.loss!r}, found {data.train_columns}")
    if needs.single_texts and data.validation_split:
        raise InputError(f"config.data.validation_split: expected 0 for loss {data.loss!r}, which trains on single "
                         f"texts, found {data.validation_split}; use data.dev")  # fmt: skip
    if needs.single_texts and not data.dev:
        return
    if data.negative_columns and (data.negative_column or needs.negatives):
        expected = "() with negative_column" if data.negative_column else f"negative_column for loss {data.loss!r}"
        raise InputError(f"config.data.negative_columns: expected {expected}, found {data.negative_columns}")
    if needs.classes:
        class_batches.check_negatives(data)
    if data.guide and (data.loss != "in_batch_negatives" or recipe.distillation.teacher):
        found = f"loss {data.loss!r}" + (" and a teacher" if recipe.distillation.teacher else "")
        raise InputError(f"config.data.guide: expected loss 'in_batch_negatives' and no teacher, found {found}")
    for name in ("text_column", *([] if needs.classes else ["pair_column"]), *needed_columns(data)):
        if not data[name]:
            raise InputError(f"config.data.{name}: expected a column, which loss {data.loss!r} needs, found none")


def needed_columns(data: Any) -> tuple[str, ...]:
    """Return the keys of columns that a loss needs in addition to those of a pair."""
    needs = EMBEDDING_LOSSES[data.loss]
    needed = {"label_column": needs.labels, "negative_column": needs.negatives, "passages_column": needs.lists}
    return tuple(name for name, is_needed in needed.items() if is_needed)
