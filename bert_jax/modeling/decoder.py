"""The decoder of `EncoderDecoder`: a BERT with causal self-attention, and cross-attention in each layer.

Rothe et al. 2020 (arXiv:1907.12461), section 2. It runs over whole sequences (`decode`), or token by token with the
keys and values of earlier tokens in a cache (`decode_step`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.modeling.attention_mask import MASKED, AttentionMask
from bert_jax.modeling.attention_plan import AttentionPlan
from bert_jax.modeling.backends import attend, split_heads
from bert_jax.modeling.compute import checkpointed
from bert_jax.modeling.cross_attention import DecoderCrossAttention, KeysValues, padding_bias
from bert_jax.modeling.encoder_layer import EncoderLayer
from bert_jax.modeling.forward import merge_params
from bert_jax.modeling.inputs import Inputs
from bert_jax.modeling.models import Bert
from bert_jax.modeling.spec import Params
from bert_jax.sharding import constrain

_Layer = tuple[EncoderLayer, DecoderCrossAttention]


class DecodingCache(NamedTuple):
    """Keys and values of all layers that `decode_step` reads.

    Attributes:
        target: keys and values of the decoder's tokens so far, `[L, R, T, A]`; R = B, or B * K with K beams.
        source: keys and values of the encoder's states, `[L, B, S, A]`.
        source_bias: bias of the scores of cross-attention, `[B, 1, 1, S]`, or None.
    """

    target: KeysValues
    source: KeysValues
    source_bias: jax.Array | None


def decode(
    bert: Bert,
    params: Params,
    states: jax.Array,
    source_mask: jax.Array | None,
    input_ids: jax.Array,
    dropout_key: jax.Array | None,
) -> jax.Array:
    """Return the hidden states `[B, T, D]` of the decoder's last layer.

    Args:
        bert: the decoder.
        params: its parameters.
        states: the encoder's states `[B, S, D]`, as wide as the decoder.
        source_mask: `[B, S]`, 1 for tokens of the source, 0 for padding; None means no padding.
        input_ids: the decoder's tokens `[B, T]`. Padding comes last.
        dropout_key: None means no dropout.
    """
    module, compute = merge_params(bert, params), bert.compute
    keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
    x = module.embeddings(Inputs(input_ids), AttentionMask(), keys[0], compute)
    bias, place = padding_bias(source_mask), jnp.arange(input_ids.shape[1])
    causal = jnp.where(place[:, None] >= place, 0.0, MASKED).astype(jnp.float32)[None, None]
    plan = AttentionPlan("xla", AttentionMask(), causal)
    stacked, merge = _layers(module)

    def run(x: jax.Array, of_layer: tuple[Any, ...]) -> tuple[jax.Array, None]:
        (layer, cross), key = merge(of_layer[0]), of_layer[1]
        drops = (None,) * 5 if key is None else jax.random.split(key, 5)
        x, _, _ = layer.attention(x, plan, None, (drops[0], drops[1]), compute)
        x = cross(x, cross.project(states, compute), bias, (drops[2], drops[3]), compute)
        return constrain(layer.mlp(x, drops[4], compute), "batch", "length", "embed"), None

    of_layers = None if keys[1] is None else jax.random.split(keys[1], bert.config.num_hidden_layers)
    unroll = bert.config.num_hidden_layers if compute.layers == "unroll" else 1
    x, _ = jax.lax.scan(checkpointed(run, compute), x, (stacked, of_layers), unroll=unroll)
    return x


def output_logits(bert: Bert, params: Params, x: jax.Array) -> jax.Array:
    """Return float32 logits of the next token, `[..., D] -> [..., V]`."""
    module = merge_params(bert, params)
    logits: jax.Array = module.mlm.logits(x, module.embeddings.word_embeddings.table(), bert.compute)
    return logits


def output_losses(
    bert: Bert, params: Params, x: jax.Array, labels: jax.Array, label_smoothing: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the losses of labels, without the logits of all positions in memory at once.

    With smoothing e, the loss is (1 - e) times the cross entropy of the label, plus e times the mean of the cross
    entropies of all tokens. That is the cross entropy of the label plus e * (its logit - mean of the logits).

    Args:
        bert: the decoder.
        params: its parameters.
        x: states of `decode`, `[B, T, D]`.
        labels: `[B, T]`.
        label_smoothing: e.

    Returns:
        The loss, the cross entropy without smoothing, and 1 where the label has the greatest logit; float32 `[B, T]`.
    """
    module, compute = merge_params(bert, params), bert.compute
    table = module.embeddings.word_embeddings.table()
    losses, right = module.mlm.losses(x, labels, table, compute)
    if not label_smoothing:
        return losses, losses, right
    lower = module.mlm.label_margins(x, labels, table, compute)
    return losses + label_smoothing * lower, losses, right


def start_cache(
    bert: Bert, params: Params, states: jax.Array, source_mask: jax.Array | None, length: int, beams: int = 1
) -> DecodingCache:
    """Return the cache before the first token, with room for `length` tokens of each of `beams` beams."""
    stacked, merge = _layers(merge_params(bert, params))

    def project(of_layer: tuple[Any, ...]) -> KeysValues:
        return merge(of_layer)[1].project(states, bert.compute)

    source = jax.lax.map(project, stacked)
    shape = (bert.config.num_hidden_layers, len(states) * beams, length, bert.config.attention_width)
    empty = jnp.zeros(shape, bert.compute.activation_dtype)
    return DecodingCache((empty, empty), source, padding_bias(source_mask))


def decode_step(
    bert: Bert, params: Params, tokens: jax.Array, step: jax.Array, cache: DecodingCache
) -> tuple[jax.Array, DecodingCache]:
    """Decode the token at position `step` of each row.

    Args:
        bert: the decoder.
        params: its parameters.
        tokens: int32 `[R]`; R = B, or B * K with the K beams of a text side by side.
        step: the position of the tokens, from 0.
        cache: keys and values of earlier tokens.

    Returns:
        float32 logits of the next token, `[R, V]`, and the cache with these tokens.
    """
    config, compute = bert.config, bert.compute
    module = merge_params(bert, params)
    places = jnp.full(tokens.shape, step)
    if config.positions.position_offset:  # as in RoBERTa: padding takes the row before the first position
        places = jnp.where(tokens == config.pad_token_id, -1, places)
    x = module.embeddings(Inputs(tokens[:, None], position_ids=places[:, None]), AttentionMask(), None, compute)
    length = cache.target[0].shape[2]
    seen = jnp.where(jnp.arange(length) <= step, 0.0, MASKED).astype(jnp.float32)[None, None, None]
    plan = AttentionPlan("xla", AttentionMask(), seen)
    stacked, merge = _layers(module)
    texts = cache.source[0].shape[1]

    def run(carry: tuple[jax.Array, KeysValues], of_layer: Any) -> tuple[tuple[jax.Array, KeysValues], None]:
        (x, target), (leaves, number, source) = carry, of_layer
        layer, cross = merge(leaves)
        block = layer.attention
        query, *new = (dense(x, compute) for dense in (block.query, block.key, block.value))
        key, value = (
            jax.lax.dynamic_update_slice(kept, more[None].astype(kept.dtype), (number, 0, step, 0))
            for kept, more in zip(target, new, strict=True)
        )
        of_layer_target = tuple(jax.lax.dynamic_index_in_dim(kept, number, keepdims=False) for kept in (key, value))
        context, _ = attend(plan, split_heads((query, *of_layer_target), config), config, None, compute)
        x = block.layer_norm(x + block.output(context, compute))
        beams = x.reshape(texts, -1, x.shape[-1])  # the beams of a text are queries to the same keys
        x = cross(beams, source, cache.source_bias, (None, None), compute).reshape(x.shape)
        return (layer.mlp(x, None, compute), (key, value)), None

    numbers = jnp.arange(config.num_hidden_layers)
    (x, target), _ = jax.lax.scan(run, (x, cache.target), (stacked, numbers, cache.source))
    logits = module.mlm.logits(x[:, 0], module.embeddings.word_embeddings.table(), compute)
    return logits, cache._replace(target=target)


def _layers(module: Any) -> tuple[tuple[Any, ...], Callable[[tuple[Any, ...]], _Layer]]:
    """Return the stacked parameters of the layers, and a function from those of one layer to its modules."""
    layer_graph, layers = nnx.split(module.encoder.layers)
    cross_graph, blocks = nnx.split(module.cross_attention)
    return (layers, blocks), lambda leaves: (nnx.merge(layer_graph, leaves[0]), nnx.merge(cross_graph, leaves[1]))
