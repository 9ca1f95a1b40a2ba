"""Muon, an optimizer for matrices."""

from typing import Any

import jax
import optax

from bert_jax.training.optimizers import OptimizerSettings, Parts, by_name, in_layers


def muon(settings: OptimizerSettings) -> Parts:
    """Muon for the matrices of the encoder's layers (Jordan 2024), adamw for the rest."""
    return optax.partition({True: scale_by_muon(), False: settings.adam()}, is_layer_matrix), settings.decay()


def scale_by_muon() -> optax.GradientTransformation:
    """Replace updates by Muon's direction: momentum whose singular values are all about 1, for matrices `[L, in, out]`.

    The method is that of Jordan 2024 (https://kellerjordan.github.io/posts/muon). The direction is scaled to the
    usual norm of Adam's updates, so that one learning rate suits both (Liu et al. 2025, arXiv:2502.16982, section 2.2).
    """
    each_layer = optax.contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=2)

    def dimensions(params: Any) -> Any:
        return jax.tree.map(lambda _: each_layer, params)

    def scale(updates: Any, params: Any = None) -> Any:
        return jax.tree.map(lambda u: 0.2 * max(u.shape[1:]) ** 0.5 * u, updates)

    return optax.chain(optax.contrib.scale_by_muon(weight_dimension_numbers=dimensions), optax.stateless(scale))


def is_layer_matrix(params: Any) -> Any:
    """Return a tree of bool: True for the matrices of attention and feed-forward network in the encoder's layers."""
    return by_name(lambda names: in_layers(names) and names[-1] == "kernel", params)
