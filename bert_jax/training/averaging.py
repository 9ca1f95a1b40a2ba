"""A moving average of the parameters."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class AverageState(NamedTuple):
    """The state of `average_parameters`."""

    steps: jax.Array
    average: Any


def average_parameters(decay: float) -> optax.GradientTransformation:
    """Keep an exponential moving average of the parameters; the updates are unchanged. Must be last in a chain.

    The averaged states are `1 / (1 - decay)` steps old on average, but at most about a quarter of the steps so far:
    early in a run, the state of step s has the weight s**2 (Shamir and Zhang 2013, arXiv:1212.1824, polynomial decay).
    Adam's updates are about as large as the learning rate however small the gradient is, so the states of single steps
    scatter around a better mean (Polyak and Juditsky 1992; Izmailov et al. 2018, arXiv:1803.05407).
    """

    def init(params: Any) -> AverageState:
        return AverageState(jnp.zeros([], jnp.int32), jax.tree.map(jnp.zeros_like, params))

    def update(updates: Any, state: AverageState, params: Any = None) -> tuple[Any, AverageState]:
        kept = jnp.minimum(decay, state.steps / (state.steps + 3.0))  # 0 at first: the initial zeros have no weight
        average = optax.incremental_update(optax.apply_updates(params, updates), state.average, 1 - kept)
        return updates, AverageState(optax.safe_increment(state.steps), average)

    return optax.GradientTransformation(init, update)
