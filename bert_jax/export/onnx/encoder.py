"""The embedding layer and the encoder as ONNX nodes."""

from typing import Any

import jax
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.config.part import expect
from bert_jax.config.positions import RotaryConfig
from bert_jax.export.onnx.disentangled import (
    RelativePositions,
    add_convolution,
    add_position_terms,
    relative_positions,
    score_scale,
)
from bert_jax.export.onnx.experts import add_experts
from bert_jax.export.onnx.graph import OnnxGraph
from bert_jax.export.onnx.layers import add_activation, add_dense, add_layer_norm
from bert_jax.export.onnx.questions import GlobalTokens, add_global_rows
from bert_jax.lazy import import_object
from bert_jax.modeling.positions import alibi_slopes, sinusoids

WORDS = "embeddings.word_embeddings"  # name of the initializer of the word embedding


def add_embeddings(graph: OnnxGraph, params: dict[str, Any], config: BertConfig) -> tuple[str, str]:
    """Add the embedding layer, `input_ids [B, S] -> [B, S, D]`.

    Returns:
        The result, and the word embedding `[V, E]`, which the masked-LM head reads too.
    """
    graph.prefix = "embeddings/"
    table = graph.parameter(WORDS, params["word_embeddings"]["embedding"])
    x = graph.op("Gather", table, graph.inputs["input_ids"], axis=0)
    if config.setting("token_dropout"):
        x = _without_masked(graph, x, config)
    if config.setting("rescale_embeddings"):
        x = graph.op("Mul", x, graph.constant(config.hidden_size**0.5))
    if config.setting("word_projection"):
        x = _projected_words(graph, x, params, config)
    if config.positions.kind in ("absolute", "sinusoidal"):
        x = graph.op("Add", x, _positions(graph, params, config))
    if config.type_vocab_size:
        types = params["token_type_embeddings"]["embedding"]
        if config.type_vocab_size == 1:
            segments = graph.parameter("embeddings.token_type_embeddings", types[0])
        else:
            segments = graph.op(
                "Gather",
                graph.parameter("embeddings.token_type_embeddings", types),
                graph.inputs["token_type_ids"],
                axis=0,
            )
        x = graph.op("Add", x, segments)
    if config.setting("task_type_vocab_size"):  # every token is of task 0
        task = params["task_type_embeddings"]["embedding"][0]
        x = graph.op("Add", x, graph.parameter("embeddings.task_type_embeddings", task))

    if config.setting("norm_after_projection"):
        x = _projected(graph, x, params)
    if config.embeddings.embedding_norm:
        epsilon = config.norms.embedding_mlp_norm_eps
        x = add_layer_norm(graph, x, params["layer_norm"], "embeddings.layer_norm", config, epsilon)
    return x if config.setting("norm_after_projection") or config.setting("word_projection") else _projected(
        graph, x, params
    ), table


def _projected(graph: OnnxGraph, x: str, params: dict[str, Any]) -> str:
    return add_dense(graph, x, params["projection"], "embeddings.projection") if "projection" in params else x


def _projected_words(graph: OnnxGraph, x: str, params: dict[str, Any], config: BertConfig) -> str:
    """Project word embeddings `[B, S, E]` to `[B, S, D]`, with both neighbours' if `trigram_input`."""
    if config.setting("trigram_input"):
        pads = graph.constant([0, 1, 0, 0, 1, 0], np.int64)  # pad with a zero vector on either side
        is_token = graph.op("Greater", graph.inputs["attention_mask"], graph.constant(0, np.int64))
        x = graph.op("Mul", x, graph.cast(graph.unsqueeze(is_token, 2)))
        padded = graph.op("Pad", x, pads)
        axis, start, two = (graph.constant([number], np.int64) for number in (1, 0, 2))
        most = graph.constant([np.iinfo(np.int64).max], np.int64)
        following = graph.op("Slice", padded, two, most, axis)
        previous = graph.op("Slice", padded, start, graph.constant([-2], np.int64), axis)
        x = graph.op("Concat", following, x, previous, axis=-1)
    return _projected(graph, x, params)


def _without_masked(graph: OnnxGraph, x: str, config: BertConfig) -> str:
    """Set the embeddings of masked tokens to 0, and scale the others by the share of tokens that are not masked."""
    masked = graph.op("Equal", graph.inputs["input_ids"], graph.constant(config.setting("mask_token_id"), np.int64))
    axis = graph.constant([1], np.int64)
    count = graph.op("ReduceSum", graph.cast(masked, np.float32), axis, keepdims=1)
    length = graph.op("ReduceSum", graph.cast(graph.inputs["attention_mask"], np.float32), axis, keepdims=1)
    share = graph.op("Div", count, graph.op("Max", length, graph.constant(1, np.float32)))
    kept = graph.op("Sub", graph.constant(1, np.float32), share)
    usual = 1 - import_object("bert_jax.families.esm.modules.MASKED_SHARE")
    scale = graph.op("Div", graph.constant(usual, np.float32), kept)
    x = graph.op("Where", graph.unsqueeze(masked, 2), graph.constant(0), x)
    return graph.op("Mul", x, graph.cast(graph.unsqueeze(scale, 2)))


def _positions(graph: OnnxGraph, params: dict[str, Any], config: BertConfig) -> str:
    """Add learned or sinusoidal position embeddings, `[S, E]`, or `[B, S, E]` in families with a position offset."""
    if config.positions.kind == "absolute":
        rows = params["position_embeddings"]["embedding"]
    else:
        rows = sinusoids(config.max_position_embeddings, config.embeddings.added_width(config.hidden_size))
    table = graph.parameter("embeddings.position_embeddings", rows)
    if not config.positions.position_offset:
        # A gather, not a slice: a sequence that is too long is an error of the runtime.
        return graph.op("Gather", table, _range(graph), axis=0)
    # As in RoBERTa: positions count only tokens, and padding takes the row before the first position.
    padding = graph.op("Equal", graph.inputs["input_ids"], graph.constant(config.pad_token_id, np.int64))
    is_token = graph.cast(graph.op("Not", padding), np.int64)
    places = graph.op("Mul", graph.op("CumSum", is_token, graph.constant(1, np.int64)), is_token)
    rows_of = graph.op("Add", places, graph.constant(config.positions.position_offset - 1, np.int64))
    return graph.op("Gather", table, rows_of, axis=0)


def add_encoder(
    graph: OnnxGraph, x: str, params: dict[str, Any], config: BertConfig, tokens: GlobalTokens | None = None
) -> str:
    """Add the encoder layers, `[B, S, D] -> [B, S, D]`; the stacked parameters become those of each layer.

    `tokens` are those with global attention.
    """
    graph.prefix = "encoder/"
    relative = params.get("relative_attention_bias")
    by_head = None if relative is None else _relative_bias(graph, relative["embedding"], config)
    if config.positions.kind == "alibi":
        by_head = _alibi(graph, config)
    biases = {window: _attention_bias(graph, window, by_head, tokens) for window in dict.fromkeys(config.windows)}
    rotations: dict[int | None, tuple[str, str]] = {}
    if isinstance(positions := config.positions, RotaryConfig):
        speeds, of_theta = params.get("inverse_frequencies"), {}
        for window in biases:
            theta = positions.theta(window)
            if theta not in of_theta:
                of_theta[theta] = _rotation(graph, theta, config.head_size, positions, speeds)
            rotations[window] = of_theta[theta]
    shared = None
    if config.setting("pos_att_type"):
        shared = relative_positions(graph, params["relative_embeddings"], config)
    embeddings, layers = x, _layers(params, config)
    for i, (row, window) in enumerate(zip(config.parameter_rows, config.windows, strict=True)):
        graph.prefix = f"encoder/layers.{i}/"
        plan = (biases[window], rotations.get(window), shared, tokens)
        has_norm = config.norms.first_layer_norm or i > 0
        wide, inputs, layer = x, None, layers[row]
        if config.setting("intra_bottleneck_size"):
            x, inputs = _narrowed(graph, x, layer["bottleneck"], row, config)
        x = _attention_block(graph, x, layer["attention"], plan, (row, has_norm), config, inputs)
        for block in (*(f"ffn_{n}" for n in range(config.setting("num_feedforward_networks", 1) - 1)), "mlp"):
            x = _feed_forward(graph, x, layer[block], f"encoder.layers.{row}.{block}", config)
        if config.setting("intra_bottleneck_size"):
            x = graph.op("Add", _bottleneck(graph, x, layer["bottleneck"], "output", row), wide)
            x = _bottleneck_norm(graph, x, layer["bottleneck"], "output", row, config)
        if "conv" in params and i == 0:
            x = add_convolution(graph, embeddings, x, params["conv"], config)
    graph.prefix = "encoder/"
    if config.norms.norm_placement == "pre":
        x = add_layer_norm(graph, x, params["layer_norm"], "encoder.layer_norm", config)
    return x


def _layers(params: dict[str, Any], config: BertConfig) -> list[dict[str, Any]]:
    """Return the parameters of each layer, or of each row of tied layers."""
    stacks = {False: iter(range(config.num_hidden_layers)), True: iter(range(config.num_hidden_layers))}
    kinds = config.has_experts[: config.num_parameter_rows]
    rows = [("moe_layers" if kind else "layers", next(stacks[kind])) for kind in kinds]
    return [jax.tree.map(lambda leaf, row=row: np.asarray(leaf[row]), params[stack]) for stack, row in rows]


def _narrowed(
    graph: OnnxGraph, x: str, params: dict[str, Any], row: int, config: BertConfig
) -> tuple[str, tuple[str, str]]:
    """Return the input of a layer's residual sums, `[B, S, I]`, and those of queries and keys and of values."""

    def part(name: str) -> str:
        return _bottleneck_norm(graph, _bottleneck(graph, x, params, name, row), params, name, row, config)

    narrow = part("input")
    if config.setting("use_bottleneck_attention"):
        return narrow, (narrow, narrow)
    return narrow, (part("query_key") if config.setting("key_query_shared_bottleneck") else x, x)


def _bottleneck(graph: OnnxGraph, x: str, params: dict[str, Any], part: str, row: int) -> str:
    return add_dense(graph, x, params[part], f"encoder.layers.{row}.bottleneck.{part}")


def _bottleneck_norm(graph: OnnxGraph, x: str, params: dict[str, Any], part: str, row: int, config: BertConfig) -> str:
    part = f"{part}_norm"
    return add_layer_norm(graph, x, params[part], f"encoder.layers.{row}.bottleneck.{part}", config)


def _attention_block(
    graph: OnnxGraph,
    x: str,
    params: dict[str, Any],
    plan: tuple[str, tuple[str, str] | None, RelativePositions | None, GlobalTokens | None],
    row: tuple[int, bool],  # row of the stacked parameters, and whether a LayerNorm precedes the block
    config: BertConfig,
    inputs: tuple[str, str] | None = None,  # inputs of queries and keys, and of values; None = x
) -> str:
    number, has_norm = row
    pre, name = config.norms.norm_placement == "pre", f"encoder.layers.{number}.attention"

    def norm(x: str) -> str:
        return add_layer_norm(graph, x, params["layer_norm"], f"{name}.layer_norm", config)

    # Without a LayerNorm in the first layer, the embeddings have normalised its input.
    normed = norm(x) if pre and has_norm else x
    bias, rotation, shared, tokens = plan
    of_keys, of_values = (normed, normed) if inputs is None else inputs

    def projected(part: str) -> str:
        y = add_dense(graph, of_values if part == "value" else of_keys, params[part], f"{name}.{part}")
        if config.attention.qk_norm and part != "value":
            y = add_layer_norm(graph, y, params[f"{part}_norm"], f"{name}.{part}_norm", config)
        return _heads(graph, y, config, config.num_attention_heads if part == "query" else config.key_value_heads)

    query, key, value = (projected(part) for part in ("query", "key", "value"))
    if rotation is not None:
        query, key = _rotated(graph, query, rotation, config), _rotated(graph, key, rotation, config)
        if expect(config.positions, RotaryConfig).rotary_value:
            value = _rotated(graph, value, rotation, config)
    query = graph.op("Mul", query, graph.constant(score_scale(config)))
    scores = _grouped_product(graph, query, graph.op("Transpose", key, perm=[0, 1, 3, 2]), config)  # [B, N, S, S]
    if shared is not None:
        scores = add_position_terms(graph, scores, query, key, params, shared, name, config)
    probabilities = graph.op("Softmax", graph.op("Add", scores, bias), axis=-1)
    context = graph.op("Transpose", _grouped_product(graph, probabilities, value, config), perm=[0, 2, 1, 3])
    context = graph.reshape(context, [0, 0, config.attention_width])
    if tokens is not None:
        context = add_global_rows(graph, normed, context, params, tokens, name, config)
    y = add_dense(graph, context, params["output"], f"{name}.output")
    if config.attention.attention_output_norm:
        y = add_layer_norm(graph, graph.op("Add", y, x), params["output_norm"], f"{name}.output_norm", config)
    x = graph.op("Add", y, x)
    return x if pre else norm(x)


def _heads(graph: OnnxGraph, x: str, config: BertConfig, heads: int) -> str:
    """Split into heads, `[B, S, heads * H] -> [B, heads, S, H]`."""
    apart = graph.reshape(x, [0, 0, heads, config.head_size])
    return graph.op("Transpose", apart, perm=[0, 2, 1, 3])


def _grouped_product(graph: OnnxGraph, x: str, y: str, config: BertConfig) -> str:
    """Multiply `x [B, N, S, ...]` by `y`, which has a head for each group of heads of `x`; nothing is repeated."""
    if config.key_value_heads == config.num_attention_heads:
        return graph.op("MatMul", x, y)
    product = graph.op("MatMul", graph.reshape(x, [0, config.key_value_heads, -1, 0]), y)
    return graph.reshape(product, [0, config.num_attention_heads, -1, 0])


def _feed_forward(graph: OnnxGraph, x: str, params: dict[str, Any], name: str, config: BertConfig) -> str:
    pre, epsilon = (
        config.norms.norm_placement == "pre",
        config.norms.embedding_mlp_norm_eps if name.endswith("mlp") else None,
    )

    def norm(x: str) -> str:
        return add_layer_norm(graph, x, params["layer_norm"], f"{name}.layer_norm", config, epsilon)

    normed = norm(x) if pre else x
    if "experts" in params:
        x = graph.op("Add", add_experts(graph, normed, params, name, config), x)
        return x if pre else norm(x)
    y = add_dense(graph, normed, params["up"], f"{name}.up")
    if config.feed_forward.gated:
        gate = add_activation(graph, add_dense(graph, normed, params["gate"], f"{name}.gate"), config.hidden_act)
        y = graph.op("Mul", y, gate)
    else:
        y = add_activation(graph, y, config.hidden_act)
    x = graph.op("Add", add_dense(graph, y, params["down"], f"{name}.down"), x)
    return x if pre else norm(x)


def _range(graph: OnnxGraph) -> str:
    """Return the positions 0, 1, ..., int64 `[S]`."""
    length = graph.squeeze(graph.size(graph.inputs["input_ids"], 1), 0)
    return graph.op("Range", graph.constant(0, np.int64), length, graph.constant(1, np.int64))


def _distances(graph: OnnxGraph) -> str:
    """Return key position minus query position, int64 `[S, S]`."""
    places = _range(graph)
    return graph.op("Sub", graph.unsqueeze(places, 0), graph.unsqueeze(places, 1))


def _attention_bias(
    graph: OnnxGraph, window: int | None, relative: str | None, tokens: GlobalTokens | None = None
) -> str:
    """Return the bias of the scores from mask, window and relative positions, `[B, 1 or N, 1 or S, S]`."""
    seen = graph.unsqueeze(graph.op("Greater", graph.inputs["attention_mask"], graph.constant(0, np.int64)), 1, 2)
    if window is not None:
        distance = graph.op("Abs", _distances(graph))
        near = graph.op("LessOrEqual", distance, graph.constant(window, np.int64))
        if tokens is not None:
            near = graph.op("Or", near, graph.unsqueeze(tokens.chosen, 1, 2))
        seen = graph.op("And", seen, near)
    bias = graph.op("Where", seen, graph.constant(0), graph.constant(graph.lowest()))
    return bias if relative is None else graph.op("Add", bias, relative)


def _relative_bias(graph: OnnxGraph, table: np.ndarray, config: BertConfig) -> str:
    """Return the bias of relative positions, `[1, N, S, S]`, from the table `[buckets, N]`."""
    longest = config.max_position_embeddings
    buckets = import_object("bert_jax.families.mpnet.modules.relative_buckets")(longest, len(table))
    # Distances from 1 - longest to longest - 1: the last row backwards, then the first row.
    of_distances = np.concatenate([buckets[-1], buckets[0, 1:]])
    by_distance = graph.parameter("encoder.relative_attention_bias", np.asarray(table)[of_distances])
    row = graph.op("Add", _distances(graph), graph.constant(longest - 1, np.int64))
    return graph.unsqueeze(graph.op("Transpose", graph.op("Gather", by_distance, row, axis=0), perm=[2, 0, 1]), 0)


def _alibi(graph: OnnxGraph, config: BertConfig) -> str:
    """Return the bias of ALiBi, `[1, N, S, S]`."""
    slopes = graph.constant(-alibi_slopes(config.num_attention_heads)[:, None, None])
    distance = graph.cast(graph.op("Abs", _distances(graph)))
    return graph.unsqueeze(graph.op("Mul", slopes, distance), 0)


def _rotation(
    graph: OnnxGraph, theta: float, size: int, positions: RotaryConfig, speeds: np.ndarray | None
) -> tuple[str, str]:
    """Return cosines and sines of rotary positions, `[S, H / 2]`; angles are float32 in every graph.

    If the parameters do not have the speeds, these are those of the base `theta`.
    """
    if speeds is None:
        speeds = np.float32(theta) ** -(np.arange(0, size, 2, dtype=np.float32) / np.float32(size))
        speeds = speeds / np.float32(positions.rope_factor)
    places = graph.unsqueeze(graph.cast(_range(graph), np.float32), 1)
    angles = graph.op("Mul", places, graph.constant(speeds, np.float32))
    return graph.cast(graph.op("Cos", angles)), graph.cast(graph.op("Sin", angles))


def _rotated(graph: OnnxGraph, x: str, rotation: tuple[str, str], config: BertConfig) -> str:
    """Apply rotary positions to `[B, N, S, H]`."""
    cosines, sines = rotation
    interleaved = expect(config.positions, RotaryConfig).rotary_interleaved
    if interleaved:
        pairs = graph.reshape(x, [0, 0, -1, config.head_size // 2, 2])
        a, b = (graph.squeeze(half, -1) for half in graph.ops("Split", pairs, outputs=2, axis=-1))
    else:
        a, b = graph.ops("Split", x, outputs=2, axis=-1)
    first = graph.op("Sub", graph.op("Mul", a, cosines), graph.op("Mul", b, sines))
    second = graph.op("Add", graph.op("Mul", b, cosines), graph.op("Mul", a, sines))
    if not interleaved:
        return graph.op("Concat", first, second, axis=-1)
    pairs = graph.op("Concat", graph.unsqueeze(first, -1), graph.unsqueeze(second, -1), axis=-1)
    return graph.reshape(pairs, [0, 0, -1, config.head_size])
