"""Recognize patterns of JAX equations that onnxruntime computes in one pass, by the last equation of each.

Each function takes an equation. If it ends the pattern, the function returns the result of a single node, or of the
nodes that onnxruntime fuses; else None, and the equation is translated as it is. The nodes of a pattern's earlier
equations are left out of the model, as nothing reads them.
"""

import math
from typing import NamedTuple

import numpy as np

from bert_jax.export.onnx.program import Equation
from bert_jax.export.onnx.values import Value


class _Norm(NamedTuple):
    """The input and epsilon of a LayerNorm without scale and bias."""

    x: Value
    epsilon: float


def layer_norm(equation: Equation) -> Value | None:
    """Recognize a sum that ends a LayerNorm with scale and bias."""
    scaled, bias = equation.values
    norm = _norm(scaled.inputs[0]) if scaled.primitive == "mul" else None
    return None if norm is None else _layer_norm(equation, norm, scaled.inputs[1], bias)


def norm_or_gelu(equation: Equation) -> Value | None:
    """Recognize a product that ends a LayerNorm with a scale, a GELU, or `x / sqrt(y)` (part of an RMSNorm)."""
    x, factor = equation.values
    if (norm := _norm(x)) is not None:
        return _layer_norm(equation, norm, factor)
    if factor.primitive == "rsqrt" and factor.array is None and x.array is None:
        graph = equation.graph
        return Value(x.shape, graph.op("Div", x.name, graph.op("Sqrt", graph.name(factor.inputs[0]))))
    return _halved(equation)


def softmax_or_mean(equation: Equation) -> Value | None:
    """Recognize a quotient that ends a softmax or a mean over the last axis."""
    numerator, divisor = equation.values
    if numerator.primitive == "exp" and _summed(divisor) is numerator:
        scores = numerator.inputs[0]
        # Subtracting a number from all scores does not change their softmax; JAX subtracts the largest.
        if scores.primitive == "sub" and str(scores.inputs[1].shape[-1:]) == "(1,)":
            x = scores.inputs[0]
            return Value(x.shape, equation.graph.op("Softmax", equation.graph.name(x), axis=-1))
    x = _averaged(numerator, divisor)
    if x is None:
        return None
    mean = equation.graph.op("ReduceMean", equation.graph.name(x), axes=[-1], keepdims=1)
    return Value((*x.shape[:-1], 1), mean)


def ids_of_one_hot(equation: Equation) -> Value | None:
    """Recognize a product of one-hot rows and a table, and return the ids of the table's rows."""
    one_hot, table = equation.values
    is_plain = equation.params["dimension_numbers"] == (((len(one_hot.shape) - 1,), (0,)), ((), ()))
    if not is_plain or table.array is None or table.array.ndim != 2 or one_hot.primitive != "convert_element_type":
        return None
    equal = one_hot.inputs[0]
    if equal.primitive != "eq" or (numbers := equal.inputs[1].array) is None:
        return None
    ids = equal.inputs[0]
    if ids.primitive != "broadcast_in_dim" or tuple(ids.params["broadcast_dimensions"]) != tuple(
        range(len(ids.shape) - 1)
    ):
        return None
    is_range = numbers.shape[-1] == len(table.array) and np.array_equal(numbers.reshape(-1), np.arange(numbers.size))
    return ids.inputs[0] if is_range else None


def _layer_norm(equation: Equation, norm: _Norm, *vectors: Value) -> Value | None:
    graph, x = equation.graph, _uncast(norm.x)
    arrays = [value.array for value in vectors if value.array is not None and value.array.size == x.shape[-1]]
    if len(arrays) < len(vectors):
        return None
    pairs = zip(arrays, vectors, strict=True)
    names = [graph.array(array.reshape(-1).astype(x.dtype), value.name) for array, value in pairs]
    y = graph.op("LayerNormalization", graph.name(x), *names, axis=-1, epsilon=norm.epsilon)
    return _cast_as(equation, norm.x, y)


def _norm(value: Value) -> _Norm | None:
    """Recognize `y * rsqrt(mean(square(y)) + epsilon)`, where `y` is `x - mean(x)`."""
    if value.primitive != "mul" or value.inputs[1].primitive != "rsqrt":
        return None
    y, shifted = value.inputs[0], value.inputs[1].inputs[0]
    if y.primitive != "sub" or shifted.primitive != "add" or shifted.inputs[1].array is None:
        return None
    (x, mean), (variance, epsilon) = y.inputs, shifted.inputs
    squares = _averaged(*variance.inputs) if variance.primitive == "div" else None
    if squares is None or squares.primitive != "square" or squares.inputs[0] is not y:
        return None
    is_centred = mean.primitive == "div" and _averaged(*mean.inputs) is x
    return _Norm(x, float(epsilon.array.reshape(()))) if is_centred and epsilon.array is not None else None


def _averaged(total: Value, count: Value) -> Value | None:
    """Return x if `total / count` is the mean of x over the last axis, kept with size 1; else None."""
    x = _summed(total)
    return x if x is not None and isinstance(x.shape[-1], int) and is_single_number(count, x.shape[-1]) else None


def _summed(value: Value) -> Value | None:
    """Return x if the value is the sum of x over the last axis, kept with size 1; else None."""
    total = value.inputs[0] if value.primitive == "broadcast_in_dim" else value
    if total.primitive != "reduce_sum":
        return None
    x = total.inputs[0]
    is_kept = len(value.shape) == len(x.shape) and tuple(value.params["broadcast_dimensions"]) == tuple(
        range(len(x.shape) - 1)
    )
    return x if is_kept and tuple(total.params["axes"]) == (len(x.shape) - 1,) else None


def _halved(equation: Equation) -> Value | None:
    """Rewrite `x * (0.5 * (1 + t))` as `x * (1 + t) * 0.5`, which onnxruntime fuses to a GELU if `t` is erf."""
    value, factor = equation.values
    if factor.primitive != "mul" or not is_single_number(factor.inputs[0], 0.5) or factor.inputs[1].primitive != "add":
        return None
    one, term = factor.inputs[1].inputs
    if value.array is not None or term.array is not None or not is_single_number(one, 1):
        return None
    graph, x, y = equation.graph, value, term.name
    if term.primitive == "erf" and term.inputs[0].primitive == "mul":
        scaled, scale = term.inputs[0].inputs
        if _uncast(scaled) is _uncast(value) and is_single_number(scale, math.sqrt(0.5)):
            x = _uncast(value)
            y = graph.op("Erf", graph.op("Div", x.name, graph.constant(math.sqrt(2), x.dtype)))
    product = graph.op("Mul", x.name, graph.op("Add", y, graph.constant(1, x.dtype)))
    product = graph.op("Mul", product, graph.constant(0.5, x.dtype))
    return Value(value.shape, product) if x is value else _cast_as(equation, value, product)


def is_index_from_end(condition: Value, index: Value, from_end: Value) -> bool:
    """Return whether a select is JAX's conversion of negative indices: `where(i < 0, i + size, i)`."""
    if condition.primitive != "lt" or from_end.primitive != "add" or not is_single_number(condition.inputs[1], 0):
        return False
    return condition.inputs[0] is index and from_end.inputs[0] is index


def is_single_number(value: Value, number: float) -> bool:
    """Return whether a value is a constant array whose only element is `number`, up to rounding."""
    return value.array is not None and value.array.size == 1 and math.isclose(value.array.item(), number, rel_tol=1e-6)


def _uncast(value: Value) -> Value:
    """Return the float16 that a float32 was cast from, or the value itself.

    onnxruntime computes LayerNorm and GELU of float16 in float32.
    """
    is_cast = value.primitive == "convert_element_type" and value.inputs[0].dtype == np.float16
    return value.inputs[0] if is_cast else value


def _cast_as(equation: Equation, value: Value, y: str) -> Value:
    """Return `y`, which was computed from `_uncast(value)`, in the dtype of `value`."""
    x = _uncast(value)
    return Value(value.shape, y if x is value else equation.graph.cast(y, value.dtype, x.dtype))
