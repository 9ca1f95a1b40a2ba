"""The feed-forward block of a layer (Vaswani et al. 2017, arXiv:1706.03762, section 3.3)."""

import functools
from collections.abc import Callable

import jax
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.dropout import dropout
from bert_jax.modeling.layers import ACTIVATIONS, Dense, LayerNorm
from bert_jax.modeling.positions import Positions
from bert_jax.sharding import constrain


class FeedForward(nnx.Module):
    """A feed-forward block, `[B, S, D] -> [B, S, D]`: up, activation, down, dropout, residual, LayerNorm.

    `epsilon` is that of its LayerNorm; None = `layer_norm_eps`.
    """

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs, epsilon: float | None = None):
        self.config, size = config, config.inner_size
        dense = functools.partial(Dense, config, use_bias=config.feed_forward.mlp_bias, rngs=rngs)
        has_bias = config.feed_forward.mlp_bias and config.feed_forward.mlp_up_bias
        make_up = functools.partial(dense, size, config.intermediate_size, use_bias=has_bias)
        self.up = make_up()
        self.add_projections(make_up)
        self.down = dense(config.intermediate_size, size)
        self.layer_norm = LayerNorm(config, size, epsilon)

    def add_projections(self, make_up: Callable[[], Dense]) -> None:
        """Create the projections that a subclass adds beside `up`, to the width `F`; none here."""

    def inner(self, x: jax.Array, compute: Compute) -> jax.Array:
        """Return the input of `down`: `[B, S, D] -> [B, S, F]`, where F is `intermediate_size`."""
        return ACTIVATIONS[self.config.hidden_act](constrain(self.up(x, compute), "batch", None, "mlp"))

    def __call__(
        self, x: jax.Array, dropout_key: jax.Array | None, compute: Compute, at: Positions | None = None
    ) -> jax.Array:
        pre = self.config.norms.norm_placement == "pre"
        y = self.inner(self.layer_norm(x) if pre else x, compute)
        rate, where = self.config.hidden_dropout_prob, self.config.feed_forward.mlp_dropout_at
        if where != "output" and dropout_key is not None:
            y = dropout(y, rate, jax.random.fold_in(dropout_key, 1), at)
        x += dropout(self.down(y, compute), rate, None if where == "input" else dropout_key, at)
        return x if pre else self.layer_norm(x)
