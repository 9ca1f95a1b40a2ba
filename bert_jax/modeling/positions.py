"""Selected positions of a sequence, for layers that do not compute all positions, and sinusoids of positions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np


def gather_positions(x: jax.Array, positions: jax.Array) -> jax.Array:
    """Gather `x [B or 1, S, ...]` at `positions [B, P]` to `[B, P, ...]`."""
    x = jnp.broadcast_to(x, (positions.shape[0], *x.shape[1:]))
    return jnp.take_along_axis(x, positions.reshape(*positions.shape, *[1] * (x.ndim - 2)), axis=1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Positions:
    """The query positions of a layer.

    Attributes:
        index: the positions, `[B, P]` int32.
        length: S, the length of the sequence.
    """

    index: jax.Array
    length: int = dataclasses.field(metadata={"static": True})

    def of(self, x: jax.Array) -> jax.Array:
        """Gather `x` at these positions: `[B or 1, S, ...] -> [B, P, ...]`."""
        return gather_positions(x, self.index)


def sinusoids(length: int, features: int) -> np.ndarray:
    """Return fixed position embeddings `[length, features]`: sines in even columns, cosines in odd columns.

    Vaswani et al. 2017 (arXiv:1706.03762), section 3.5.
    """
    angles = np.arange(length)[:, None] / 10000 ** (2 * (np.arange(features) // 2) / features)[None]
    return np.where(np.arange(features) % 2 == 0, np.sin(angles), np.cos(angles)).astype(np.float32)


def alibi_slopes(heads: int) -> np.ndarray:
    """Return the slope of each head in ALiBi, float32 `[N]` (Press et al. 2021, arXiv:2108.12409, section 3).

    For N heads, where N is a power of 2, the slopes are the first N powers of 2^(-8 / N). For other N, they are the
    slopes for the next lower power of 2, followed by every second slope for the next higher one.
    """
    below = 1 << (heads.bit_length() - 1)
    slopes = 2.0 ** (-8 * np.arange(1, below + 1) / below)
    above = 2.0 ** (-8 * np.arange(1, 2 * below + 1, 2) / (2 * below))
    return np.concatenate([slopes, above[: heads - below]]).astype(np.float32)
