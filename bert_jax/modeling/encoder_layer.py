"""A layer of the encoder."""

import functools
from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.positions import Positions
from bert_jax.modeling.registry import attention_of, feed_forward_of
from bert_jax.sharding import constrain


class EncoderLayer(nnx.Module):
    """One transformer layer: an attention block, then a feed-forward block `mlp`, or the block of `make_last_block`."""

    def __init__(self, config: BertConfig, rngs: nnx.Rngs, make_last_block: Callable[..., nnx.Module] | None = None):
        self.attention = attention_of(config)(config, rngs=rngs)
        self.add_blocks(config, rngs)
        if make_last_block is None:
            epsilon = config.norms.embedding_mlp_norm_eps
            make_last_block = functools.partial(feed_forward_of(config), config, epsilon=epsilon)
        self.mlp: Any = make_last_block(rngs=rngs)

    def add_blocks(self, config: BertConfig, rngs: nnx.Rngs) -> None:
        """Create the further blocks of a subclass."""

    def __call__(
        self,
        x: jax.Array,  # [B, S, D]
        plan: AttentionPlan,
        skip_norm: jax.Array | bool | None,
        dropout_key: jax.Array | None,
        compute: Compute,
    ) -> tuple[jax.Array, jax.Array | None, tuple[jax.Array, ...]]:
        """Return `[B, S, D]` (`[B, P, D]` with query positions), attention probabilities or None, and projections."""
        keys = (None, None, None) if dropout_key is None else jax.random.split(dropout_key, 3)
        x, probabilities, projected = self.attention(x, plan, skip_norm, (keys[0], keys[1]), compute)
        x = self.before_last_block(constrained(x, plan), compute, plan.query_positions)
        return constrained(self.mlp(x, keys[2], compute, plan.query_positions), plan), probabilities, projected

    def before_last_block(self, x: jax.Array, compute: Compute, at: Positions | None) -> jax.Array:
        """Return the input of the last block: the output of attention, or of further blocks."""
        return x


def constrained(x: jax.Array, plan: AttentionPlan) -> jax.Array:
    """Place a hidden state `[B, S or P, D]` on the mesh; P query positions are not split over devices."""
    return constrain(x, "batch", "length" if plan.query_positions is None else None, "embed")
