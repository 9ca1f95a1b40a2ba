"""`OnnxGraph`: an ONNX graph under construction."""

import math
from typing import Any

import numpy as np

from bert_jax.extras import import_extra

OPSET = 17  # the first with LayerNormalization; onnxruntime 1.12 and later, and onnxruntime-web, run it
_IR_VERSION = 8  # version of ONNX's file format that belongs to opset 17


class OnnxGraph:
    """An ONNX graph under construction: a method adds a node and returns the name of its result.

    Attributes:
        dtype: dtype of parameters and activations: float32 or float16.
        prefix: what the names of the nodes that are added begin with.
        inputs: name of an input -> name of its value with axes `[B, S]`.
    """

    def __init__(self, dtype: str = "float32"):
        self.dtype = np.dtype(dtype)
        self.prefix = ""
        self.inputs: dict[str, str] = {}
        self._onnx = import_extra("onnx", "onnx")
        self._nodes: list[Any] = []
        self._names: dict[str, int] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._parameters: dict[str, np.ndarray] = {}
        self._initializers: list[Any] = []

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output."""
        return self.ops(kind, *inputs, outputs=1, **attributes)[0]

    def ops(self, kind: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Add a node with several outputs."""
        name = self._unused(f"{self.prefix}{kind}")
        results = [name] if outputs == 1 else [f"{name}:{i}" for i in range(outputs)]
        self._nodes.append(self._onnx.helper.make_node(kind, inputs, results, name=name, **attributes))
        return results

    def parameter(self, name: str, values: np.ndarray) -> str:
        """Add a parameter as an initializer of the graph's dtype, once if layers with tied parameters share it."""
        if self._parameters.get(name) is values:
            return name
        name = self._unused(name)
        self._parameters[name] = values
        self._add_initializer(name, np.ascontiguousarray(values, self.dtype))
        return name

    def constant(self, values: Any, dtype: Any = None) -> str:
        """Return a constant of the graph's dtype or another; equal constants are one initializer."""
        array = np.array(values, self.dtype if dtype is None else dtype)
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._unused("constant")
            self._add_initializer(self._constants[key], array)
        return self._constants[key]

    def cast(self, x: str, dtype: Any = None) -> str:
        """Convert to the graph's dtype or another."""
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(self.dtype if dtype is None else np.dtype(dtype))
        return self.op("Cast", x, to=kind)

    def size(self, x: str, axis: int) -> str:
        """Return the size of an axis, int64 `[1]`."""
        return self.op("Gather", self.op("Shape", x), self.constant([axis], np.int64), axis=0)

    def reshape(self, x: str, shape: list[int]) -> str:
        """Reshape; -1 is inferred, and 0 keeps the size of the axis with the same number."""
        return self.op("Reshape", x, self.constant(shape, np.int64))

    def unsqueeze(self, x: str, *axes: int) -> str:
        """Insert axes of size 1."""
        return self.op("Unsqueeze", x, self.constant(list(axes), np.int64))

    def squeeze(self, x: str, axis: int) -> str:
        """Remove an axis of size 1."""
        return self.op("Squeeze", x, self.constant([axis], np.int64))

    def output(self, x: str, name: str) -> None:
        """Give a result the name of an output, as float32."""
        kind = self._onnx.TensorProto.FLOAT
        self._nodes.append(self._onnx.helper.make_node("Cast", [x], [name], name=f"output/{name}", to=kind))

    def model(self, inputs: dict[str, tuple], outputs: dict[str, tuple], version: str) -> Any:
        """Return the graph as an `onnx.ModelProto`.

        Args:
            inputs: name -> axes of the int64 inputs.
            outputs: name -> axes of the float32 outputs.
            version: version of bert_jax.
        """
        helper, kinds = self._onnx.helper, self._onnx.TensorProto
        graph = helper.make_graph(
            self._nodes,
            "bert_jax",
            [helper.make_tensor_value_info(name, kinds.INT64, axes) for name, axes in inputs.items()],
            [helper.make_tensor_value_info(name, kinds.FLOAT, axes) for name, axes in outputs.items()],
            self._initializers,
        )
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(
            graph, producer_name="bert_jax", producer_version=version, opset_imports=[opset], ir_version=_IR_VERSION
        )

    def lowest(self) -> float:
        """Return the bias of masked attention scores: finite in the graph's dtype, also after the addition."""
        return -1e9 if self.dtype == np.float32 else -3e4

    def _add_initializer(self, name: str, values: np.ndarray) -> None:
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(values.dtype)
        # `onnx.numpy_helper.from_array` would do, with another copy of the values.
        tensor = self._onnx.TensorProto(name=name, data_type=kind, dims=values.shape, raw_data=values.tobytes())
        assert len(tensor.raw_data) == math.prod(values.shape) * values.dtype.itemsize
        self._initializers.append(tensor)

    def _unused(self, name: str) -> str:
        """Return a name that no node, parameter or constant has."""
        count = self._names[name] = self._names.get(name, -1) + 1
        return f"{name}_{count}" if count else name
