"""Selected positions of a sequence, where not all are computed or read."""

import dataclasses

import jax
import jax.numpy as jnp


def gather_positions(x: jax.Array, positions: jax.Array) -> jax.Array:
    """`x [B, S, ...]` at `positions [B, P]` -> `[B, P, ...]`; of a B of 1, the same for every row."""
    x = jnp.broadcast_to(x, (positions.shape[0], *x.shape[1:]))
    return jnp.take_along_axis(x, positions.reshape(*positions.shape, *[1] * (x.ndim - 2)), axis=1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Positions:
    """Those at which a layer is computed.

    Attributes:
        index: `[B, P]` int32.
        length: S, of the whole sequence.
    """

    index: jax.Array
    length: int = dataclasses.field(metadata={"static": True})

    def of(self, x: jax.Array) -> jax.Array:
        """`[B or 1, S, ...] -> [B, P, ...]`."""
        return gather_positions(x, self.index)
