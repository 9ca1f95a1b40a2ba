"""`OPERATORS`: the translation of each JAX primitive to ONNX nodes."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_jax.errors import InputError
from bert_jax.export.onnx import patterns
from bert_jax.export.onnx.program import Elementwise, Equation, Operator
from bert_jax.export.onnx.values import SymbolicShape, Value, is_same, product_of

_END = np.iinfo(np.int64).max  # the end of a slice that extends to the end of an axis


def _node(
    kind: str, pattern: Callable[[Equation], Value | None] = lambda equation: None, **attributes: Any
) -> Operator:
    """Return an operator that adds one node, or the result of `pattern` where the equation ends such a pattern."""
    return Elementwise(lambda equation: pattern(equation) or equation.graph.op(kind, *equation.names(), **attributes))


def _nodes(add: Callable[..., str]) -> Operator:
    """Return an operator that calls `add` with the graph and the names of the inputs."""
    return Elementwise(lambda equation: add(equation.graph, *equation.names()))


_same = Elementwise(lambda equation: equation.values[0])


def _cast(equation: Equation) -> str | Value:
    (value,), (name,) = equation.values, equation.names()
    return value if value.dtype == equation.dtype else equation.graph.cast(name, equation.dtype, value.dtype)


def _select(equation: Equation) -> str | Value:
    condition, if_false, if_true = equation.values
    if condition.array is not None and condition.array.size == 1:
        return Value(equation.shape, equation.full(2 if condition.array.item() else 1))
    if patterns.is_index_from_end(condition, if_false, if_true):
        return if_false  # ONNX's Gather accepts negative indices
    name, no, yes = equation.names()
    return equation.graph.op("Where", name, yes, no)


def _power(equation: Equation) -> str:
    exponent = equation.graph.constant(equation.params["y"], equation.values[0].dtype)
    return equation.graph.op("Pow", *equation.names(), exponent)


def _log1p(equation: Equation) -> str:
    one = equation.graph.constant(1, equation.values[0].dtype)
    return equation.graph.op("Log", equation.graph.op("Add", *equation.names(), one))


def _expm1(equation: Equation) -> str:
    one = equation.graph.constant(1, equation.values[0].dtype)
    return equation.graph.op("Sub", equation.graph.op("Exp", *equation.names()), one)


def _broadcast(equation: Equation) -> Value:
    """Add the new axes with size 1, instead of repeating the array along them."""
    value, axes, shape = equation.values[0], equation.params["broadcast_dimensions"], [1] * len(equation.shape)
    for axis, size in zip(axes, value.shape, strict=True):
        shape[axis] = size
    added = [axis for axis in range(len(shape)) if axis not in axes]
    name = equation.names()[0]
    return Value(tuple(shape), equation.graph.unsqueeze(name, *added) if added else name)


def _reshape(equation: Equation) -> str:
    return equation.graph.reshape(equation.full(), equation.shapes[0], equation.shape)


def _squeeze(equation: Equation) -> str:
    return equation.graph.squeeze(equation.full(), *equation.params["dimensions"])


def _transpose(equation: Equation) -> Value:
    (value,), order = equation.values, equation.params["permutation"]
    return Value(
        tuple(value.shape[axis] for axis in order), equation.graph.transpose(equation.graph.name(value), order)
    )


def _concatenate(equation: Equation) -> str:
    names = map(equation.full, range(len(equation.values)))
    return equation.graph.op("Concat", *names, axis=equation.params["dimension"])


def _stack(equation: Equation) -> str:
    axis = equation.params["axis"]
    names = [equation.graph.unsqueeze(equation.full(i), axis) for i in range(len(equation.values))]
    return equation.graph.op("Concat", *names, axis=axis)


def _split(equation: Equation) -> list[str]:
    sizes = equation.graph.integers(*equation.params["sizes"])
    axis = equation.params["axis"]
    return equation.graph.ops("Split", equation.full(), sizes, outputs=len(equation.outputs), axis=axis)


def _pad(equation: Equation) -> str:
    before, after, between = zip(*equation.params["padding_config"], strict=True)
    if any(between) or min(*before, *after, 0) < 0:
        raise InputError(f"expected padding at the ends of axes, found {equation.params['padding_config']}")
    return equation.graph.op("Pad", equation.full(), equation.graph.integers(*before, *after), equation.full(1))


def _iota(equation: Equation) -> Value:
    graph, axis = equation.graph, equation.params["dimension"]
    size = graph.squeeze(graph.size(equation.shape[axis]), 0)
    numbers = graph.op("Range", graph.constant(0, np.int64), size, graph.constant(1, np.int64))
    numbers = numbers if equation.dtype == np.int64 else graph.cast(numbers, equation.dtype)
    shape = tuple(size if i == axis else 1 for i, size in enumerate(equation.shape))
    return Value(shape, graph.unsqueeze(numbers, *(i for i in range(len(shape)) if i != axis)))


def _reverse(equation: Equation) -> str:
    graph, axes = equation.graph, equation.params["dimensions"]
    bounds = ([-1] * len(axes), [-_END] * len(axes), axes, [-1] * len(axes))  # starts, ends, axes, steps
    return graph.op("Slice", equation.full(), *(graph.integers(*numbers) for numbers in bounds))


def _slice(equation: Equation) -> str:
    x, graph, params = equation.full(), equation.graph, equation.params
    steps = params["strides"] or (1,) * len(equation.shape)
    bounds = zip(params["start_indices"], params["limit_indices"], steps, equation.shapes[0], strict=True)
    for axis, (start, end, step, size) in enumerate(bounds):
        if not is_same((start, end, step), (0, size, 1)):
            x = graph.op("Slice", x, *map(graph.size, (start, end, axis, step)))
    return x


def _part(equation: Equation, x: str, starts: dict[int, str], sizes: SymbolicShape) -> str:
    """Slice the axes in `starts` (axis -> first index, int64 `[1]`) to their `sizes`; keep other axes whole."""
    graph = equation.graph
    for axis, start in starts.items():
        x = graph.op("Slice", x, start, graph.op("Add", start, graph.size(sizes[axis])), graph.size(axis))
    return x


def _dynamic_slice(equation: Equation) -> str:
    graph, sizes, starts = equation.graph, equation.params["slice_sizes"], {}
    for axis, (size, whole) in enumerate(zip(sizes, equation.shapes[0], strict=True)):
        if not is_same((size,), (whole,)):
            start = graph.op("Max", graph.unsqueeze(equation.full(axis + 1), 0), graph.integers(0))
            starts[axis] = graph.op("Min", start, graph.op("Sub", graph.size(whole), graph.size(size)))
    return _part(equation, equation.full(), starts, sizes)


def _gather(equation: Equation) -> str:
    """Gather a slice, or elements along one axis, with the same indices for the whole batch or different ones."""
    numbers, graph = equation.params["dimension_numbers"], equation.graph
    batch, taken = numbers.operand_batching_dims, numbers.start_index_map
    if len(equation.shapes[1]) == 1:
        return _gathered(equation, 0, functools.partial(_gathered_part, equation))
    if len(taken) != 1 or taken != numbers.collapsed_slice_dims:
        raise InputError(f"expected a gather along one axis in a model that is exported to ONNX, found {numbers}")
    others = [axis for axis in range(len(equation.shapes[0])) if axis not in (*batch, *taken)]
    of_index = list(range(len(equation.shapes[1]) - 1))
    # The node and JAX order the result's axes differently: some come from the table, the others from the index.
    table_axes, index_axes = [("table", axis) for axis in others], [("index", axis) for axis in of_index]
    if batch:
        own = [axis for axis in of_index if axis not in numbers.start_indices_batching_dims]
        of_index = [*numbers.start_indices_batching_dims, *own]
        table = graph.transpose(equation.full(), [*batch, *taken, *others])
        index = graph.transpose(_index(equation), [*of_index, len(of_index)])
        result = graph.op("GatherND", table, index, batch_dims=len(batch))
        axes = [("index", axis) for axis in of_index] + table_axes
    else:
        index = graph.squeeze(_index(equation), -1)
        result = _gathered(equation, 0, lambda table: graph.op("Gather", table, index, axis=taken[0]))
        axes = [*table_axes[: taken[0]], *index_axes, *table_axes[taken[0] :]]
    is_of_table = [axis in numbers.offset_dims for axis in range(len(equation.shape))]
    remaining = {True: iter(table_axes), False: iter(index_axes)}
    return graph.transpose(result, [axes.index(next(remaining[of_table])) for of_table in is_of_table])


def _gathered(equation: Equation, i: int, gather: Callable[[str], str]) -> str:
    """Gather from input `i`; a float16 graph stores a float32 array as float16, and casts the gathered rows."""
    value, graph = equation.values[i], equation.graph
    if value.array is None or value.dtype != np.float32 or graph.dtype == np.float32:
        return gather(equation.full(i))
    return graph.cast(gather(graph.array(value.array.astype(graph.dtype), value.name)), np.float32, graph.dtype)


def _gathered_part(equation: Equation, x: str) -> str:
    """Return the slice of `x` that begins at the index, without the axes that the gather collapses."""
    numbers, graph, sizes = equation.params["dimension_numbers"], equation.graph, equation.params["slice_sizes"]
    index, starts = equation.values[1].array, {}
    for i, axis in enumerate(numbers.start_index_map):
        if index is not None:
            starts[axis] = graph.integers(int(index[i]))
        else:
            starts[axis] = graph.op("Gather", equation.full(1), graph.integers(i), axis=0)
    collapsed = numbers.collapsed_slice_dims
    is_part = [not is_same((size,), (whole,)) for size, whole in zip(sizes, equation.shapes[0], strict=True)]
    x = _part(equation, x, {axis: starts[axis] for axis in starts if is_part[axis] and axis not in collapsed}, sizes)
    for axis in sorted(collapsed, reverse=True):
        index_of_axis = graph.squeeze(starts[axis], 0) if axis in starts else graph.constant(0, np.int64)
        x = graph.op("Gather", x, index_of_axis, axis=axis)
    return x


def _index(equation: Equation) -> str:
    """Return the indices of a gather along one axis, clipped to the axis if the gather has the mode CLIP."""
    index, graph = equation.full(1), equation.graph
    if "CLIP" not in str(equation.params["mode"]):
        return index
    size = graph.size(equation.shapes[0][equation.params["dimension_numbers"].start_index_map[0]])
    last = graph.op("Sub", size, graph.integers(1))
    return graph.op("Min", graph.op("Max", index, graph.integers(0)), last)


def _reduce(kind: str) -> Operator:
    """Return the operator of a reduction; booleans are reduced as integers 0 and 1."""

    def add(equation: Equation) -> str:
        graph, x, axes = equation.graph, equation.full(), list(equation.params["axes"])
        is_bool = equation.values[0].dtype == np.bool_
        x = graph.cast(x, np.int64) if is_bool else x
        if kind == "ReduceSum":
            return graph.op(kind, x, graph.integers(*axes), keepdims=0)
        y = graph.op(kind, x, axes=axes, keepdims=0)
        return graph.cast(y, np.bool_) if is_bool else y

    return add


def _arg(kind: str) -> Operator:
    def add(equation: Equation) -> str:
        graph, x, (axis,) = equation.graph, equation.full(), equation.params["axes"]
        x = graph.cast(x, np.int64) if equation.values[0].dtype == np.bool_ else x
        return graph.op(kind, x, axis=axis, keepdims=0)

    return add


def _cumulative_sum(equation: Equation) -> str:
    axis = equation.graph.constant(equation.params["axis"], np.int64)
    return equation.graph.op("CumSum", equation.full(), axis, reverse=int(equation.params["reverse"]))


def _sort(equation: Equation) -> list[str]:
    """Sort all inputs by the first one; TopK keeps the order of equal values."""
    graph, axis = equation.graph, equation.params["dimension"]
    if equation.params["num_keys"] != 1:
        raise InputError(f"expected a sort by one key, found {equation.params['num_keys']} keys")
    size = graph.size(equation.shape[axis])
    keys, order = graph.ops("TopK", equation.full(), size, outputs=2, axis=axis, largest=0)
    others = range(1, len(equation.values))
    return [keys, *(graph.op("GatherElements", equation.full(i), order, axis=axis) for i in others)]


def _top_k(equation: Equation) -> list[str]:
    count = equation.graph.size(equation.params["k"])
    return equation.graph.ops("TopK", equation.full(), count, outputs=2, axis=equation.params.get("axis", -1))


def _size(equation: Equation) -> str:
    return equation.graph.squeeze(equation.graph.size(equation.params["dim"]), 0)


def _product(equation: Equation) -> str:
    """Translate a `dot_general`, whose contracted and batch axes may be anywhere, to a `MatMul`.

    All free axes of operand `a` but the last are placed before the batch axes; `MatMul` broadcasts `b` over them.
    """
    graph, (contracted, batch) = equation.graph, equation.params["dimension_numbers"]
    if (ids := patterns.ids_of_one_hot(equation)) is not None:
        return _gathered(equation, 1, lambda table: graph.op("Gather", table, graph.name(ids), axis=0))
    ranks = [len(shape) for shape in equation.shapes]
    free = [[axis for axis in range(ranks[i]) if axis not in (*contracted[i], *batch[i])] for i in (0, 1)]
    a, b = (1, 0) if len(free[1]) > 1 >= len(free[0]) else (0, 1)
    outer, rows = [*free[a][:-1], *batch[a]], free[a][-1:]
    x = _matrices(equation, a, outer, rows, contracted[a])
    y = _matrices(equation, b, batch[b], contracted[b], free[b])
    product = graph.op("MatMul", x, y)
    axes = [(a, axis) for axis in (*outer, *rows)] + [(b, axis) for axis in free[b]]
    if len(rows) != 1 or len(free[b]) != 1:
        outer_sizes, row_sizes, column_sizes = (
            tuple(equation.shapes[i][axis] for axis in group) for i, group in ((a, outer), (a, rows), (b, free[b]))
        )
        before = (*outer_sizes, product_of(row_sizes), product_of(column_sizes))
        product = graph.reshape(product, before, outer_sizes + row_sizes + column_sizes)
    order = [(a, axis) for axis in batch[a]] + [(i, axis) for i in (0, 1) for axis in free[i]]
    product = graph.transpose(product, [axes.index(axis) for axis in order])
    before_dtype = equation.values[0].dtype
    return product if before_dtype == equation.dtype else graph.cast(product, equation.dtype, before_dtype)


def _matrices(equation: Equation, i: int, outer: Sequence[int], rows: Sequence[int], columns: Sequence[int]) -> str:
    """Return input `i` as a stack of matrices; rows and columns may each merge several axes, or have none."""
    graph, value, shape, order = equation.graph, equation.values[i], equation.shapes[i], [*outer, *rows, *columns]
    if value.array is None or order == sorted(order) or graph.has(value) or not is_same(value.shape, shape):
        x = graph.transpose(equation.full(i), order)
    else:  # an initializer and not a Transpose node, as onnxruntime quantizes products with initializers
        x = graph.array(value.array.transpose(order), value.name)
    if len(rows) == len(columns) == 1:
        return x
    sizes = [product_of(tuple(shape[axis] for axis in group)) for group in (rows, columns)]
    return graph.reshape(x, tuple(shape[axis] for axis in order), (*(shape[axis] for axis in outer), *sizes))


OPERATORS: dict[str, Operator] = {
    "abs": _node("Abs"),
    "add": _node("Add", patterns.layer_norm),
    "and": _node("And"),
    "argmax": _arg("ArgMax"),
    "argmin": _arg("ArgMin"),
    "broadcast_in_dim": _broadcast,
    "ceil": _node("Ceil"),
    "clamp": _nodes(lambda graph, low, x, high: graph.op("Min", graph.op("Max", x, low), high)),
    "concatenate": _concatenate,
    "convert_element_type": Elementwise(_cast),
    "copy": _same,
    "cos": _node("Cos"),
    "cumsum": _cumulative_sum,
    "dim_as_value": _size,
    "div": _node("Div", patterns.softmax_or_mean),
    "dot_general": _product,
    "dynamic_slice": _dynamic_slice,
    "eq": _node("Equal"),
    "erf": _node("Erf"),
    "exp": _node("Exp"),
    "expm1": Elementwise(_expm1),
    "floor": _node("Floor"),
    "gather": _gather,
    "ge": _node("GreaterOrEqual"),
    "gt": _node("Greater"),
    "integer_pow": Elementwise(_power),
    "iota": _iota,
    "le": _node("LessOrEqual"),
    "log": _node("Log"),
    "log1p": Elementwise(_log1p),
    "logistic": _node("Sigmoid"),
    "lt": _node("Less"),
    "max": _node("Max"),
    "min": _node("Min"),
    "mul": _node("Mul", patterns.norm_or_gelu),
    "name": _same,
    "ne": _nodes(lambda graph, x, y: graph.op("Not", graph.op("Equal", x, y))),
    "neg": _node("Neg"),
    "not": _node("Not"),
    "or": _node("Or"),
    "pad": _pad,
    "pow": _node("Pow"),
    "reduce_and": _reduce("ReduceMin"),
    "reduce_max": _reduce("ReduceMax"),
    "reduce_min": _reduce("ReduceMin"),
    "reduce_or": _reduce("ReduceMax"),
    "reduce_sum": _reduce("ReduceSum"),
    "rem": _node("Mod", fmod=1),
    "reshape": _reshape,
    "rev": _reverse,
    "rsqrt": _nodes(lambda graph, x: graph.op("Reciprocal", graph.op("Sqrt", x))),
    "select_n": Elementwise(_select),
    "sign": _node("Sign"),
    "sin": _node("Sin"),
    "slice": _slice,
    "sort": _sort,
    "split": _split,
    "sqrt": _node("Sqrt"),
    "square": _nodes(lambda graph, x: graph.op("Mul", x, x)),
    "squeeze": _squeeze,
    "stack": _stack,
    "stop_gradient": _same,
    "sub": _node("Sub"),
    "tanh": _node("Tanh"),
    "top_k": _top_k,
    "transpose": _transpose,
}
