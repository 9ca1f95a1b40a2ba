"""Check the values of a recipe, and resolve `auto`."""

import math

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax.errors import InputError, did_you_mean
from bert_jax.recipes.keys import KEYS, TASK_RECIPES, compares_rows
from bert_jax.recipes.reading import flatten

_LEAST, _MOST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
_EVALUATED = 32  # smallest evaluation batch if training rows are packed


def resolve(recipe: ConfigDict, platform: str = "") -> ConfigDict:
    """Check a recipe, and return a locked copy in which `auto` is replaced by the value for the platform.

    Args:
        recipe: a recipe of `bert_jax.recipes`.
        platform: `cpu`, `gpu` or `tpu`; empty means the platform that JAX uses.

    Raises:
        InputError: a value is out of its range or not one of its choices; the message names the key.
    """
    c = recipe.copy_and_resolve_references()
    if c.data.get("sets") is None:
        _choices(c)
        _ranges(c)
    else:
        from bert_jax.recipes.data_sets import check_each_set

        check_each_set(c, _choices, _ranges)
    on_cpu = (platform or jax.default_backend()) == "cpu"
    if c.dtype == "auto":
        c.dtype = "float32" if on_cpu else "bfloat16"
    if c.layers == "auto":
        c.layers = "unroll" if on_cpu else "scan"
    if c.remat == "auto":
        c.remat = "none" if on_cpu else "dots"
    if not c.eval_batch_size:
        rows = c.global_batch_size
        c.eval_batch_size = -(-_EVALUATED // rows) * rows if c.data.get("packing") else rows
    return c.lock()


def _choices(c: ConfigDict) -> None:
    if c.task not in KEYS:
        raise InputError(f"config.task: {c.task!r} is not known{did_you_mean(str(c.task), KEYS)}")
    flat = flatten(c)
    for name, key in KEYS[c.task].items():
        if name in flat and flat[name] is None and key.value is not None:
            raise InputError(f"config.{name}: expected {key.type.__name__}, found None")
    choices = {name: key.choices for name, key in KEYS[c.task].items() if flat.get(name) is not None and key.choices}
    for name, known in choices.items():
        if flat[name] not in known:
            raise InputError(f"config.{name}: {flat[name]!r} is not known{did_you_mean(flat[name], known)}")


def _ranges(c: ConfigDict) -> None:
    flat = flatten(c)
    for name, key in KEYS[c.task].items():
        value = flat.get(name)
        if isinstance(value, (int, float)) and not key.in_range(value):
            raise InputError(f"config.{name}: expected {key.limits()}, found {value}")
        if isinstance(value, float) and math.isfinite(value):
            _check_float32(name, abs(value))
    if c.optimizer.warmup_steps and c.optimizer.warmup_ratio:
        raise InputError("config.optimizer: expected warmup_steps or warmup_ratio, found both")
    if check := TASK_RECIPES[c.task].check:
        check(c)
    if c.quantization.mode and c.reduce_dtype != "float32":
        raise InputError(f"config.reduce_dtype: expected float32 with quantization.mode, found {c.reduce_dtype}")
    if c.data.get("validation_split") and c.data.dev:
        raise InputError("config.data: expected dev or validation_split, found both")
    if c.data.get("packing") and c.data.length_buckets:
        raise InputError("config.data: expected packing or length_buckets, found both")
    if c.stop_after and not (c.best_metric and c.eval_every):
        raise InputError(
            "config.stop_after: expected best_metric and eval_every to be set too, found "
            + ("eval_every 0" if c.best_metric else "no best_metric")
        )
    if compares_rows(c):
        _check_compared_rows(c)
    if c.profile and not (len(c.profile) == 2 and all(isinstance(n, int) and n > 0 for n in c.profile)):
        raise InputError(f"config.profile: expected (first step, number of steps), found {c.profile!r}")
    if "stages" in c:
        _check_stages(c)
    elif not c.num_steps and not c.num_epochs:
        raise InputError("config.num_steps: expected num_steps or num_epochs above 0, found neither")
    for batch_size in {stage[2] for stage in c.stages} if c.get("stages") else {c.global_batch_size}:
        if batch_size % c.accumulation_steps:
            raise InputError(
                f"config.accumulation_steps: expected a divisor of the batch size {batch_size}, "
                f"found {c.accumulation_steps}"
            )


def _check_float32(name: str, size: float) -> None:
    """Raise InputError for a number that float32 would round to 0 or infinity."""
    if size and not _LEAST <= size <= _MOST:
        raise InputError(f"config.{name}: expected 0 or a float32 number from {_LEAST:.3g} to {_MOST:.3g}, "
                         f"found {size:g}")  # fmt: skip


def _check_compared_rows(c: ConfigDict) -> None:
    loss = c.data.loss
    if c.accumulation_steps > 1 and c.distillation.teacher:
        raise InputError(
            f"config.accumulation_steps: expected 1 for loss {loss!r} with a teacher, whose outputs are "
            f"computed for the whole batch, found {c.accumulation_steps}; remat and shorter texts save memory too"
        )
    if c.global_batch_size < 2:
        raise InputError(f"config.global_batch_size: expected at least 2 for loss {loss!r}, found 1")


def _check_stages(c: ConfigDict) -> None:
    for stage in c.stages:
        if not (isinstance(stage, tuple) and len(stage) == 3 and all(isinstance(n, int) and n > 0 for n in stage)):
            raise InputError(
                "config.stages: expected (num_steps, sequence_length, global_batch_size), three positive integers "
                f"each, found {stage!r}"
            )
    if c.stages:
        c.num_steps = sum(stage[0] for stage in c.stages)
        c.num_epochs = 0.0
    elif not c.num_steps and not c.num_epochs:
        raise InputError("config.num_steps: expected num_steps, num_epochs or stages, found none")
