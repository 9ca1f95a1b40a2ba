"""`OnnxGraph`: an ONNX graph under construction."""

import ast
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.errors import InputError
from bert_jax.export.onnx.values import SymbolicShape, Value, is_same
from bert_jax.extras import import_extra

OPSET = 17  # the first with LayerNormalization; onnxruntime 1.12 and later, and onnxruntime-web, run it
_IR_VERSION = 8  # version of ONNX's file format that belongs to opset 17
_OF_SIZES = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Pow: "Pow"}
_FUNCTIONS_OF_SIZES = {"max": "Max", "min": "Min", "floordiv": "Div", "mod": "Mod"}


class OnnxGraph:
    """An ONNX graph under construction: its methods add nodes and return the names of the results.

    A node with the operator, inputs and attributes of an earlier node is not added: the earlier node is reused.

    Attributes:
        dtype: dtype of parameters and activations: float32 or float16.
        symbols: name of a symbolic size -> name of its value, int64 `[1]`.
    """

    def __init__(self, dtype: str = "float32"):
        self.dtype = np.dtype(dtype)
        self.symbols: dict[str, str] = {}
        self._onnx = import_extra("onnx", "onnx")
        self._nodes: list[Any] = []
        self._results: dict[tuple[Any, ...], list[str]] = {}
        self._numbers: dict[str, int] = {}  # name without its number -> last number given
        self._arrays: dict[str, np.ndarray] = {}  # the initializers by name
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._parameters: dict[str, list[str]] = {}
        self._narrow: dict[str, str] = {}  # name of a float32 value -> the float16 value it was cast from
        self._transposed: dict[str, tuple[str, list[int]]] = {}

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output."""
        return self.ops(kind, *inputs, outputs=1, **attributes)[0]

    def ops(self, kind: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Add a node with several outputs."""
        key = (kind, inputs, tuple((name, str(value)) for name, value in attributes.items()))
        if key not in self._results:
            name = self._unused(kind)
            results = [name] if outputs == 1 else [f"{name}:{i}" for i in range(outputs)]
            self._nodes.append(self._onnx.helper.make_node(kind, inputs, results, name=name, **attributes))
            self._results[key] = results
        return self._results[key]

    def name(self, value: Value) -> str:
        """Return the name of a value for a node that broadcasts; a constant loses its leading axes of size 1."""
        if value.array is None:
            return value.name
        array = value.array
        while array.ndim and array.shape[0] == 1:
            array = array[0]
        return self.array(array, value.name)

    def full(self, value: Value, shape: SymbolicShape) -> str:
        """Return the name of a value expanded to a shape: axes of size 1 are repeated."""
        x = value.name if value.array is None else self.array(value.array, value.name)
        return x if is_same(value.shape, shape) else self.op("Expand", x, self.sizes(shape))

    def array(self, array: np.ndarray, parameter: str = "") -> str:
        """Return the name of an array as an initializer, which is named after its parameter, if it has one."""
        if not parameter:
            return self.constant(array, array.dtype)
        names = self._parameters.setdefault(parameter, [])
        for name in names:
            if _equal(self._arrays[name], array):
                return name
        names.append(self._unused(parameter))
        self._arrays[names[-1]] = array
        return names[-1]

    def has(self, value: Value) -> bool:
        """Return whether a value is an array that is already an initializer."""
        array = value.array
        return array is not None and any(
            _equal(self._arrays[name], array) for name in self._parameters.get(value.name, ())
        )

    def constant(self, values: Any, dtype: Any) -> str:
        """Return the name of a constant; equal constants are one initializer."""
        array = np.array(values, dtype)
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._unused("constant")
            self._arrays[self._constants[key]] = array
        return self._constants[key]

    def integers(self, *values: int) -> str:
        """Return the name of a constant with these integers, int64 `[n]`."""
        return self.constant(values, np.int64)

    def cast(self, x: str, dtype: Any, before: Any = None) -> str:
        """Cast `x` of dtype `before` to `dtype`; float16 that was cast to float32 is cast back without a node."""
        if dtype == np.float16 and x in self._narrow:
            return self._narrow[x]
        y = self.op("Cast", x, to=self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
        if before == np.float16 and dtype == np.float32:
            self._narrow[y] = x
        return y

    def transpose(self, x: str, order: Sequence[int]) -> str:
        """Reorder axes; two transposes in a row become one."""
        order = list(order)
        if x in self._transposed:
            x, before = self._transposed[x]
            order = [before[axis] for axis in order]
        if order == sorted(order):
            return x
        y = self.op("Transpose", x, perm=order)
        self._transposed[y] = (x, order)
        return y

    def reshape(self, x: str, before: SymbolicShape, after: SymbolicShape) -> str:
        """Reshape; where possible, sizes are 0 (unchanged) or -1 (inferred), which the graph need not compute."""
        kept = [is_same(before[i : i + 1], after[i : i + 1]) for i in range(len(after))]
        sizes = [0 if keep and not isinstance(size, int) else size for keep, size in zip(kept, after, strict=True)]
        symbolic = [i for i, size in enumerate(sizes) if not isinstance(size, int)]
        if len(symbolic) > 1:
            return self.op("Reshape", x, self.sizes(after))
        return self.op("Reshape", x, self.integers(*(-1 if i in symbolic else size for i, size in enumerate(sizes))))

    def unsqueeze(self, x: str, *axes: int) -> str:
        """Insert axes of size 1."""
        return self.op("Unsqueeze", x, self.integers(*axes))

    def squeeze(self, x: str, *axes: int) -> str:
        """Remove axes of size 1."""
        return self.op("Squeeze", x, self.integers(*axes))

    def sizes(self, shape: SymbolicShape) -> str:
        """Return the name of a shape as int64 `[rank]`."""
        if all(isinstance(size, int) for size in shape):
            return self.integers(*shape)
        return self.op("Concat", *map(self.size, shape), axis=0)

    def size(self, size: Any) -> str:
        """Return the name of a size as int64 `[1]`: a constant, or arithmetic on the sizes of the inputs."""
        return self._size(ast.parse(str(size).replace("^", "**"), mode="eval").body)

    def _size(self, expression: ast.expr) -> str:
        match expression:
            case ast.Constant(value=int(number)):
                return self.integers(number)
            case ast.Name(id=symbol):
                return self.symbols[symbol]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.op("Neg", self._size(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OF_SIZES:
                return self.op(_OF_SIZES[type(op)], self._size(left), self._size(right))
            case ast.Call(func=ast.Name(id=name), args=arguments) if name in _FUNCTIONS_OF_SIZES:
                return self.op(_FUNCTIONS_OF_SIZES[name], *map(self._size, arguments))
        raise InputError(f"expected sums, products and quotients of sizes, found {ast.unparse(expression)}")

    def add_symbols(self, name: str, axes: Sequence[str]) -> None:
        """Add nodes that read the symbolic sizes from an input's axes."""
        for axis, symbol in enumerate(axes):
            if symbol not in self.symbols:
                self.symbols[symbol] = self.op("Gather", self.op("Shape", name), self.integers(axis), axis=0)

    def output(self, x: str, name: str) -> None:
        """Add an output `name` of the graph, with the value of `x`."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [x], [name], name=f"output/{name}"))

    def model(self, inputs: dict[str, tuple], outputs: dict[str, tuple], version: str) -> Any:
        """Return the graph as an `onnx.ModelProto`, without nodes and arrays that no output needs.

        Args:
            inputs: name -> axes of the int64 inputs.
            outputs: name -> axes of the float32 outputs.
            version: version of bert_jax.
        """
        helper, kinds = self._onnx.helper, self._onnx.TensorProto
        needed, nodes = set(outputs), []
        for node in reversed(self._nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                nodes.append(node)
        graph = helper.make_graph(
            nodes[::-1],
            "bert_jax",
            [helper.make_tensor_value_info(name, kinds.INT64, axes) for name, axes in inputs.items()],
            [helper.make_tensor_value_info(name, kinds.FLOAT, axes) for name, axes in outputs.items()],
            [self._initializer(name, array) for name, array in self._arrays.items() if name in needed],
        )
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(
            graph, producer_name="bert_jax", producer_version=version, opset_imports=[opset], ir_version=_IR_VERSION
        )

    def _initializer(self, name: str, values: np.ndarray) -> Any:
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(values.dtype)
        # `onnx.numpy_helper.from_array` would copy the values once more.
        tensor = self._onnx.TensorProto(name=name, data_type=kind, dims=values.shape, raw_data=values.tobytes())
        assert len(tensor.raw_data) == math.prod(values.shape) * values.dtype.itemsize
        return tensor

    def _unused(self, name: str) -> str:
        """Return a name that no node, parameter or constant has."""
        count = self._numbers[name] = self._numbers.get(name, -1) + 1
        return f"{name}_{count}" if count else name


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)
