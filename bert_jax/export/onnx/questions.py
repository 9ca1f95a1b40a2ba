"""Tokens that are found by separators: those with global attention, and those of a question, as ONNX nodes."""

from typing import Any, NamedTuple

import numpy as np

from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.export.onnx.graph import OnnxGraph
from bert_jax.export.onnx.layers import add_dense


class GlobalTokens(NamedTuple):
    """The tokens with global attention.

    Attributes:
        chosen: which tokens these are, bool `[B, S]`.
        bias: bias of their scores from the mask, `[B, 1, 1, S]`.
        only_first: whether the first token is the only one.
    """

    chosen: str
    bias: str
    only_first: bool


def check_attention(config: BertConfig) -> None:
    """Raise InputError when attention depends on the length: a graph is for any length."""
    longest = config.attention.longest_full
    if longest is not None and longest < config.max_position_embeddings:
        raise InputError(
            f"attention_type: expected original_full, as a graph of any length has no block-sparse attention, found "
            f"block_sparse; up to {longest} tokens the two are the same"
        )


def add_global_tokens(graph: OnnxGraph, config: BertConfig, head: str) -> GlobalTokens | None:
    """Add the tokens with global attention of a head; None if it has none."""
    heads = ("sequence_classification", "question_answering", "multiple_choice")
    if not config.setting("max_global_tokens") or head not in heads:
        return None
    graph.prefix = "global_tokens/"
    is_token = graph.op("Greater", graph.inputs["attention_mask"], graph.constant(0, np.int64))
    only_first = head == heads[0]
    if only_first:
        chosen = graph.op("Equal", _places(graph), graph.constant(1, np.int64))
    else:
        found = _count(graph, graph.op("Equal", graph.inputs["input_ids"], _separator(graph, config)))
        if head == "question_answering":
            chosen = graph.op("Equal", found, graph.constant(0, np.int64))
        else:
            after = _count(graph, graph.op("Greater", found, graph.constant(0, np.int64)))
            chosen = graph.op("Greater", after, graph.constant(2, np.int64))
    chosen = graph.op("And", chosen, is_token)
    most = graph.constant(config.setting("max_global_tokens"), np.int64)
    chosen = graph.op("And", chosen, graph.op("LessOrEqual", _count(graph, chosen), most))
    bias = graph.op("Where", graph.unsqueeze(is_token, 1, 2), graph.constant(0), graph.constant(graph.lowest()))
    return GlobalTokens(chosen, bias, only_first)


def add_global_rows(
    graph: OnnxGraph,
    x: str,  # [B, S, D], the input of the projections
    context: str,  # [B, S, N * H]
    params: dict[str, Any],
    tokens: GlobalTokens,
    name: str,
    config: BertConfig,
) -> str:
    """Return the context in which the rows of tokens with global attention are those of their own projections."""
    heads, size = config.num_attention_heads, config.head_size
    queries = graph.op("Slice", x, *(graph.constant([n], np.int64) for n in (0, 1, 1))) if tokens.only_first else x

    def projected(part: str, x: str) -> str:
        y = graph.reshape(add_dense(graph, x, params[part], f"{name}.{part}"), [0, 0, heads, size])
        return graph.op("Transpose", y, perm=[0, 2, 1, 3])

    query = graph.op("Mul", projected("global_query", queries), graph.constant(size**-0.5))
    keys = graph.op("Transpose", projected("global_key", x), perm=[0, 1, 3, 2])
    scores = graph.op("Add", graph.op("MatMul", query, keys), tokens.bias)
    rows = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), projected("global_value", x))
    rows = graph.reshape(graph.op("Transpose", rows, perm=[0, 2, 1, 3]), [0, 0, config.attention_width])
    return graph.op("Where", graph.unsqueeze(tokens.chosen, 2), rows, context)


def add_question_types(graph: OnnxGraph, config: BertConfig) -> None:
    """Replace `token_type_ids` of rows that have none by those of the span head: 0 for the question, 1 for the rest."""
    graph.prefix = "token_types/"
    types = graph.inputs["token_type_ids"]
    usual = graph.cast(graph.op("Not", add_question_tokens(graph, config)), np.int64)
    given = graph.op("Greater", graph.op("ReduceMax", types, axes=[1], keepdims=1), graph.constant(0, np.int64))
    graph.inputs["token_type_ids"] = graph.op("Where", given, types, usual)


def add_question_tokens(graph: OnnxGraph, config: BertConfig) -> str:
    """Return which tokens are those of the question, bool `[B, S]`: up to the first separator."""
    is_separator = graph.cast(graph.op("Equal", graph.inputs["input_ids"], _separator(graph, config)), np.int64)
    last = graph.op("Add", graph.op("ArgMax", is_separator, axis=1, keepdims=1), graph.constant(1, np.int64))
    return graph.op("LessOrEqual", _places(graph), last)


def add_penalty(graph: OnnxGraph, logits: str, question: str) -> str:
    """Subtract a million from the logits `[B, S]` of the question's tokens, except the first token."""
    is_first = graph.op("Equal", _places(graph), graph.constant(1, np.int64))
    excluded = graph.op("And", question, graph.op("Not", is_first))
    penalty = graph.op("Where", excluded, graph.constant(1e6, np.float32), graph.constant(0, np.float32))
    return graph.op("Sub", graph.cast(logits, np.float32), penalty)


def _separator(graph: OnnxGraph, config: BertConfig) -> str:
    return graph.constant(config.setting("sep_token_id"), np.int64)


def _places(graph: OnnxGraph) -> str:
    """Return 1, 2, ... in every row, int64 `[B, S]`."""
    ids = graph.inputs["input_ids"]
    return _count(graph, graph.op("Equal", ids, ids))


def _count(graph: OnnxGraph, flags: str) -> str:
    """Return how many flags are set up to each place, int64 `[B, S]`."""
    return graph.op("CumSum", graph.cast(flags, np.int64), graph.constant(1, np.int64))
