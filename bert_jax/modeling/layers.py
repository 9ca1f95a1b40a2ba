"""Basic layers: dense, LayerNorm, embedding, activations."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.compute import Compute, matmul


def initializer(config: BertConfig) -> jax.nn.initializers.Initializer:
    """Truncated normal as in the original: `initializer_range` is the parameter, the real deviation is 0.88 of it."""
    return jax.nn.initializers.truncated_normal(config.initializer_range)


class Dense(nnx.Module):
    """`x [..., in] -> [..., out]`."""

    def __init__(
        self, config: BertConfig, features_in: int, features_out: int, *, use_bias: bool = True, rngs: nnx.Rngs
    ):
        self.kernel = nnx.Param(initializer(config)(rngs.params(), (features_in, features_out), jnp.float32))
        if use_bias:
            self.bias = nnx.Param(jnp.zeros((features_out,), jnp.float32))

    def __call__(self, x: jax.Array, compute: Compute) -> jax.Array:
        y = matmul(x, self.kernel[...], compute)
        return y + self.bias[...].astype(y.dtype) if hasattr(self, "bias") else y


class LayerNorm(nnx.Module):
    """Normalises the last axis; statistics in float32 and in two passes, whatever the dtype of `x`.

    Without the mean (Zhang and Sennrich 2019, arXiv:1910.07467) where `config.norm` is rms_norm.
    """

    def __init__(self, config: BertConfig, features: int):
        self.epsilon, self.centred = config.layer_norm_eps, config.norm == "layer_norm"
        self.scale = nnx.Param(jnp.ones((features,), jnp.float32))
        if config.norm_bias:
            self.bias = nnx.Param(jnp.zeros((features,), jnp.float32))

    def __call__(self, x: jax.Array) -> jax.Array:
        dtype = x.dtype
        x = x.astype(jnp.float32)
        centred = x - x.mean(axis=-1, keepdims=True) if self.centred else x
        variance = jnp.square(centred).mean(axis=-1, keepdims=True)
        y = centred * jax.lax.rsqrt(variance + self.epsilon) * self.scale[...]
        return (y + self.bias[...] if hasattr(self, "bias") else y).astype(dtype)


class Embedding(nnx.Module):
    """A table `[rows, features]` that ids index."""

    def __init__(self, config: BertConfig, rows: int, features: int, *, rngs: nnx.Rngs):
        self.embedding = nnx.Param(initializer(config)(rngs.params(), (rows, features), jnp.float32))

    def __call__(self, ids: jax.Array) -> jax.Array:
        return self.embedding[...][ids]


@jax.custom_jvp
def gelu(x: jax.Array) -> jax.Array:
    """`x` times the normal distribution function at `x` (Hendrycks and Gimpel 2016, arXiv:1606.08415).

    By erf, as in the 2018 release, and in float32. `jax.nn.gelu` takes erfc, which costs more than twice as much, and
    its backward pass keeps more than the slope.
    """
    return (x * _normal(x)).astype(x.dtype)


@gelu.defjvp
def _gelu_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (x,), (tangent,) = primals, tangents
    wide, normal = x.astype(jnp.float32), _normal(x)
    slope = normal + wide * jnp.exp(-0.5 * wide * wide) / math.sqrt(2 * math.pi)
    return (wide * normal).astype(x.dtype), tangent * slope.astype(x.dtype)


def _normal(x: jax.Array) -> jax.Array:
    """The normal distribution function, in float32."""
    return 0.5 * (1 + jax.lax.erf(x.astype(jnp.float32) * math.sqrt(0.5)))


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": gelu,
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
    # What else transformers' ACT2FN has.
    "gelu_10": lambda x: jnp.clip(gelu(x), -10, 10),
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
    "leaky_relu": jax.nn.leaky_relu,
    "linear": lambda x: x,
    "mish": jax.nn.mish,
    "relu2": lambda x: jnp.square(jax.nn.relu(x)),
    "relu6": jax.nn.relu6,
    "sigmoid": jax.nn.sigmoid,
}
