"""How a model is computed, as opposed to what it is: precision of matrix products, scan or unroll, remat."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from bert_jax.errors import InputError, did_you_mean

DTYPES = ("float32", "bfloat16")
LAYERS = ("scan", "unroll")
REMATS = ("none", "dots", "full")


@dataclasses.dataclass(frozen=True)
class Compute:
    """How the forward and backward passes run. No choice here changes the parameters or, rounding apart, the result.

    Attributes:
        dtype: of the operands of matrix products. Parameters, softmax, LayerNorm, logits and losses stay float32.
        layers: `scan` compiles one layer and loops over it (quick to compile); `unroll` compiles all of them.
        remat: what the backward pass recomputes instead of keeping: `none`, all but matrix products (`dots`), or
            everything inside a layer (`full`).
        platform: `cpu`, `gpu` or `tpu` that it is compiled for; empty means where JAX runs.
    """

    dtype: str = "float32"
    layers: str = "scan"
    remat: str = "none"
    platform: str = ""

    def __post_init__(self) -> None:
        for name, choices in (("dtype", DTYPES), ("layers", LAYERS), ("remat", REMATS)):
            value = getattr(self, name)
            if value not in choices:
                raise InputError(f"{name} {value!r} is not known{did_you_mean(str(value), choices)}")

    @property
    def on_cpu(self) -> bool:
        """Whether it is compiled for a CPU."""
        return (self.platform or jax.default_backend()) == "cpu"

    @property
    def activation_dtype(self) -> jnp.dtype:
        """Of what flows between matrix products: CPUs have no bfloat16 arithmetic outside of dot products."""
        return jnp.dtype("float32" if self.on_cpu else self.dtype)


def matmul(x: jax.Array, kernel: jax.Array, compute: Compute) -> jax.Array:
    """`x [..., D] @ kernel [D, F] -> [..., F]` in the operand precision of `compute`, in its activation dtype."""
    if compute.dtype == "float32":
        return jnp.dot(x, kernel, precision=jax.lax.Precision.HIGHEST)
    if not compute.on_cpu:
        return jnp.dot(x.astype(compute.dtype), kernel.astype(compute.dtype))
    rows = x.reshape(-1, x.shape[-1])
    return _bfloat16_matmul(rows, kernel).reshape(*x.shape[:-1], kernel.shape[-1])


def _dot_float32(a: jax.Array, b: jax.Array) -> jax.Array:
    return jax.lax.dot(a, b, preferred_element_type=jnp.float32)


@jax.custom_vjp
def _bfloat16_matmul(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """float32 in, bfloat16 operands, float32 out; XLA's CPU compiler has its fast kernel for just this form."""
    return _dot_float32(x.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16))


def _bfloat16_matmul_forward(x: jax.Array, kernel: jax.Array):
    x, kernel = x.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16)
    return _dot_float32(x, kernel), (x, kernel)


def _bfloat16_matmul_backward(residuals, cotangent: jax.Array):
    # Both operands of each backward product must be bfloat16 too, and the transposes real arrays rather than
    # dimension numbers: otherwise the compiler falls back to a kernel of half the speed.
    x, kernel = residuals
    cotangent = cotangent.astype(jnp.bfloat16)
    x_t, kernel_t = jax.lax.optimization_barrier((x.T, kernel.T))
    return _dot_float32(cotangent, kernel_t), _dot_float32(x_t, cotangent)


_bfloat16_matmul.defvjp(_bfloat16_matmul_forward, _bfloat16_matmul_backward)


def checkpointed(function, compute: Compute):
    """`function` with the rematerialisation that `compute` asks for."""
    if compute.remat == "none":
        return function
    policies = jax.checkpoint_policies
    policy = policies.dots_with_no_batch_dims_saveable if compute.remat == "dots" else policies.nothing_saveable
    return functools.wraps(function)(jax.checkpoint(function, policy=policy, prevent_cse=compute.layers == "unroll"))
