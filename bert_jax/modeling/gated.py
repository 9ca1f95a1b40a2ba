"""A gated feed-forward block (Shazeer 2020, arXiv:2002.05202)."""

from collections.abc import Callable

import jax

from bert_jax.modeling.compute import Compute
from bert_jax.modeling.feed_forward import FeedForward
from bert_jax.modeling.layers import ACTIVATIONS, Dense
from bert_jax.sharding import constrain


class GatedFeedForward(FeedForward):
    """A feed-forward block whose inner states are `up` times the activation of `gate`."""

    def add_projections(self, make_up: Callable[[], Dense]) -> None:
        self.gate = make_up()

    def inner(self, x: jax.Array, compute: Compute) -> jax.Array:
        up, gate = (constrain(project(x, compute), "batch", None, "mlp") for project in (self.up, self.gate))
        return up * ACTIVATIONS[self.config.hidden_act](gate)
