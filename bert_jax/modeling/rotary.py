"""Rotary positions (Su et al. 2021, arXiv:2104.09864), which rotate queries and keys."""

import jax
import jax.numpy as jnp


def rotary_speeds(size: int, theta: float, factor: float = 1.0) -> jax.Array:
    """Return the angles `[H / 2]` by which a position rotates the points of a head."""
    return theta ** -(jnp.arange(0, size, 2, dtype=jnp.float32) / size) / factor


def rotation(length: int, position_ids: jax.Array | None, speeds: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return cosines and sines `[B or 1, S, 1, H / 2]` of rotary positions; `position_ids` None means 0, 1, ..."""
    places = jnp.arange(length)[None] if position_ids is None else position_ids
    angles = (places[..., None].astype(jnp.float32) * speeds)[:, :, None]
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: jax.Array, turn: tuple[jax.Array, jax.Array] | None, interleaved: bool) -> jax.Array:
    """Apply rotary positions to `x [B, S, N, H]`, where a head has the coordinates of H / 2 points.

    These are its two halves, or if `interleaved` its even and its odd columns.
    """
    if turn is None:
        return x
    wide, (cosines, sines) = x.astype(jnp.float32), turn
    a, b = (wide[..., 0::2], wide[..., 1::2]) if interleaved else jnp.split(wide, 2, axis=-1)
    points = a * cosines - b * sines, b * cosines + a * sines
    rotated = jnp.stack(points, axis=-1).reshape(x.shape) if interleaved else jnp.concatenate(points, axis=-1)
    return rotated.astype(x.dtype)
