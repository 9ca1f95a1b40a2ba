"""Dense layers, LayerNorm and activations as ONNX nodes."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bert_jax.config import BertConfig
from bert_jax.export.onnx.graph import OnnxGraph


def add_dense(graph: OnnxGraph, x: str, params: dict[str, Any], name: str) -> str:
    """Add a dense layer, `[..., in] -> [..., out]`."""
    y = graph.op("MatMul", x, graph.parameter(f"{name}.kernel", params["kernel"]))
    return graph.op("Add", y, graph.parameter(f"{name}.bias", params["bias"])) if "bias" in params else y


def add_layer_norm(
    graph: OnnxGraph, x: str, params: dict[str, Any], name: str, config: BertConfig, epsilon: float | None = None
) -> str:
    """Add a LayerNorm over the last axis, or the norm that `config.norms.norm` names; statistics are float32."""
    epsilon = config.layer_norm_eps if epsilon is None else epsilon
    scale = graph.parameter(f"{name}.scale", params["scale"])
    bias = [graph.parameter(f"{name}.bias", params["bias"])] if "bias" in params else []
    if config.norms.norm == "layer_norm":
        return graph.op("LayerNormalization", x, scale, *bias, axis=-1, epsilon=epsilon)
    if config.norms.norm == "no_norm":
        y = graph.op("Mul", x, scale)
        return graph.op("Add", y, *bias) if bias else y
    wide = graph.cast(x, np.float32)
    mean = graph.op("ReduceMean", graph.op("Mul", wide, wide), axes=[-1], keepdims=1)
    root = graph.op("Sqrt", graph.op("Add", mean, graph.constant(epsilon, np.float32)))
    y = graph.op("Mul", graph.cast(graph.op("Div", wide, root)), scale)
    return graph.op("Add", y, *bias) if bias else y


def add_activation(graph: OnnxGraph, x: str, name: str) -> str:
    """Add an activation of `bert_jax.config.values`: one of ACTIVATION_NAMES or LAYER_ACTIVATIONS."""
    return _ACTIVATIONS[name](graph, x)


def _gelu(graph: OnnxGraph, x: str) -> str:
    # The form that onnxruntime recognises and computes in one pass.
    erf = graph.op("Erf", graph.op("Div", x, graph.constant(math.sqrt(2))))
    product = graph.op("Mul", x, graph.op("Add", erf, graph.constant(1)))
    return graph.op("Mul", product, graph.constant(0.5))


def _gelu_tanh(graph: OnnxGraph, x: str) -> str:
    cube = graph.op("Mul", graph.op("Mul", graph.op("Mul", x, x), x), graph.constant(0.044715))
    inner = graph.op("Mul", graph.op("Add", x, cube), graph.constant(math.sqrt(2 / math.pi)))
    product = graph.op("Mul", x, graph.op("Add", graph.op("Tanh", inner), graph.constant(1)))
    return graph.op("Mul", product, graph.constant(0.5))


def _clipped(graph: OnnxGraph, x: str, low: float, high: float) -> str:
    return graph.op("Clip", x, graph.constant(low), graph.constant(high))


def _sigmoid_product(graph: OnnxGraph, x: str, slope: float = 1) -> str:
    scaled = x if slope == 1 else graph.op("Mul", x, graph.constant(slope))
    return graph.op("Mul", x, graph.op("Sigmoid", scaled))


def _squared_relu(graph: OnnxGraph, x: str) -> str:
    positive = graph.op("Relu", x)
    return graph.op("Mul", positive, positive)


_ACTIVATIONS: dict[str, Callable[[OnnxGraph, str], str]] = {
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": lambda graph, x: graph.op("Relu", x),
    "silu": _sigmoid_product,
    "tanh": lambda graph, x: graph.op("Tanh", x),
    "gelu_10": lambda graph, x: _clipped(graph, _gelu(graph, x), -10, 10),
    "quick_gelu": lambda graph, x: _sigmoid_product(graph, x, 1.702),
    "leaky_relu": lambda graph, x: graph.op("LeakyRelu", x, alpha=0.01),
    "linear": lambda graph, x: x,
    "identity": lambda graph, x: x,
    "mish": lambda graph, x: graph.op("Mul", x, graph.op("Tanh", graph.op("Softplus", x))),
    "relu2": _squared_relu,
    "relu6": lambda graph, x: _clipped(graph, x, 0, 6),
    "sigmoid": lambda graph, x: graph.op("Sigmoid", x),
    "elu": lambda graph, x: graph.op("Elu", x),
    "softplus": lambda graph, x: graph.op("Softplus", x),
}
