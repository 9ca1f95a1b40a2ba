"""Scaled frequencies of rotary positions."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.config.part import expect
from bert_jax.config.rope_scaling import ScaledRotaryConfig
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.rotary import Rotating, rotary_speeds, rotation


class ScaledRotating(Rotating):
    """The rotation by positions with scaled frequencies."""

    def plan(self, encoder: Any, plan: AttentionPlan, length: int, position_ids: jax.Array | None) -> AttentionPlan:
        part = expect(encoder.config.positions, ScaledRotaryConfig)
        window = plan.mask.window
        speeds, scale = scaled_speeds(encoder.config.head_size, part.theta(window), part.scaling(window))
        turn = rotation(length, position_ids, speeds)
        return dataclasses.replace(plan, extra=turn if scale == 1 else jax.tree.map(lambda part: part * scale, turn))


def scaled_speeds(size: int, theta: float, scaling: Mapping[str, Any]) -> tuple[jax.Array, float]:
    """Return the inverse frequencies `[H / 2]`, and a factor of cosines and sines.

    Args:
        size: H, the width of a head.
        theta: the base.
        scaling: the values of `rope_parameters` (`ScaledRotaryConfig`); empty = not scaled.
    """
    speeds = rotary_speeds(size, theta)
    match scaling.get("rope_type"):
        case "linear":
            return speeds / scaling["factor"], 1.0
        case "yarn":
            share = _unscaled_share(size, theta, scaling)
            factor = scaling["factor"]
            return speeds / factor * (1 - share) + speeds * share, _yarn_scale(factor, scaling)
        case "llama3":
            turns = speeds * scaling["original_max_position_embeddings"] / (2 * math.pi)  # of a whole row
            low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
            share = jnp.clip((turns - low) / (high - low), 0, 1)
            return speeds / scaling["factor"] * (1 - share) + speeds * share, 1.0
    return speeds, 1.0


def _unscaled_share(size: int, theta: float, scaling: Mapping[str, Any]) -> jax.Array:
    """Return by how much yarn leaves each frequency as it is, `[H / 2]`: 1 for fast ones, 0 for slow ones."""

    def column(turns: float) -> float:  # whose point turns so many times in a row of pretraining
        row = scaling["original_max_position_embeddings"]
        return size * math.log(row / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = column(scaling.get("beta_fast") or 32), column(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    return 1 - jnp.clip((jnp.arange(size // 2, dtype=jnp.float32) - first) / (last - first or 0.001), 0, 1)


def _yarn_scale(factor: float, scaling: Mapping[str, Any]) -> float:
    """Return the factor of cosines and sines, which makes scores larger in longer rows."""

    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0

    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return scale(scaling["mscale"]) / scale(scaling["mscale_all_dim"])
    return scale(1)
