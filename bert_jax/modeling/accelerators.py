"""Attention kernels of TPUs and GPUs: which sizes they support, and functions that call them."""

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from bert_jax.config import BertConfig
from bert_jax.lazy import LazyModule
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.compute import Compute
from bert_jax.sharding import device_share, mapped

if TYPE_CHECKING:
    from bert_jax.modeling.kernels import fused, splash
else:  # imported on first use: a program uses at most one of them
    fused = LazyModule("bert_jax.modeling.kernels.fused")
    splash = LazyModule("bert_jax.modeling.kernels.splash")

_AMPERE = 8  # lowest compute capability with cuDNN's flash attention
_WIDEST_HEAD = 128  # largest head size that cuDNN supports on all these GPUs


def unfit_sizes(backend: str, config: BertConfig, compute: Compute, length: int, longest: int | None) -> str | None:
    """Return why a backend does not support the sizes of a model, or None; `longest` is fused's longest sequence."""
    if backend == "splash":
        return None if splash.supports(length) else f"expected a length that is a multiple of 128, found {length}"
    if backend == "cudnn":
        return _unfit_for_cudnn(config, compute, length)
    columns = device_share(config.num_attention_heads, "heads") * config.head_size
    longest = fused.LONGEST[compute.dtype] if longest is None else longest
    if length <= longest and fused.supports(length, columns, config.head_size, compute.dtype):
        return None
    return (
        f"expected a length of up to {longest:,} and num_heads * head_size on a device to be multiples of "
        f"{fused.LANES}, found length {length} and {columns // config.head_size} heads of size {config.head_size} on a "
        "device"
    )


def _unfit_for_cudnn(config: BertConfig, compute: Compute, length: int) -> str | None:
    """Return why cuDNN's flash attention (`jax.nn.dot_product_attention`) cannot be used, or None."""
    if compute.dtype != "bfloat16":
        return f"expected dtype bfloat16, found {compute.dtype}"
    if length % 2:
        return f"expected an even length, found {length}"
    if config.head_size % 8 or config.head_size > _WIDEST_HEAD:
        return f"expected a head size that is a multiple of 8, up to {_WIDEST_HEAD}, found {config.head_size}"
    # Without a GPU here, the program is for another machine, so the check passes. AMD GPUs have a name here.
    capability = str(getattr(jax.devices()[0], "compute_capability", _AMPERE))
    major = capability.partition(".")[0]
    if not major.isdigit() or int(major) < _AMPERE:
        return f"expected a GPU of compute capability {_AMPERE}.0 or later, found {capability}"
    return None


def by_fused(
    mask: AttentionMask,
    projected: tuple[jax.Array, ...],  # query, key, value [B, S, N * H]
    config: BertConfig,
    words: jax.Array | None,
    compute: Compute,
) -> jax.Array:
    """Compute attention on a TPU by the fused kernel, `[B, S, N * H]`."""
    batch, length, _ = projected[0].shape
    form, words = fused_form(mask, config, batch, words, compute)
    rows, columns, by_head = ("batch", None), ("batch", None, "heads"), ("batch", "heads", None)
    run = mapped(functools.partial(fused.fused_attention, form), (*[columns] * 3, rows, rows, by_head), columns)
    context: jax.Array = run(*projected, *mask.ids(batch, length), words)
    return context


def fused_form(
    mask: AttentionMask, config: BertConfig, batch: int, words: jax.Array | None, compute: Compute
) -> "tuple[fused.Form, jax.Array]":
    """Return the `Form` of a fused kernel, and its random words, which are 0 without dropout."""
    rate = 0.0 if words is None else config.attention_probs_dropout_prob
    if words is None:
        words = jnp.zeros((batch, config.num_attention_heads, 2), jnp.uint32)
    return fused.Form(config.head_size, compute.dtype, rate, mask.window), words


def by_splash(mask: AttentionMask, query: jax.Array, key: jax.Array, value: jax.Array, compute: Compute) -> jax.Array:
    """Compute attention on a TPU by the splash kernel; arguments and result are `[B, N, S, H]`."""
    batch, _, length, _ = query.shape
    rows, heads = ("batch", None), ("batch", "heads", None, None)
    run = mapped(functools.partial(splash.splash_attention, window=mask.window), (*[heads] * 3, rows), heads)
    # Padding attends to padding here, and to tokens in the other backends; outputs at padding are not used.
    _, ids = mask.ids(batch, length)
    context: jax.Array = run(*(x.astype(compute.dtype) for x in (query, key, value)), ids)
    return context


def by_cudnn(mask: AttentionMask, query: jax.Array, key: jax.Array, value: jax.Array, compute: Compute) -> jax.Array:
    """Compute attention on a GPU by cuDNN; arguments and result are `[B, S, N, H]`."""
    length = query.shape[1]
    seen = mask.seen(length)
    if seen is not None:  # cuDNN needs a mask row for each query
        seen = jnp.broadcast_to(seen, (*seen.shape[:2], length, length))
    query, key, value = (x.astype(compute.dtype) for x in (query, key, value))
    return jax.nn.dot_product_attention(query, key, value, mask=seen, implementation="cudnn")
