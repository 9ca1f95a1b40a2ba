"""The heads and the pooling of sentence embeddings as ONNX nodes."""

from typing import Any

import numpy as np

from bert_jax.config import BertConfig
from bert_jax.export.onnx.graph import OnnxGraph
from bert_jax.export.onnx.layers import add_activation, add_dense, add_layer_norm
from bert_jax.export.onnx.questions import add_penalty, add_question_tokens
from bert_jax.head_names import CLASSIFIERS


def add_head(graph: OnnxGraph, x: str, table: str, params: dict[str, Any], config: BertConfig, head: str) -> dict:
    """Add a head to the last hidden state `[B, S, D]`.

    Args:
        graph: the graph.
        x: the last hidden state.
        table: the word embedding `[V, E]`.
        params: the canonical parameter tree.
        config: the architecture.
        head: one of `modeling.HEADS`.

    Returns:
        The results by the names of `BertOutput`'s fields.
    """
    graph.prefix = "head/"
    if head == "encoder":
        pooled = {"pooler_output": _pooler(graph, x, params, config)} if config.pooler else {}
        return {"last_hidden_state": x} | pooled
    if head == "sentence_embedding":
        return {"last_hidden_state": x, "sentence_embedding": _sentence(graph, x, params, config)}
    if head == "multi_vector":
        return {"token_embeddings": _layered(graph, x, params, config)}
    if head in ("masked_lm", "pretraining", "sparse_embedding"):
        logits = _masked_lm(graph, x, table, params.get("mlm", {}), config)
        if head == "masked_lm":
            return {"logits": logits}
        if head == "sparse_embedding":
            return {"sentence_embedding": _splade(graph, logits, config.pooling)}
        relation = add_dense(graph, _pooler(graph, x, params, config), params["nsp"], "nsp")
        return {"prediction_logits": logits, "seq_relationship_logits": relation}
    if head == "next_sentence":
        return {"logits": add_dense(graph, _pooler(graph, x, params, config), params["nsp"], "nsp")}
    if head == "replaced_token_detection":
        part = params["discriminator"]
        if config.setting("discriminator_norm"):
            x = graph.op("Add", x, graph.unsqueeze(_first(graph, x), 1))
            x = add_layer_norm(graph, x, part["layer_norm"], "discriminator.layer_norm", _head_norm(config))
        x = add_activation(graph, add_dense(graph, x, part["dense"], "discriminator.dense"), config.hidden_act)
        return {"logits": graph.squeeze(add_dense(graph, x, part["output"], "discriminator.output"), -1)}
    x = _summary(graph, x, params, config, head)
    if head in CLASSIFIERS:
        logits = add_dense(graph, x, params["classifier"], "classifier")
        return {"logits": _pool(graph, logits, "mean", _members(graph)) if _is_late(config, head) else logits}
    if config.setting("span_head") == "feed_forward":
        part = params["span"]
        y = add_activation(graph, add_dense(graph, x, part["up"], "span.up"), config.hidden_act)
        y = graph.op("Add", add_dense(graph, y, part["down"], "span.down"), x)
        x = add_layer_norm(graph, y, part["layer_norm"], "span.layer_norm", _head_norm(config))
    both = add_dense(graph, x, params["qa_outputs"], "qa_outputs")
    logits = [graph.squeeze(part, -1) for part in graph.ops("Split", both, outputs=2, axis=-1)]
    if config.setting("span_head") == "feed_forward":
        question = add_question_tokens(graph, config)
        logits = [add_penalty(graph, part, question) for part in logits]
    return dict(zip(("start_logits", "end_logits"), logits, strict=True))


def _first(graph: OnnxGraph, x: str) -> str:
    """Return the first token's vector, `[B, S, D] -> [B, D]`."""
    return graph.op("Gather", x, graph.constant(0, np.int64), axis=1)


def _pooler(graph: OnnxGraph, x: str, params: dict[str, Any], config: BertConfig) -> str:
    first = _first(graph, x)
    return (
        graph.op("Tanh", add_dense(graph, first, params["pooler"]["dense"], "pooler.dense"))
        if config.setting("pooler_dense", True)
        else first
    )


def _head_norm(config: BertConfig) -> BertConfig:
    """Return the config of a head's LayerNorm, which is plain where those of the encoder are `no_norm`."""
    return config.replace(norm="layer_norm") if config.norms.norm == "no_norm" else config


def _transform(graph: OnnxGraph, x: str, params: dict[str, Any], name: str, config: BertConfig) -> str:
    x = add_activation(
        graph, add_dense(graph, x, params["dense"], f"{name}.dense"), config.heads.head_act or config.hidden_act
    )
    return add_layer_norm(graph, x, params["layer_norm"], f"{name}.layer_norm", _head_norm(config))


def _masked_lm(graph: OnnxGraph, x: str, table: str, params: dict[str, Any], config: BertConfig) -> str:
    x = _transform(graph, x, params, "mlm", config) if config.heads.head_transform else x
    if "decoder" in params:
        table = graph.parameter("mlm.decoder", params["decoder"]["embedding"])
    columns = graph.op("Transpose", table, perm=[1, 0])
    if "further_decoder" in params:
        further = graph.parameter("mlm.further_decoder", np.asarray(params["further_decoder"]["embedding"]).T)
        columns = graph.op("Concat", columns, further, axis=0)
    logits = graph.op("MatMul", x, columns)
    return graph.op("Add", logits, graph.parameter("mlm.bias", params["bias"])) if "bias" in params else logits


def _splade(graph: OnnxGraph, logits: str, pooling: str) -> str:
    """Pool logits `[B, S, V]` to a sparse embedding, float32 `[B, V]`, as `bert_jax.modeling.sparse.splade`."""
    one, axis = graph.constant(1, np.float32), graph.constant([1], np.int64)
    x = graph.op("Mul", graph.cast(logits, np.float32), graph.unsqueeze(_members(graph), 2))
    if "sum" not in pooling:
        x = graph.op("ReduceMax", x, axes=[1], keepdims=0)
    x = graph.op("Relu", x)
    for _ in range(1 + pooling.endswith("log1p")):
        x = graph.op("Log", graph.op("Add", x, one))
    return graph.op("ReduceSum", x, axis, keepdims=0) if "sum" in pooling else x


def _summary(graph: OnnxGraph, x: str, params: dict[str, Any], config: BertConfig, head: str) -> str:
    """Add the layer between the encoder and a head: `[B, D]` for a text's classes, `[B, S, D]` for tokens and spans."""
    kind = config.summary_of(head)
    if head in ("sequence_classification", "multiple_choice"):
        if kind == "pooler":
            return _pooler(graph, x, params, config)
        if config.heads.classifier_pooling != "late":
            x = (
                _pool(graph, x, "mean", _members(graph))
                if config.heads.classifier_pooling == "mean"
                else _first(graph, x)
            )
        x = graph.cast(x)
    if kind == "transform":
        return _transform(graph, x, params["summary"], "summary", config)
    if kind is None:
        return x
    activation = config.hidden_act if kind == "hidden_act" else kind
    return add_activation(graph, add_dense(graph, x, params["summary"]["dense"], "summary.dense"), activation)


def _is_late(config: BertConfig, head: str) -> bool:
    """Return whether a classifier's logits are the mean of those of all tokens."""
    of_texts = head in ("sequence_classification", "multiple_choice")
    return of_texts and config.heads.classifier_pooling == "late" and config.summary_of(head) != "pooler"


def _sentence(graph: OnnxGraph, x: str, params: dict[str, Any], config: BertConfig) -> str:
    """Add the pooling and the layers of a sentence embedding model, `[B, S, D] -> [B, features]`."""
    if config.poolings == ("cls",) and not config.pooling_skip:
        x = graph.cast(_first(graph, x), np.float32)
    else:
        members = _members(graph, config.pooling_skip)
        vectors = [_pool(graph, x, pooling, members) for pooling in config.poolings]
        x = vectors[0] if len(vectors) == 1 else graph.op("Concat", *vectors, axis=-1)
    return _layered(graph, x, params, config)


def _layered(graph: OnnxGraph, x: str, params: dict[str, Any], config: BertConfig) -> str:
    """Add the layers after the pooling, or after the encoder in a model with a vector for each token."""
    layers, x = params.get("embedding_layers", {}), graph.cast(x)
    for number, layer in enumerate(config.embedding_layers):
        part, name = layers.get(f"layer_{number}", {}), f"embedding_layers.{number}"
        if layer.kind == "dense":
            y = add_activation(graph, add_dense(graph, x, part["dense"], f"{name}.dense"), layer.activation)
            if layer.residual:
                y = graph.op(
                    "Add", y, add_dense(graph, x, part["residual"], f"{name}.residual") if "residual" in part else x
                )
            x = y
        elif layer.kind == "layer_norm":  # with PyTorch's defaults, unlike the encoder's
            plain = config.replace(norm="layer_norm", norm_bias=True, layer_norm_eps=1e-5)
            x = add_layer_norm(graph, x, part["layer_norm"], f"{name}.layer_norm", plain)
        elif layer.kind == "normalize":
            x = _normalized(graph, x)
    return _normalized(graph, x) if config.normalize_embeddings else x


def _normalized(graph: OnnxGraph, x: str) -> str:
    """Scale `[..., features]` to unit length, in float32; a zero vector stays zero."""
    x = graph.cast(x, np.float32)
    squares = graph.op("ReduceSum", graph.op("Mul", x, x), graph.constant([-1], np.int64), keepdims=1)
    length = graph.op("Sqrt", graph.op("Max", squares, graph.constant(1e-24, np.float32)))
    return graph.cast(graph.op("Div", x, length))


def _members(graph: OnnxGraph, skip: int = 0) -> str:
    """Return which tokens are pooled, float32 `[B, S]`: not padding, and not among the first `skip`."""
    members = graph.op("Greater", graph.inputs["attention_mask"], graph.constant(0, np.int64))
    if skip:
        late = graph.op("GreaterOrEqual", _positions_from(graph, 0), graph.constant(skip, np.int64))
        members = graph.op("And", members, late)
    return graph.cast(members, np.float32)


def _positions_from(graph: OnnxGraph, first: int) -> str:
    """Return the numbers first, first + 1, ..., int64 `[S]`."""
    start, one = graph.constant(first, np.int64), graph.constant(1, np.int64)
    end = graph.op("Add", graph.squeeze(graph.size(graph.inputs["input_ids"], 1), 0), start)
    return graph.op("Range", start, end, one)


def _pool(graph: OnnxGraph, x: str, pooling: str, members: str) -> str:
    """Pool `[B, S, D]` to float32 `[B, D]`, as `bert_jax.modeling.pooling.pool_tokens`; 0 where no token is pooled."""
    x, zero = graph.cast(x, np.float32), graph.constant(0, np.float32)
    found = graph.op("Greater", graph.op("ReduceMax", members, axes=[1], keepdims=1), zero)  # [B, 1]
    if pooling in ("cls", "lasttoken"):
        at = graph.op("ArgMax", members, axis=1, keepdims=1, select_last_index=int(pooling == "lasttoken"))
        pooled = graph.op("GatherND", x, at, batch_dims=1)
    elif pooling == "max":
        lowest = graph.constant(np.finfo(np.float32).min, np.float32)
        inside = graph.op("Greater", graph.unsqueeze(members, 2), zero)
        pooled = graph.op("ReduceMax", graph.op("Where", inside, x, lowest), axes=[1], keepdims=0)
    else:
        weights = members
        if pooling == "weightedmean":
            weights = graph.op("Mul", members, graph.cast(_positions_from(graph, 1), np.float32))
        axis = graph.constant([1], np.int64)
        total = graph.op("ReduceSum", weights, axis, keepdims=1)
        scale = graph.op("Sqrt", total) if pooling == "mean_sqrt_len_tokens" else total
        scale = graph.op("Where", found, scale, graph.constant(1, np.float32))
        summed = graph.op("ReduceSum", graph.op("Mul", x, graph.unsqueeze(weights, 2)), axis, keepdims=0)
        pooled = graph.op("Div", summed, scale)
    return graph.op("Where", found, pooled, zero)
