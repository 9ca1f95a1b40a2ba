"""Scaled dot-product attention (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1) by each of its backends.

    xla     any platform and length, with dropout and attention maps; writes the scores [B, N, S, S] to memory, except
            for a small window in a long sequence (`bert_jax.modeling.kernels.local`)
    fused   TPU: `bert_jax.modeling.kernels.fused`, with dropout
    splash  TPU: `bert_jax.modeling.kernels.splash`, for long sequences and local windows; no dropout
    cudnn   GPU: `jax.nn.dot_product_attention`; no dropout

All backends give the same result up to rounding. docs/attention.md describes their costs and the choice of `auto`.
"""

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from bert_jax.config import BertConfig
from bert_jax.lazy import LazyModule
from bert_jax.modeling.attention_plan import LOCAL, AttentionPlan
from bert_jax.modeling.compute import Compute
from bert_jax.modeling.dropout import bits_of_scores
from bert_jax.modeling.kernels.plain import plain_attention
from bert_jax.sharding import constrain

if TYPE_CHECKING:
    from bert_jax.modeling import accelerators
    from bert_jax.modeling.kernels import local
else:  # imported on first use, as most programs use none of them
    accelerators = LazyModule("bert_jax.modeling.accelerators")
    local = LazyModule("bert_jax.modeling.kernels.local")


def attend(
    plan: AttentionPlan,
    heads: tuple[jax.Array, ...],  # query [B, S or P, N, H]; key, value [B, S, heads of keys, H]
    config: BertConfig,
    dropout_key: jax.Array | None,
    compute: Compute,
) -> tuple[jax.Array, jax.Array | None]:
    """Compute attention with the plan's backend.

    Returns:
        The context `[B, S or P, N * H]` and, for xla, the attention probabilities `[B, N, S or P, S]`.
    """
    query, key, value = heads
    batch, length, count, _ = query.shape
    size, dtype = config.attention_width, compute.activation_dtype
    words = random_words(config, batch, dropout_key)
    if plan.backend == "fused":
        # The kernel needs a head of keys for each head of queries.
        key, value = (jnp.repeat(x, count // x.shape[2], axis=2) for x in (key, value))
        projected = tuple(x.reshape(batch, length, size) for x in (query, key, value))
        return accelerators.by_fused(plan.mask, projected, config, words, compute).astype(dtype), None
    if plan.backend == "cudnn":
        return accelerators.by_cudnn(plan.mask, query, key, value, compute).reshape(batch, length, size), None
    probabilities = None
    query, key, value = (x.swapaxes(1, 2) for x in (query, key, value))
    if plan.backend == "splash":
        context = accelerators.by_splash(plan.mask, query, key, value, compute).astype(dtype)
    elif plan.backend == LOCAL:
        assert plan.bias is not None
        rate = config.attention_probs_dropout_prob
        context = local.local_attention(plan.bias, plan.mask, query, key, value, words, rate, compute)
    else:
        context, probabilities = by_xla(plan, query, key, value, config, words, compute)
    return merge_heads(context), probabilities


def random_words(config: BertConfig, batch: int, dropout_key: jax.Array | None) -> jax.Array | None:
    """Return the random words for dropout of attention probabilities, `[B, N, 2]` uint32; None without dropout."""
    if dropout_key is None or config.attention_probs_dropout_prob == 0:
        return None
    words = jax.random.bits(dropout_key, (batch, config.num_attention_heads, 2), jnp.uint32)
    return constrain(words, "batch", "heads", None)


def split_heads(projected: tuple[jax.Array, ...], config: BertConfig) -> tuple[jax.Array, ...]:
    """Return query, key and value as `[B, S or P, heads, H]`."""
    return tuple(x.reshape(*x.shape[:2], -1, config.head_size) for x in projected)


def merge_heads(context: jax.Array) -> jax.Array:
    """Return context `[B, N, S or P, H]` as `[B, S or P, N * H]`."""
    context = constrain(context, "batch", "heads", None, None)  # splits the gradient by heads too
    return context.swapaxes(1, 2).reshape(context.shape[0], context.shape[2], -1)


def by_xla(
    plan: AttentionPlan,
    query: jax.Array,  # [B, N, S or P, H]
    key: jax.Array,  # [B, N or fewer, S, H], as is the next
    value: jax.Array,
    config: BertConfig,
    words: jax.Array | None,  # the result of `random_words`
    compute: Compute,
) -> tuple[jax.Array, jax.Array]:
    """Return context `[B, N, S or P, H]` and probabilities `[B, N, S or P, S]`."""
    bits = None
    if words is not None:
        place = functools.partial(jax.lax.broadcasted_iota, jnp.uint32)
        length = key.shape[2]
        at = plan.query_positions
        queries = place((1, 1, length, 1), 2) if at is None else at.index.astype(jnp.uint32)[:, None, :, None]
        bits = bits_of_scores((words[..., :1, None], words[..., 1:, None]), queries, place((1, 1, 1, length), 3))
    return plain_attention(query, key, value, plan.bias, bits, config.attention_probs_dropout_prob, compute)
