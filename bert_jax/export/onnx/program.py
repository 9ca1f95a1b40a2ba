"""Translate a traced function to nodes of an ONNX graph, equation by equation.

`jax.make_jaxpr` turns a function into equations, each with a primitive of JAX. Calls are inlined, scans are unrolled,
and equations of constant arrays are computed at once: a layer's kernel is then a view of the stacked parameters. Any
other equation becomes the nodes that `operators.OPERATORS` adds for its primitive.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

from bert_jax.errors import InputError
from bert_jax.export.onnx.constants import computed
from bert_jax.export.onnx.graph import OnnxGraph
from bert_jax.export.onnx.values import SymbolicShape, Value, graph_dtype, known


@dataclasses.dataclass(frozen=True)
class Equation:
    """An equation and its inputs.

    Attributes:
        graph: the graph under construction.
        values: the inputs.
        shapes: the shapes of the inputs in JAX; those of `values` may have axes of size 1 that broadcast.
        params: the primitive's parameters.
        outputs: shapes and dtypes of the results in JAX.
    """

    graph: OnnxGraph
    values: tuple[Value, ...]
    shapes: tuple[SymbolicShape, ...]
    params: dict[str, Any]
    outputs: tuple[Any, ...]

    @property
    def shape(self) -> SymbolicShape:
        """Return the shape of the first result."""
        return tuple(self.outputs[0].shape)

    @property
    def dtype(self) -> np.dtype:
        """Return the dtype of the first result in the graph."""
        return graph_dtype(self.outputs[0].dtype)

    def names(self) -> list[str]:
        """Return the names of the inputs, for a node that broadcasts axes of size 1."""
        return [self.graph.name(value) for value in self.values]

    def full(self, index: int = 0) -> str:
        """Return the name of an input, expanded to its shape in JAX."""
        return self.graph.full(self.values[index], self.shapes[index])


# Adds the nodes of an equation and returns its result: a name or a Value, or a list of names if there are several.
Operator = Callable[[Equation], "str | list[str] | Value"]


@dataclasses.dataclass(frozen=True)
class Elementwise:
    """The operator of an elementwise primitive, in which axes of size 1 broadcast."""

    add: Callable[[Equation], str | Value]

    def __call__(self, equation: Equation) -> Value:
        result = self.add(equation)
        if isinstance(result, Value):
            return result
        rank = len(equation.shape)
        shapes = [(1,) * (rank - len(value.shape)) + value.shape for value in equation.values]
        return Value(tuple(next((n for n in axis if str(n) != "1"), 1) for axis in zip(*shapes, strict=True)), result)


def add_function(
    graph: OnnxGraph,
    operators: Mapping[str, Operator],
    function: Callable[..., dict[str, Any]],
    arguments: Sequence[Any],
    values: Sequence[Value],
) -> dict[str, str]:
    """Add the nodes of a function, and return the names of its results.

    Args:
        graph: the graph under construction.
        operators: name of a primitive -> function that adds its nodes.
        function: a function that returns a dict of arrays.
        arguments: its arguments, of which only shapes and dtypes matter; sizes may be symbolic.
        values: for each leaf of the arguments, its value in the graph.
    """
    traced, outputs = jax.make_jaxpr(function, return_shape=True)(*arguments)
    results = jax.tree.unflatten(jax.tree.structure(outputs), JaxprTranslation(graph, operators).run(traced, values))
    return {name: graph.full(value, tuple(outputs[name].shape)) for name, value in results.items()}


class JaxprTranslation:
    """The translation of a traced function.

    Args:
        graph: the graph under construction.
        operators: name of a primitive -> function that adds its nodes.
    """

    def __init__(self, graph: OnnxGraph, operators: Mapping[str, Operator]):
        self.graph, self._operators = graph, operators

    def run(self, traced: Any, arguments: Sequence[Value]) -> list[Value]:
        """Add the nodes of a jaxpr, and return its results.

        Args:
            traced: a `jax.extend.core.ClosedJaxpr`, or a `Jaxpr` without constants.
            arguments: the values of its inputs.
        """
        is_closed = isinstance(traced, core.ClosedJaxpr)
        jaxpr, constants = (traced.jaxpr, [known(array) for array in traced.consts]) if is_closed else (traced, [])
        values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *arguments), strict=True))

        def read(variable: Any) -> Value:
            return known(variable.val) if isinstance(variable, core.Literal) else values[variable]

        for equation in jaxpr.eqns:
            results = self._results(equation, tuple(map(read, equation.invars)))
            values |= zip(equation.outvars, results, strict=True)
        return [read(variable) for variable in jaxpr.outvars]

    def _results(self, equation: Any, inputs: tuple[Value, ...]) -> list[Value]:
        primitive, params = equation.primitive.name, equation.params
        if primitive == "scan":
            return self._scan(equation, inputs)
        if (called := params.get("jaxpr", params.get("call_jaxpr"))) is not None:
            return self.run(called, inputs)
        add = self._operators.get(primitive)
        if (arrays := computed(equation, inputs, broadcasts=isinstance(add, Elementwise))) is not None:
            return arrays
        if add is None:
            raise InputError(
                f"expected primitives of JAX that export/onnx/operators.py translates to ONNX, found {primitive}"
            )
        shapes = tuple(tuple(variable.aval.shape) for variable in equation.invars)
        outputs = tuple(variable.aval for variable in equation.outvars)
        results = add(Equation(self.graph, inputs, shapes, params, outputs))
        values = []
        for result, output in zip(results if isinstance(results, list) else [results], outputs, strict=True):
            value = result if isinstance(result, Value) else Value(tuple(output.shape), result)
            dtype = graph_dtype(output.dtype)
            values.append(dataclasses.replace(value, dtype=dtype, primitive=primitive, inputs=inputs, params=params))
        return values

    def _scan(self, equation: Any, inputs: tuple[Value, ...]) -> list[Value]:
        """Unroll a scan.

        Shapes tell its carried values from its stacked ones, as its parameters differ between versions of JAX.
        """
        params, body = equation.params, equation.params["jaxpr"]
        inner = getattr(body, "jaxpr", body)
        stacks = sum(len(x.aval.shape) > len(y.aval.shape) for x, y in zip(equation.invars, inner.invars, strict=True))
        outputs = zip(equation.outvars, inner.outvars, strict=True)
        carried = sum(len(x.aval.shape) == len(y.aval.shape) for x, y in outputs)
        fixed = len(inputs) - stacks - carried
        constants, state, stacked = inputs[:fixed], list(inputs[fixed : fixed + carried]), inputs[fixed + carried :]
        steps, results = range(params["length"]), {}
        for i in reversed(steps) if params["reverse"] else steps:
            results[i] = self.run(body, [*constants, *state, *(self._row(value, i) for value in stacked)])
            state, results[i] = results[i][:carried], results[i][carried:]
        columns = zip(*(results[i] for i in steps), strict=True)
        variables = inner.outvars[carried:]
        return [*state, *(self._stacked(rows, one.aval) for rows, one in zip(columns, variables, strict=True))]

    def _row(self, value: Value, i: int) -> Value:
        """Return row `i` along the first axis, or the only row if that axis has size 1 and broadcasts."""
        i = 0 if str(value.shape[0]) == "1" else i
        if value.array is not None:
            return known(value.array[i], f"{value.name}.{i}" if value.name else "")
        name = self.graph.op("Gather", value.name, self.graph.constant(i, np.int64), axis=0)
        return Value(value.shape[1:], name, dtype=value.dtype)

    def _stacked(self, rows: Sequence[Value], row: Any) -> Value:
        """Stack values along a new first axis; each has the shape and dtype of `row`."""
        names = [self.graph.unsqueeze(self.graph.full(value, tuple(row.shape)), 0) for value in rows]
        stacked = self.graph.op("Concat", *names, axis=0)
        return Value((len(rows), *row.shape), stacked, dtype=graph_dtype(row.dtype))
