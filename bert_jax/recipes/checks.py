"""What a recipe's values may be, and what becomes of `auto`."""

from collections.abc import Iterable

import jax
from ml_collections import ConfigDict

from bert_jax.data.bad_rows import RULES
from bert_jax.data.windows import LONG_TEXTS
from bert_jax.errors import InputError, did_you_mean
from bert_jax.recipes.keys import DTYPES, EMBEDDING_LOSSES, MASK_UNITS, OPTIMIZERS, PRETRAINING, RECIPES, SCHEDULES
from bert_jax.recipes.reading import flatten

_EVALUATED = 32  # examples a batch of evaluation at the least, where a step's rows hold several each


def resolve(recipe: ConfigDict, platform: str = "") -> ConfigDict:
    """Returns a locked copy whose values have been checked and whose `auto` settings are decided.

    Args:
        recipe: of this module.
        platform: `cpu`, `gpu` or `tpu` that it is for; empty means where JAX runs.

    Raises:
        InputError: a value is out of its range or not one of its choices, naming the key.
    """
    c = recipe.copy_and_resolve_references()
    _choices(c)
    _ranges(c)
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
    choices: dict[str, Iterable[str]] = {
        "task": RECIPES,
        "dtype": DTYPES,
        "layers": ("auto", "scan", "unroll"),
        "remat": ("auto", "none", "dots", "full"),
        "attention": ("auto", "xla", "fused", "splash", "cudnn"),
        "optimizer.name": OPTIMIZERS,
        "optimizer.schedule": SCHEDULES,
    }
    if c.task in PRETRAINING:
        choices["data.mask_unit"] = MASK_UNITS
    if c.task == "classification":
        choices["data.long_texts"] = LONG_TEXTS
        choices["data.task_type"] = ("classification", "multi_label", "regression")
        choices["data.class_weights"] = ("", "balanced") if c.data.task_type == "classification" else ("",)
    if c.task not in PRETRAINING:
        choices["data.bad_rows"] = RULES
    if c.task == "sentence_embedding":
        choices |= {"data.loss": EMBEDDING_LOSSES, "data.distance": ("euclidean", "cosine")}
    for name, known in choices.items():
        value = flatten(c)[name]
        if value not in known:
            raise InputError(f"config.{name}: {value!r} is not known{did_you_mean(value, known)}")


# Key -> (the least value, whether it is itself allowed, the limit above, which is not).
_RANGES: dict[str, tuple[float, bool, float]] = {
    "seed": (0, True, 2**31),
    "model.vocab_size": (0, True, float("inf")),
    "global_batch_size": (1, True, float("inf")),
    "accumulation_steps": (1, True, float("inf")),
    "num_steps": (0, True, 2**31),
    "num_epochs": (0, True, float("inf")),
    "optimizer.learning_rate": (0, True, float("inf")),
    "optimizer.warmup_steps": (0, True, float("inf")),
    "optimizer.warmup_ratio": (0, True, 1),
    "optimizer.weight_decay": (0, True, float("inf")),
    "optimizer.beta1": (0, True, 1),
    "optimizer.beta2": (0, True, 1),
    "optimizer.eps": (0, False, float("inf")),
    "optimizer.clip_norm": (0, True, float("inf")),
    "optimizer.layer_decay": (0, False, float("inf")),
    "optimizer.frozen_layers": (0, True, float("inf")),
    "fresh_layers": (0, True, float("inf")),
    "lora.rank": (0, True, float("inf")),
    "lora.alpha": (0, False, float("inf")),
    "optimizer.average_decay": (0, True, 1),
    "log_every": (1, True, float("inf")),
    "eval_every": (0, True, float("inf")),
    "stop_after": (0, True, float("inf")),
    "eval_batch_size": (0, True, float("inf")),
    "checkpoint_every": (0, True, float("inf")),
    "max_skipped_steps": (0, True, float("inf")),
    "warn_after_seconds": (0, True, float("inf")),
    "keep_checkpoints": (1, True, float("inf")),
    "model.generator_size": (0, False, float("inf")),
    "discriminator_weight": (0, True, float("inf")),
    "data.mask_prob": (0, False, 1),
    "data.hidden_share": (0, True, float("inf")),
    "data.random_share": (0, True, float("inf")),
    "data.static_masks": (0, True, float("inf")),
    "data.token_dropout": (0, True, 1),
    "data.packing": (0, True, float("inf")),
    "data.dev_share": (0, True, 1),
    "data.split_seed": (0, True, 2**31),
    "label_smoothing": (0, True, 1),
    "r_drop": (0, True, float("inf")),
    "data.max_predictions": (0, True, float("inf")),
    "data.sequence_length": (8, True, float("inf")),
    "data.max_seq_length": (3, True, float("inf")),
    "data.eval_batches": (0, True, float("inf")),
    "data.doc_stride": (0, True, float("inf")),
    "data.max_query_length": (1, True, float("inf")),
    "data.max_answer_length": (1, True, float("inf")),
    "data.n_best": (0, True, float("inf")),
    "data.null_threshold": (float("-inf"), False, float("inf")),
    "data.scale": (0, False, float("inf")),
    "data.label_scale": (0, False, float("inf")),
    "data.margin": (0, False, float("inf")),
}


def _ranges(c: ConfigDict) -> None:
    flat = flatten(c)
    for name, (low, low_allowed, high) in _RANGES.items():
        value = flat.get(name)
        if value is None:
            continue
        if not (low <= value < high) or (value == low and not low_allowed):  # also refuses NaN
            limits = f"at least {low}" if low_allowed else f"more than {low}"
            limits += f" and below {high}" if high != float("inf") else ""
            raise InputError(f"config.{name}: expected {limits}, found {value}")
    if c.optimizer.warmup_steps and c.optimizer.warmup_ratio:
        raise InputError("config.optimizer: expected warmup_steps or warmup_ratio, found both")
    if c.task in PRETRAINING and c.data.hidden_share + c.data.random_share > 1:
        raise InputError(
            "config.data: expected hidden_share + random_share of at most 1, "
            f"found {c.data.hidden_share} + {c.data.random_share}"
        )
    if c.get("label_smoothing") and c.data.task_type != "classification":
        raise InputError(f"config.label_smoothing: expected 0 for {c.data.task_type}, found {c.label_smoothing}")
    if c.data.get("task_type") == "multi_label" and not c.data.label_separator:
        raise InputError("config.data.label_separator: expected what stands between labels, found nothing")
    if c.data.get("dev_share") and c.data.dev:
        raise InputError("config.data: expected dev or dev_share, found both")
    if c.data.get("packing") and c.data.length_buckets:
        raise InputError("config.data: expected packing or length_buckets, found both")
    if c.stop_after and not (c.best_metric and c.eval_every):
        raise InputError("config.stop_after: expected best_metric and eval_every with it, found none")
    if c.task == "sentence_embedding" and c.data.loss == "in_batch_negatives":
        _check_in_batch_negatives(c)
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


def _check_in_batch_negatives(c: ConfigDict) -> None:
    if c.accumulation_steps > 1:
        raise InputError(
            "config.accumulation_steps: expected 1 for loss 'in_batch_negatives', as rows of other micro-batches are "
            f"no negatives, found {c.accumulation_steps}; remat and shorter texts save memory too"
        )
    if c.global_batch_size < 2:
        raise InputError("config.global_batch_size: expected at least 2 for loss 'in_batch_negatives', found 1")


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
