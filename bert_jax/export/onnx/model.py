"""A whole model as an ONNX model, and its files."""

from typing import Any

import numpy as np

import bert_jax
from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.export.onnx.encoder import add_embeddings, add_encoder
from bert_jax.export.onnx.graph import OnnxGraph
from bert_jax.export.onnx.heads import add_head
from bert_jax.export.onnx.questions import add_global_tokens, add_question_types, check_attention
from bert_jax.export.signature import signature_of
from bert_jax.extras import import_extra
from bert_jax.modeling import Params

# A protocol buffer holds 2 GiB at most: the parameters of a larger model are in a file beside the graph.
MOST_BYTES_INSIDE = 2_000_000_000


def onnx_model(config: BertConfig, head: str, params: Params, dtype: str = "float32") -> Any:
    """Build the ONNX model of any family and head, for any batch size and length up to the model's positions.

    Args:
        config: the architecture, without quantization.
        head: one of `modeling.HEADS`.
        params: the canonical parameter tree of float32 arrays.
        dtype: dtype of parameters and activations: float32 or float16. LayerNorm statistics, angles of rotary
            positions, pooling and outputs are float32 in both.

    Returns:
        An `onnx.ModelProto` with the inputs (int64) and outputs (float32) of `signature_of`.

    Raises:
        InputError: the package onnx is not installed, or attention may be block-sparse.
    """
    check_attention(config)
    graph, signature = OnnxGraph(dtype), signature_of(config, head)
    for name in signature.inputs:
        graph.inputs[name] = _rows(graph, name) if head == "multiple_choice" else name
    if "span" in params:
        add_question_types(graph, config)
    x, table = add_embeddings(graph, params["embeddings"], config)
    x = add_encoder(graph, x, params["encoder"], config, add_global_tokens(graph, config, head))
    results = add_head(graph, x, table, params, config, head)
    for name in signature.outputs:
        value = results[name]
        if head == "multiple_choice":  # [B * K, 1] -> [B, K]
            sizes = [graph.size("input_ids", axis) for axis in (0, 1)]
            value = graph.op("Reshape", value, graph.op("Concat", *sizes, axis=0))
        graph.output(value, name)
    return graph.model(signature.inputs, signature.outputs, bert_jax.__version__)


def _rows(graph: OnnxGraph, name: str) -> str:
    """Make a row of each choice, `[B, K, S] -> [B * K, S]`."""
    shape = graph.op("Concat", graph.constant([-1], np.int64), graph.size(name, 2), axis=0)
    return graph.op("Reshape", name, shape)


def write_onnx(model: Any, path: storage.Path) -> None:
    """Write an ONNX model to a local path, and check the file by onnx.

    The parameters of a model of more than `MOST_BYTES_INSIDE` are in `PATH_data` beside it.
    """
    onnx = import_extra("onnx", "onnx")
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    options: dict[str, Any] = {}
    if size > MOST_BYTES_INSIDE:
        options = {"save_as_external_data": True, "all_tensors_to_one_file": True, "location": f"{path.name}_data"}
    onnx.save_model(model, str(path), **options)
    onnx.checker.check_model(str(path))
