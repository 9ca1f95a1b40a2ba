"""The position terms of disentangled attention, and DeBERTa's convolution, as ONNX nodes."""

from typing import Any, NamedTuple

import numpy as np

from bert_jax.config import BertConfig
from bert_jax.export.onnx.graph import OnnxGraph
from bert_jax.export.onnx.layers import add_activation, add_layer_norm
from bert_jax.lazy import import_object


class RelativePositions(NamedTuple):
    """The parts of disentangled attention that all layers share.

    Attributes:
        embeddings: `[R, D]`, normalised if the model does so.
        rows: term of `BertConfig.pos_att_type` -> rows of the embeddings by distance, int64 `[2S]`.
        size: the length S, int64 `[1]`.
    """

    embeddings: np.ndarray
    rows: dict[str, str]
    size: str


def relative_positions(graph: OnnxGraph, params: dict[str, Any], config: BertConfig) -> RelativePositions:
    """Return the embeddings of relative positions, and their rows for each distance of a sequence."""
    embeddings = np.asarray(params["embedding"], np.float32)
    if "layer_norm" in params:
        embeddings = _normed(embeddings, params["layer_norm"], config)
    longest = config.max_position_embeddings
    most = config.setting("max_relative_positions") or longest
    span, buckets = len(embeddings) // 2, config.setting("position_buckets")
    distance_rows = import_object("bert_jax.families.deberta.blocks.distance_rows")
    by_distance = distance_rows(longest, span, buckets, most).astype(np.int64)
    size = graph.size(graph.inputs["input_ids"], 1)
    middle = graph.constant([longest], np.int64)
    bounds = (graph.op("Sub", middle, size), graph.op("Add", middle, size))
    # As in the model: for a product of queries the distance to each key falls, and one row more eases the shift.
    orders = {"c2p": by_distance[::-1], "p2c": by_distance}
    rows = {
        kind: graph.op("Slice", graph.constant(np.append(orders[kind], orders[kind][-1]), np.int64), *bounds)
        for kind in config.setting("pos_att_type", ())
    }
    return RelativePositions(embeddings, rows, size)


def add_position_terms(
    graph: OnnxGraph,
    scores: str,
    query: str,
    key: str,
    params: dict[str, Any],
    shared: RelativePositions,
    name: str,
    config: BertConfig,
) -> str:
    """Add the position terms to the scores.

    Args:
        graph: the graph.
        scores: `[B, N, S, S]`.
        query: scaled queries, `[B, N, S, H]`.
        key: keys, `[B, N, S, H]`.
        params: the parameters of the layer's attention.
        shared: the result of `relative_positions`.
        name: name of the layer.
        config: the architecture.
    """
    for kind in config.setting("pos_att_type", ()):
        own, common, x = ("position_key", "key", query) if kind == "c2p" else ("position_query", "query", key)
        dense = params[common if config.setting("share_att_key") else own]
        table = shared.embeddings @ np.asarray(dense["kernel"], np.float32)
        table = table + np.asarray(dense["bias"], np.float32) if "bias" in dense else table
        if kind == "p2c":
            table = table * score_scale(config)
        table = table.reshape(len(table), config.num_attention_heads, config.head_size)
        laid_out = graph.op(
            "Gather", graph.parameter(f"{name}.{own}", table.transpose(1, 2, 0)), shared.rows[kind], axis=2
        )
        term = _shifted(graph, graph.op("MatMul", x, laid_out), shared.size)  # of [B, N, S, 2S]
        term = term if kind == "c2p" else graph.op("Transpose", term, perm=[0, 1, 3, 2])
        scores = graph.op("Add", scores, term)
    return scores


def score_scale(config: BertConfig) -> float:
    """Return the factor of attention scores: one over the root of the head size times the number of terms."""
    return (config.head_size * (1 + len(config.setting("pos_att_type", ())))) ** -0.5


def add_convolution(graph: OnnxGraph, x: str, y: str, params: dict[str, Any], config: BertConfig) -> str:
    """Add the convolution of the embeddings `x` to the output `y` of the first layer, both `[B, S, D]`."""
    graph.prefix = "encoder/conv/"
    mask = graph.op("Greater", graph.inputs["attention_mask"], graph.constant(0, np.int64))
    shown = graph.op("Mul", x, graph.unsqueeze(graph.cast(mask), 2))
    kernel = graph.parameter("encoder.conv.kernel", np.asarray(params["kernel"]).T)
    bias = graph.parameter("encoder.conv.bias", params["bias"])
    width = config.setting("conv_kernel_size")
    reach = width // 2
    columns = graph.op("Transpose", shown, perm=[0, 2, 1])
    columns = graph.op("Conv", columns, kernel, bias, kernel_shape=[width], pads=[reach, reach])
    found = add_activation(graph, graph.op("Transpose", columns, perm=[0, 2, 1]), config.setting("conv_act"))
    return add_layer_norm(graph, graph.op("Add", y, found), params["layer_norm"], "encoder.conv.layer_norm", config)


def _shifted(graph: OnnxGraph, x: str, size: str) -> str:
    """Return `[B, N, S, S]` from `[B, N, S, 2S]`: row q without its first S - 1 - q columns and its last q + 1."""
    zero, one, end = (graph.constant([i], np.int64) for i in (0, 1, np.iinfo(np.int64).max))
    flat = graph.reshape(x, [0, 0, -1])
    # In rows that are shorter by one, the columns of row q stand q places further to the right.
    flat = graph.op("Slice", flat, zero, graph.op("Neg", size), graph.constant([2], np.int64))
    shape = graph.op("Concat", graph.constant([0, 0], np.int64), size, graph.constant([-1], np.int64), axis=0)
    rows = graph.op("Reshape", flat, shape)
    return graph.op("Slice", rows, graph.op("Sub", size, one), end, graph.constant([3], np.int64))


def _normed(x: np.ndarray, params: dict[str, Any], config: BertConfig) -> np.ndarray:
    """Apply LayerNorm, or RMSNorm if `config.norms.norm` says so, to rows of float32."""
    if config.norms.norm == "no_norm":
        return x * params["scale"] + params.get("bias", 0)
    centred = x - x.mean(axis=-1, keepdims=True) if config.norms.norm == "layer_norm" else x
    y = centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + np.float32(config.layer_norm_eps))
    y = y * np.asarray(params["scale"], np.float32)
    return y + np.asarray(params["bias"], np.float32) if "bias" in params else y
