"""JAX's splash attention kernel for TPUs: flash attention that skips masked blocks.

Dao et al. 2022 (arXiv:2205.14135); the kernel is `jax.experimental.pallas.ops.tpu.splash_attention`.
"""

import contextlib

import jax
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

_BLOCKS = (512, 384, 256, 128)  # block sizes; the largest that divides the length is used


def supports(length: int) -> bool:
    """Return whether the kernel supports sequences of `length`."""
    return length % _BLOCKS[-1] == 0


def splash_attention(
    query: jax.Array,  # [B, N, S, H]
    key: jax.Array,  # [B, N or fewer, S, H], as is the next
    value: jax.Array,
    ids: jax.Array,  # [B, S] int32
    window: int | None,
) -> jax.Array:
    """Compute attention of queries to keys with the same id within the window; returns `[B, N, S, H]`.

    Every query attends to itself, since the kernel is not defined for rows without a key.
    """
    heads, length, head_size = query.shape[1:]
    shape = (length, length)
    mask = masks.FullMask(shape) if window is None else masks.LocalMask(shape, (window, window), 0)
    block = next(size for size in _BLOCKS if length % size == 0)
    kernel = splash.make_splash_mha_single_device(
        masks.MultiHeadMask([mask] * heads),
        block_sizes=splash.BlockSizes(
            block_q=block, block_kv=block, block_q_dkv=block, block_kv_dkv=block, block_q_dq=block, block_kv_dq=block
        ),
    )
    # The kernel's products take the default precision.
    exact = query.dtype == "float32"
    with jax.default_matmul_precision("highest") if exact else contextlib.nullcontext():
        context: jax.Array = jax.vmap(kernel)(query * head_size**-0.5, key, value, splash.SegmentIds(ids, ids))
    return context
