"""Weights that devices exchange in bfloat16 (`Compute.reduce_dtype`): gathered once a step, with bfloat16 gradients."""

import re
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from bert_jax import sharding
from bert_jax.lazy import LazyModule
from bert_jax.modeling.compute import GATHERED, Compute

if TYPE_CHECKING:
    from bert_jax import parameter_sharding
else:  # imported on first use: needed only for parameters on a mesh
    parameter_sharding = LazyModule("bert_jax.parameter_sharding")

KERNELS = r"(?<!router)/kernel"  # a layer's kernels, except the router's, which stays float32
TABLES = r"(word_embeddings|mlm/decoder)/embedding"


def exchanged(params: Any, pattern: str, compute: Compute) -> Any:
    """Cast the parameters whose path ends in `pattern` to `compute.reduce_dtype`, and gather them over fsdp.

    Their gradients then have that dtype until devices have summed them. On one device nothing changes.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if "float32" in (compute.dtype, compute.reduce_dtype) or mesh.empty or mesh.size == 1:
        return params

    def exchange(path: Any, leaf: jax.Array) -> jax.Array:
        path = path[:-1] if getattr(path[-1], "name", "") == "value" else path  # paths of NNX end in `value`
        if re.search(f"{pattern}$", parameter_sharding.parameter_name(path)):
            axes = parameter_sharding.logical_axes(path, leaf.ndim)
            leaf = checkpoint_name(sharding.gather(leaf.astype(compute.reduce_dtype), axes), GATHERED)
        return leaf

    return jax.tree_util.tree_map_with_path(exchange, params)


@jax.custom_vjp
def look_up(table: jax.Array, ids: jax.Array) -> jax.Array:
    """Look up float32 rows in a table of any dtype, `[...] -> [..., E]`; a row's gradients are summed in float32."""
    return table[ids].astype(jnp.float32)


def _look_up_backward(residuals: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, None]:
    table, ids = residuals
    return jnp.zeros(table.shape, jnp.float32).at[ids].add(gradient).astype(table.dtype), None


look_up.defvjp(lambda table, ids: (look_up(table, ids), (table, ids)), _look_up_backward)
