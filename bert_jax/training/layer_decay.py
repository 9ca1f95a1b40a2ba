"""Learning rates that decrease from the top layer down to the embeddings."""

from typing import Any

import jax
import jax.numpy as jnp
import optax


def scale_by_depth(layer_decay: float) -> optax.GradientTransformation:
    """Scale updates by `layer_decay` in the top encoder layer, by its square in the next, and so on to the embeddings.

    Updates of the heads above the encoder are unchanged. As a result, fine-tuning changes lower layers less.

    Howard and Ruder 2018 (arXiv:1801.06146), section 3.2; for BERT, Clark et al. 2020 (arXiv:2003.10555), appendix B.
    """

    def update(updates: Any, state: optax.EmptyState, params: Any = None) -> tuple[Any, optax.EmptyState]:
        return _scaled_by_depth(updates, layer_decay), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def _scaled_by_depth(updates: Any, layer_decay: float) -> Any:
    if not isinstance(updates, dict):  # a leaf that belongs to no model
        return updates
    if "layers" not in updates.get("encoder", {}):  # a tree of several models
        return {name: _scaled_by_depth(model, layer_decay) for name, model in updates.items()}
    encoder = updates["encoder"]
    stacked = jax.tree.leaves(encoder["layers"])
    if not stacked:  # the layers are frozen
        return updates
    num_layers = stacked[0].shape[0]
    scales = layer_decay ** jnp.arange(num_layers, 0, -1, dtype=jnp.float32)  # [L], stacked like the layers
    layers = jax.tree.map(lambda u: u * scales.reshape(-1, *[1] * (u.ndim - 1)), encoder["layers"])
    scaled = {**updates, "encoder": {**encoder, "layers": layers}}
    if "embeddings" in updates:
        scaled["embeddings"] = jax.tree.map(lambda u: u * layer_decay ** (num_layers + 1), updates["embeddings"])
    return scaled
