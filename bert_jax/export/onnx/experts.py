"""A feed-forward block of experts as ONNX nodes."""

from typing import Any

import numpy as np

from bert_jax.config import BertConfig
from bert_jax.export.onnx.graph import OnnxGraph
from bert_jax.export.onnx.layers import add_activation


def add_experts(graph: OnnxGraph, x: str, params: dict[str, Any], name: str, config: BertConfig) -> str:
    """Add the weighted sum of each token's experts, `[B, S, D] -> [B, S, D]`."""
    weights, count = _weights(graph, x, params, name, config), config.setting("num_experts")
    shape = (count, config.intermediate_size, config.hidden_size)
    ups, downs = (np.asarray(params["experts"][part]).reshape(shape) for part in ("up", "down"))
    total = graph.parameter(f"{name}.experts.bias", params["experts"]["bias"])
    for i, weight in enumerate(graph.ops("Split", weights, outputs=count, axis=-1)):
        y = graph.op("MatMul", x, graph.parameter(f"{name}.experts.{i}.up", ups[i].T))
        y = add_activation(graph, y, config.hidden_act)
        y = graph.op("MatMul", y, graph.parameter(f"{name}.experts.{i}.down", downs[i]))
        total = graph.op("Add", total, graph.op("Mul", weight, y))
    return total


def _weights(graph: OnnxGraph, x: str, params: dict[str, Any], name: str, config: BertConfig) -> str:
    """Return the weights `[B, S, E]`: the largest probabilities of the router, and 0."""
    logits = graph.op("MatMul", x, graph.parameter(f"{name}.router", params["router"]["kernel"]))
    probabilities = graph.op("Softmax", logits, axis=-1)
    experts, used = config.setting("num_experts"), config.setting("moe_top_k")
    chosen, index = graph.ops("TopK", probabilities, graph.constant([used], np.int64), outputs=2, axis=-1)
    rows = graph.op("OneHot", index, graph.constant(experts, np.int64), graph.constant([0, 1]), axis=-1)
    product = graph.op("Mul", rows, graph.unsqueeze(chosen, -1))  # [B, S, k, E]
    return graph.op("ReduceSum", product, graph.constant([-2], np.int64), keepdims=0)
