"""Rotary positions (Su et al. 2021, arXiv:2104.09864), which rotate queries and keys."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.config.part import expect
from bert_jax.config.positions import RotaryConfig
from bert_jax.modeling.attention import SelfAttention
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.stack import Beside

Rotation = tuple[jax.Array, jax.Array]  # cosines and sines `[B or 1, S, 1, H / 2]`


class RotaryAttention(SelfAttention):
    """Attention whose queries and keys are rotated by their positions, and in some models values too."""

    def split(self, projected: tuple[jax.Array, ...], plan: AttentionPlan) -> tuple[jax.Array, ...]:
        part, at = expect(self.config.positions, RotaryConfig), plan.query_positions
        query, key, value = super().split(projected, plan)
        pairs = part.rotary_interleaved
        query = rotate(query, plan.extra if at is None else jax.tree.map(at.of, plan.extra), pairs)
        key = rotate(key, plan.extra, pairs)
        return query, key, rotate(value, plan.extra, pairs) if part.rotary_value else value


@dataclasses.dataclass(frozen=True)
class Rotating(Beside):
    """The rotation by positions, which all layers with the same window share."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, Any]:
        part = expect(config.positions, RotaryConfig)
        if not part.stored_rotation:
            return {}
        speeds = rotary_speeds(config.head_size, part.rope_theta, part.rope_factor)
        return {"inverse_frequencies": nnx.Param(speeds)}

    def plan(self, encoder: Any, plan: AttentionPlan, length: int, position_ids: jax.Array | None) -> AttentionPlan:
        part = expect(encoder.config.positions, RotaryConfig)
        if part.stored_rotation:
            speeds = jax.lax.stop_gradient(encoder.inverse_frequencies[...])
        else:
            speeds = rotary_speeds(encoder.config.head_size, part.theta(plan.mask.window), part.rope_factor)
        return dataclasses.replace(plan, extra=rotation(length, position_ids, speeds))


def rotary_speeds(size: int, theta: float, factor: float = 1.0) -> jax.Array:
    """Return the inverse frequencies `[H / 2]`: the angles by which a position rotates a head's points."""
    return theta ** -(jnp.arange(0, size, 2, dtype=jnp.float32) / size) / factor


def rotation(length: int, position_ids: jax.Array | None, speeds: jax.Array) -> Rotation:
    """Return cosines and sines `[B or 1, S, 1, H / 2]` of rotary positions; `position_ids` None means 0, 1, ..."""
    places = jnp.arange(length)[None] if position_ids is None else position_ids
    angles = (places[..., None].astype(jnp.float32) * speeds)[:, :, None]
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: jax.Array, turn: Rotation, interleaved: bool) -> jax.Array:
    """Apply rotary positions to `x [B, S, N, H]`: rotate the H / 2 points of each head.

    The coordinates of the points are a head's two halves or, if `interleaved`, its even and odd columns.
    """
    wide, (cosines, sines) = x.astype(jnp.float32), turn
    a, b = (wide[..., 0::2], wide[..., 1::2]) if interleaved else jnp.split(wide, 2, axis=-1)
    points = a * cosines - b * sines, b * cosines + a * sines
    rotated = jnp.stack(points, axis=-1).reshape(x.shape) if interleaved else jnp.concatenate(points, axis=-1)
    return rotated.astype(x.dtype)
