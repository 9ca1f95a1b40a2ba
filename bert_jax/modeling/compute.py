"""How a model is computed, as opposed to what it is: precision of matrix products, scan or unroll, remat."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

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


def matmul(x: jax.Array, kernel: jax.Array, compute: Compute, *, transposed: bool = False) -> jax.Array:
    """`x [..., D] @ kernel [D, F] -> [..., F]` in the operand precision of `compute`, in its activation dtype.

    With `transposed`, the kernel is `[F, D]`.
    """
    rows = x.reshape(-1, x.shape[-1])
    if compute.dtype == "float32":
        y = _dot(rows, kernel, 1 if transposed else 0, precision=jax.lax.Precision.HIGHEST)
    elif compute.on_cpu:
        y = _bfloat16_matmul(transposed, rows, kernel)
    else:
        y = _dot(rows.astype(compute.dtype), kernel.astype(compute.dtype), 1 if transposed else 0)
    return y.reshape(*x.shape[:-1], y.shape[-1])


def _dot(a: jax.Array, b: jax.Array, axis: int, **options) -> jax.Array:
    """The product of two matrices over the last axis of `a` and the given axis of `b`."""
    return jax.lax.dot_general(a, b, (((1,), (axis,)), ((), ())), **options)


# XLA's CPU compiler multiplies bfloat16 matrices into float32 at twice the speed of float32 ones, but only where it
# sees two row-major bfloat16 operands and contracts the last axis of the first: anything else runs as float32, or not
# at all. Automatic differentiation leaves that form, so the gradient is spelt out.
_cpu_dot = functools.partial(_dot, preferred_element_type=jnp.float32)


def _transpose(x: jax.Array) -> jax.Array:
    """`x.T` as a row-major array, where the compiler would choose a view."""
    return with_layout_constraint(x.T, Layout(major_to_minor=(0, 1)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _bfloat16_matmul(transposed: bool, x: jax.Array, kernel: jax.Array) -> jax.Array:
    return _bfloat16_matmul_forward(transposed, x, kernel)[0]


def _bfloat16_matmul_forward(transposed: bool, x: jax.Array, kernel: jax.Array):
    x, kernel = x.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16)
    return _cpu_dot(x, kernel, 1 if transposed else 0), (x, kernel)


def _bfloat16_matmul_backward(transposed: bool, residuals, cotangent: jax.Array):
    x, kernel = residuals
    cotangent = cotangent.astype(jnp.bfloat16)
    x_gradient = _cpu_dot(cotangent, kernel, 0 if transposed else 1)
    if transposed:
        return x_gradient, _cpu_dot(_transpose(cotangent), x, 0)
    return x_gradient, _cpu_dot(_transpose(x), cotangent, 0)


_bfloat16_matmul.defvjp(_bfloat16_matmul_forward, _bfloat16_matmul_backward)


def checkpointed(function, compute: Compute):
    """`function` with the rematerialisation that `compute` asks for."""
    if compute.remat == "none":
        return function
    policies = jax.checkpoint_policies
    policy = policies.dots_with_no_batch_dims_saveable if compute.remat == "dots" else policies.nothing_saveable
    return functools.wraps(function)(jax.checkpoint(function, policy=policy, prevent_cse=compute.layers == "unroll"))
