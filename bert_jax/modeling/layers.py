"""The parts that every block is made of: dense, LayerNorm, embedding, dropout, activations."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.compute import Compute, matmul


def initializer(config: BertConfig) -> jax.nn.initializers.Initializer:
    """Truncated normal as in the original: `initializer_range` is the parameter, the real deviation is 0.88 of it."""
    return jax.nn.initializers.truncated_normal(config.initializer_range)


class Dense(nnx.Module):
    """`x [..., in] -> [..., out]`."""

    def __init__(self, config: BertConfig, features_in: int, features_out: int, *, rngs: nnx.Rngs):
        self.kernel = nnx.Param(initializer(config)(rngs.params(), (features_in, features_out), jnp.float32))
        self.bias = nnx.Param(jnp.zeros((features_out,), jnp.float32))

    def __call__(self, x: jax.Array, compute: Compute) -> jax.Array:
        y = matmul(x, self.kernel[...], compute)
        return y + self.bias[...].astype(y.dtype)


class LayerNorm(nnx.Module):
    """Normalises the last axis; statistics in float32 and in two passes, whatever the dtype of `x`."""

    def __init__(self, config: BertConfig, features: int):
        self.epsilon = config.layer_norm_eps
        self.scale = nnx.Param(jnp.ones((features,), jnp.float32))
        self.bias = nnx.Param(jnp.zeros((features,), jnp.float32))

    def __call__(self, x: jax.Array) -> jax.Array:
        dtype = x.dtype
        x = x.astype(jnp.float32)
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = jnp.square(centred).mean(axis=-1, keepdims=True)
        y = centred * jax.lax.rsqrt(variance + self.epsilon) * self.scale[...] + self.bias[...]
        return y.astype(dtype)


class Embedding(nnx.Module):
    """A table `[rows, D]` that ids index."""

    def __init__(self, config: BertConfig, rows: int, *, rngs: nnx.Rngs):
        self.embedding = nnx.Param(initializer(config)(rngs.params(), (rows, config.hidden_size), jnp.float32))

    def __call__(self, ids: jax.Array) -> jax.Array:
        return self.embedding[...][ids]


def dropout(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    """Zeroes each element with probability `rate` and scales the rest up by 1/(1-rate); without a key, returns `x`."""
    if key is None or rate == 0.0:
        return x
    keep = random_bits(key, x.shape) >= np.uint32(rate * 2**32)
    return jnp.where(keep, x * (1.0 / (1.0 - rate)), jnp.zeros_like(x))


def random_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Independent uint32 of `shape`, good enough to drop by and an order of magnitude cheaper than `jax.random.bits`.

    Two words from JAX's generator for every row are spread over its last axis by an integer hash (two rounds of
    multiply and xor-shift with the constants of C. Wellons' "lowbias32"). Like JAX's, it is elementwise: the same bits
    however the array is sharded, and recomputed rather than kept for the backward pass.
    """
    words = jax.random.bits(key, (*shape[:-1], 2), jnp.uint32)
    first, second = words[..., :1], words[..., 1:]
    column = jax.lax.broadcasted_iota(jnp.uint32, (1,) * (len(shape) - 1) + shape[-1:], len(shape) - 1)
    h = (column * np.uint32(0x9E3779B9)) ^ first
    h = (h ^ (h >> 16)) * np.uint32(0x7FEB352D) + second
    h = (h ^ (h >> 15)) * np.uint32(0x846CA68B)
    return h ^ (h >> 16)


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
}
