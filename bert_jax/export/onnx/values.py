"""The values of a traced program: constant arrays, and results of nodes."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

_FLOAT32 = np.dtype(np.float32)
SymbolicShape = tuple[Any, ...]  # sizes of axes: int, or a symbolic size of `jax.export`


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """A variable of the program: a constant array, or the result of a node.

    Attributes:
        shape: its shape in the graph, where an axis that broadcasts has size 1.
        name: the result's name; for an array, the name of the parameter that it comes from, or "".
        array: the array, of a dtype of the graph; None for a result.
        dtype: its dtype in the graph.
        primitive: name of the primitive that computed it.
        inputs: the primitive's inputs.
        params: the primitive's parameters.
    """

    shape: SymbolicShape
    name: str = ""
    array: np.ndarray | None = None
    dtype: np.dtype = _FLOAT32
    primitive: str = ""
    inputs: "tuple[Value, ...]" = ()
    params: dict[str, Any] = dataclasses.field(default_factory=dict)


def known(array: Any, name: str = "") -> Value:
    """Return an array as a `Value` with a dtype of the graph; `name` is that of its parameter, if any."""
    array = np.asarray(array)
    array = array.astype(graph_dtype(array.dtype), copy=False)
    return Value(array.shape, name, array, array.dtype)


def graph_dtype(dtype: Any) -> np.dtype:
    """Return the graph's dtype for a dtype of JAX: int64 for integers, float16 for bfloat16."""
    if dtype == jnp.bfloat16:
        return np.dtype(np.float16)
    if jnp.issubdtype(dtype, jnp.integer):
        return np.dtype(np.int64)
    return _FLOAT32 if dtype == np.float64 else np.dtype(dtype)  # Python floats are float64


def is_same(first: SymbolicShape, second: SymbolicShape) -> bool:
    """Return whether shapes are equal. Sizes are compared as text, as JAX cannot compare all symbolic sizes."""
    return tuple(map(str, first)) == tuple(map(str, second))


def product_of(sizes: SymbolicShape) -> Any:
    """Return the product of sizes."""
    product: Any = 1
    for size in sizes:
        product = size * product
    return product
