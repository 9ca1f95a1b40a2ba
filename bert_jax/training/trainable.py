"""Choose the trainable parameters: all, those above the lowest layers, or those of an adapter."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

_LEARNS, _STAYS = "learns", "stays"


def freeze(
    transform: optax.GradientTransformation, *, layers: int, embeddings: bool, base: bool
) -> optax.GradientTransformation:
    """An optimizer under which some parameters stay as they are, to the bit; it keeps no moments of whole ones.

    What stays has no part in the norm of the gradient, and does not decay.

    Args:
        transform: of what learns.
        layers: how many of the encoder's lowest layers stay, and with them the embeddings.
        embeddings: whether the embeddings stay in any case.
        base: whether the parameters are those of `bert_jax.tasks.lora`, of which embeddings and encoder stay.
    """

    def labels(params: Any) -> Any:
        def label(path: Any, _: Any) -> str:
            names = {str(getattr(entry, "key", entry)) for entry in path}
            frozen = {"embeddings"} if layers or embeddings else set()
            if base and "base" in names:
                frozen = {"embeddings", "encoder"}
            return _STAYS if names & frozen else _LEARNS

        return jax.tree_util.tree_map_with_path(label, params)

    if layers:
        still = hold_layers(layers)
        transform = optax.chain(still, transform, still)  # gradients, and what weight decay adds
    return optax.partition({_LEARNS: transform, _STAYS: optax.set_to_zero()}, labels)


def hold_layers(count: int) -> optax.GradientTransformation:
    """Sets the updates of the encoder's lowest layers to 0."""

    def hold(path: Any, update: jax.Array) -> jax.Array:
        if "encoder/layers/" not in jax.tree_util.keystr(path, simple=True, separator="/"):
            return update
        # So written, the compiler sees that the gradients of these layers are not needed.
        return jnp.concatenate([jnp.zeros_like(update[:count]), update[count:]])

    return optax.stateless(lambda updates, params: jax.tree_util.tree_map_with_path(hold, updates))
