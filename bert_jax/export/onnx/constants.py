"""Constant folding: equations whose inputs are all constant are computed at translation and need no nodes."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from bert_jax.export.onnx.values import Value, graph_dtype, is_same, known

PrimitiveParams = dict[str, Any]  # parameters of a primitive


def computed(equation: Any, inputs: tuple[Value, ...], *, broadcasts: bool) -> list[Value] | None:
    """Compute an equation whose inputs are constant arrays; return None if an input or a size is not constant.

    Args:
        equation: a `jax.extend.core.JaxprEqn`.
        inputs: its inputs.
        broadcasts: whether the primitive is elementwise, so that axes of size 1 may broadcast.
    """
    arrays, primitive = [value.array for value in inputs if value.array is not None], equation.primitive
    if len(arrays) < len(inputs) or primitive.name == "dim_as_value":
        return None
    pairs = zip(inputs, equation.invars, strict=True)
    is_full = all(is_same(value.shape, variable.aval.shape) for value, variable in pairs)
    if primitive.name in _VIEWS and (is_full or primitive.name in ("broadcast_in_dim", "convert_element_type")):
        array = _VIEWS[primitive.name](arrays, equation.params)
        return [known(array, _name_of_view(primitive.name, equation.params, inputs, array))]
    outputs = [variable.aval for variable in equation.outvars]
    if broadcasts:
        arrays = list(np.broadcast_arrays(*arrays))
    elif not is_full or not all(isinstance(size, int) for output in outputs for size in output.shape):
        return None
    # The graph has float16 in place of bfloat16; here both are computed in float32.
    wide = [array.astype(np.float32) if array.dtype == np.float16 else array for array in arrays]
    params = {name: jnp.float32 if value == jnp.bfloat16 else value for name, value in equation.params.items()}
    results = primitive.bind(*map(jnp.asarray, wide), **params)
    results = results if primitive.multiple_results else [results]
    return [known(np.asarray(array).astype(graph_dtype(of.dtype))) for array, of in zip(results, outputs, strict=True)]


def _sliced(arrays: list[np.ndarray], params: PrimitiveParams) -> np.ndarray:
    steps = params["strides"] or (1,) * arrays[0].ndim
    return arrays[0][tuple(map(slice, params["start_indices"], params["limit_indices"], steps))]


def _dynamically_sliced(arrays: list[np.ndarray], params: PrimitiveParams) -> np.ndarray:
    (array, *starts), sizes = arrays, params["slice_sizes"]
    first = [min(max(int(i), 0), most - n) for i, n, most in zip(starts, sizes, array.shape, strict=True)]
    return array[tuple(slice(i, i + n) for i, n in zip(first, sizes, strict=True))]


def _broadcast(arrays: list[np.ndarray], params: PrimitiveParams) -> np.ndarray:
    """Add the new axes with size 1, instead of repeating the array along them."""
    shape = [1] * len(params["shape"])
    for axis, size in zip(params["broadcast_dimensions"], arrays[0].shape, strict=True):
        shape[axis] = size
    return arrays[0].reshape(shape)


# Primitives that only move the axes of a parameter or take a part of it: the result keeps the parameter's name.
_VIEWS: dict[str, Callable[[list[np.ndarray], PrimitiveParams], np.ndarray]] = {
    "broadcast_in_dim": _broadcast,
    "convert_element_type": lambda arrays, params: arrays[0].astype(graph_dtype(params["new_dtype"]), copy=False),
    "dynamic_slice": _dynamically_sliced,
    "reshape": lambda arrays, params: arrays[0].reshape(params["new_sizes"]),
    "slice": _sliced,
    "squeeze": lambda arrays, params: np.squeeze(arrays[0], params["dimensions"]),
    "transpose": lambda arrays, params: np.transpose(arrays[0], params["permutation"]),
}


def _name_of_view(primitive: str, params: PrimitiveParams, inputs: tuple[Value, ...], array: np.ndarray) -> str:
    """Return the name of a view: `encoder.layers.0.mlp.up.kernel` for row 0 of `encoder.layers.mlp.up.kernel`."""
    name = inputs[0].name
    if primitive == "slice" and array.shape[0] == 1:
        row = params["start_indices"][0]
    elif primitive == "dynamic_slice" and array.shape[0] == 1:
        row = int(np.asarray(inputs[1].array))
    elif primitive == "squeeze" and params["dimensions"] == (0,):  # removes the axis of a single layer or of a slice
        row = 0
    else:
        return name
    module, _, rest = name.partition(".")
    stack, _, path = rest.partition(".")
    is_stacked = module == "encoder" and path and not path[0].isdigit()
    return f"{module}.{stack}.{row}.{path}" if is_stacked else name
