"""Basic layers: dense, LayerNorm, embedding, activations."""

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.compute import Compute, matmul
from bert_jax.modeling.exchange import look_up
from bert_jax.sharding import constrain

if TYPE_CHECKING:
    from bert_jax.modeling.quantized import QuantizedParameter, Quantizer


def initializer(config: BertConfig) -> jax.nn.initializers.Initializer:
    """Return the initializer of the original BERT: a truncated normal of deviation 0.88 * `initializer_range`."""
    return jax.nn.initializers.truncated_normal(config.initializer_range)


def _is_quantized(parameter: Any) -> "TypeGuard[QuantizedParameter]":
    """Return whether a parameter is a `QuantizedParameter` instead of an `nnx.Param`."""
    return isinstance(parameter, nnx.Module)


class Dense(nnx.Module):
    """A dense layer, `[..., in] -> [..., out]`; `quantize_module` may quantize its kernel."""

    PARAMETER = "kernel"  # the parameter that may be quantized
    quantizer: "Quantizer | None" = None  # set in quantization-aware training

    def __init__(
        self, config: BertConfig, features_in: int, features_out: int, *, use_bias: bool = True, rngs: nnx.Rngs
    ):
        self.kernel: Any = nnx.Param(initializer(config)(rngs.params(), (features_in, features_out), jnp.float32))
        if use_bias:
            self.bias = nnx.Param(jnp.zeros((features_out,), jnp.float32))

    def __call__(self, x: jax.Array, compute: Compute) -> jax.Array:
        if _is_quantized(self.kernel):
            y = self.kernel.quantizer.matmul(x, self.kernel.values, compute)
        elif self.quantizer is not None:
            y = matmul(self.quantizer.rounded_inputs(x), self.quantizer.rounded(self.kernel[...]), compute)
        else:
            y = matmul(x, self.kernel[...], compute)
        return y + self.bias[...].astype(y.dtype) if hasattr(self, "bias") else y


class LayerNorm(nnx.Module):
    """LayerNorm over the last axis, with statistics in float32 and in two passes for any dtype of `x`.

    rms_norm subtracts no mean (Zhang and Sennrich 2019, arXiv:1910.07467); in zero_centered_rms_norm, the scale is 1
    plus the parameter besides; no_norm is only scale and bias (Sun et al. 2020, arXiv:2004.02984, section 3.3).
    """

    def __init__(self, config: BertConfig, features: int, epsilon: float | None = None):
        self.epsilon, self.kind = config.layer_norm_eps if epsilon is None else epsilon, config.norms.norm
        self.offset = 1.0 if self.kind == "zero_centered_rms_norm" else 0.0  # what the parameter lacks of the scale
        self.scale = nnx.Param(jnp.full((features,), 1.0 - self.offset, jnp.float32))
        if config.norms.norm_bias:
            self.bias = nnx.Param(jnp.zeros((features,), jnp.float32))

    def __call__(self, x: jax.Array) -> jax.Array:
        dtype = x.dtype
        x = x.astype(jnp.float32)
        if self.kind == "layer_norm":
            x -= x.mean(axis=-1, keepdims=True)
        if self.kind != "no_norm":
            x *= jax.lax.rsqrt(jnp.square(x).mean(axis=-1, keepdims=True) + self.epsilon)
        y = x * (self.scale[...] + self.offset if self.offset else self.scale[...])
        return (y + self.bias[...] if hasattr(self, "bias") else y).astype(dtype)


class Embedding(nnx.Module):
    """An embedding table `[rows, features]`; `quantize_module` may quantize it."""

    PARAMETER = "embedding"
    quantizer: "Quantizer | None" = None  # set in quantization-aware training

    def __init__(self, config: BertConfig, rows: int, features: int, *, rngs: nnx.Rngs):
        self.embedding: Any = nnx.Param(initializer(config)(rngs.params(), (rows, features), jnp.float32))

    def __call__(self, ids: jax.Array) -> jax.Array:
        """Look up rows, `[...] -> [..., features]`, in a table that may be split over devices."""
        # Gather the table over fsdp: lookups in a split hidden axis would have to be replicated to be resharded.
        if _is_quantized(self.embedding):
            values = self.embedding.values
            values["quantized"] = constrain(values["quantized"], "vocab", None)
            return self.embedding.quantizer.rows(values, ids)
        table = constrain(self.embedding[...], "vocab", None)
        rows = table[ids] if table.dtype == jnp.float32 else look_up(table, ids)
        return rows if self.quantizer is None else self.quantizer.rounded(rows)

    def table(self) -> jax.Array:
        """Return the table; float32, unless `exchanged` has cast it."""
        if _is_quantized(self.embedding):
            return self.embedding.quantizer.dequantize(self.embedding.values)
        table = self.embedding[...]
        return table if self.quantizer is None else self.quantizer.rounded(table)


@jax.custom_jvp
def gelu(x: jax.Array) -> jax.Array:
    """Compute GELU: `x` times the normal distribution function at `x` (Hendrycks and Gimpel 2016, arXiv:1606.08415).

    Uses erf in float32, as in the 2018 release. `jax.nn.gelu` uses erfc, which costs more than twice as much, and its
    backward pass keeps more than the slope.
    """
    return (x * _normal(x)).astype(x.dtype)


@gelu.defjvp
def _gelu_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (x,), (tangent,) = primals, tangents
    wide, normal = x.astype(jnp.float32), _normal(x)
    slope = normal + wide * jnp.exp(-0.5 * wide * wide) / math.sqrt(2 * math.pi)
    return (wide * normal).astype(x.dtype), tangent * slope.astype(x.dtype)


def _normal(x: jax.Array) -> jax.Array:
    """Return the normal distribution function, in float32."""
    erf = _arithmetic_erf if _ERF_BY_ARITHMETIC.get() else jax.lax.erf
    return 0.5 * (1 + erf(x.astype(jnp.float32) * math.sqrt(0.5)))


_ERF_BY_ARITHMETIC = contextvars.ContextVar("erf_by_arithmetic", default=False)


@contextlib.contextmanager
def erf_by_arithmetic() -> Iterator[None]:
    """Trace erf as sums and products while the block runs, for users of StableHLO that lack its operation erf."""
    token = _ERF_BY_ARITHMETIC.set(True)
    try:
        yield
    finally:
        _ERF_BY_ARITHMETIC.reset(token)


def _arithmetic_erf(x: jax.Array) -> jax.Array:
    """Compute erf with an error below 5e-7 (Abramowitz and Stegun 1964, formula 7.1.26)."""
    t = 1 / (1 + 0.3275911 * jnp.abs(x))
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return jnp.sign(x) * (1 - series * jnp.exp(-x * x))


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": gelu,
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
    # The other activations of transformers' ACT2FN.
    "gelu_10": lambda x: jnp.clip(gelu(x), -10, 10),
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
    "leaky_relu": jax.nn.leaky_relu,
    "linear": lambda x: x,
    "mish": jax.nn.mish,
    "relu2": lambda x: jnp.square(jax.nn.relu(x)),
    "relu6": jax.nn.relu6,
    "sigmoid": jax.nn.sigmoid,
}
