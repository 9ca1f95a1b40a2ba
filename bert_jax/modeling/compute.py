"""`Compute`: precision of matrix products, scanned or unrolled layers, rematerialisation, attention backend."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

from bert_jax.errors import InputError, did_you_mean

DTYPES = ("float32", "bfloat16")
LAYERS = ("scan", "unroll")
REMATS = ("none", "dots", "full")
ATTENTIONS = ("auto", "xla", "fused", "splash", "cudnn")

CONTEXT = "context"  # what attention gives: kept with the matrix products, as it is as dear


def resolved_dtype(dtype: str) -> str:
    """`dtype`, where `auto` is what matrix products of a finished model run in here: bfloat16 on accelerators, float32
    on CPU."""
    if dtype != "auto":
        return dtype
    return "float32" if jax.default_backend() == "cpu" else "bfloat16"


@dataclasses.dataclass(frozen=True)
class Compute:
    """How the forward and backward passes run. No choice here changes the parameters or, rounding apart, the result.

    Attributes:
        dtype: of the operands of matrix products. Parameters, softmax, LayerNorm, logits and losses stay float32.
        layers: `scan` compiles one layer and loops over it (quick to compile); `unroll` compiles all of them.
        remat: what the backward pass recomputes instead of keeping: `none`, all but matrix products (`dots`), or
            everything inside a layer (`full`).
        attention: how scores, softmax and weighted sums are computed (`bert_jax.modeling.attention`); `auto`: by what
            is cheapest on the platform and at the length.
        platform: `cpu`, `gpu` or `tpu` that it is compiled for; empty means where JAX runs.
    """

    dtype: str = "float32"
    layers: str = "scan"
    remat: str = "none"
    attention: str = "auto"
    platform: str = ""

    def __post_init__(self) -> None:
        choices_of = {"dtype": DTYPES, "layers": LAYERS, "remat": REMATS, "attention": ATTENTIONS}
        for name, choices in choices_of.items():
            value = getattr(self, name)
            if value not in choices:
                raise InputError(f"{name} {value!r} is not known{did_you_mean(str(value), choices)}")

    @property
    def target(self) -> str:
        """The platform that it is compiled for."""
        return self.platform or jax.default_backend()

    @property
    def on_cpu(self) -> bool:
        """Whether that is a CPU."""
        return self.target == "cpu"

    @property
    def activation_dtype(self) -> jnp.dtype:
        """Of what flows between matrix products: CPUs have no bfloat16 arithmetic outside of dot products."""
        return jnp.dtype("float32" if self.on_cpu else self.dtype)


def matmul(
    x: jax.Array, kernel: jax.Array, compute: Compute, *, transposed: bool = False, dtype: Any = None
) -> jax.Array:
    """`x [..., D] @ kernel [D, F] -> [..., F]` in the operand precision of `compute`.

    Args:
        transposed: the kernel is `[F, D]`.
        dtype: of the result; None means the activation dtype of `compute`.
    """
    # CPUs multiply only matrices fast; elsewhere the axes stay apart, as they may be split over devices.
    rows = x.reshape(-1, x.shape[-1]) if compute.on_cpu else x
    if compute.dtype == "float32":
        y = _dot(rows, kernel, [-1], [1 if transposed else 0], precision=jax.lax.Precision.HIGHEST)
    else:
        form = _Form(transposed, jnp.dtype(dtype or compute.activation_dtype), x.dtype, compute.on_cpu)
        y = _bfloat16_matmul(form, rows, kernel)
    return y.reshape(*x.shape[:-1], y.shape[-1])


def _dot(a: jax.Array, b: jax.Array, axes_a: Sequence[int], axes_b: Sequence[int], **options: Any) -> jax.Array:
    """The product of two arrays summed over axes of each."""
    contracted = ([axis % a.ndim for axis in axes_a], [axis % b.ndim for axis in axes_b])
    return jax.lax.dot_general(a, b, (contracted, ((), ())), **options)


class _Form(NamedTuple):
    """What a bfloat16 product must know besides its operands."""

    transposed: bool  # the kernel is [F, D]
    result: jnp.dtype
    x: jnp.dtype
    on_cpu: bool


# The gradient is spelt out for two reasons. Its products take bfloat16 operands too, and give the kernel its gradient
# in float32 rather than rounded. And XLA's CPU compiler multiplies bfloat16 at twice the speed of float32, but only
# into float32, from row-major operands, and contracting the last axis of the first: automatic differentiation leaves
# that form, and what leaves it runs as float32 or not at all.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _bfloat16_matmul(form: _Form, x: jax.Array, kernel: jax.Array) -> jax.Array:
    return _bfloat16_matmul_forward(form, x, kernel)[0]


def _bfloat16_matmul_forward(form: _Form, x: jax.Array, kernel: jax.Array):
    x, kernel = x.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16)
    y = _dot(x, kernel, [-1], [1 if form.transposed else 0], preferred_element_type=form.result)
    return y, (x, kernel)


def _bfloat16_matmul_backward(form: _Form, residuals, cotangent: jax.Array):
    x, kernel = residuals
    cotangent = cotangent.astype(jnp.bfloat16)
    x_gradient = _dot(cotangent, kernel, [-1], [0 if form.transposed else 1], preferred_element_type=form.x)
    a, b = (cotangent, x) if form.transposed else (x, cotangent)
    rows = list(range(a.ndim - 1))
    if form.on_cpu:  # `a.T` as an array of its own, where the compiler would choose a view
        a = with_layout_constraint(a.T, Layout(major_to_minor=(0, 1)))
    return x_gradient, _dot(a, b, [1] if form.on_cpu else rows, rows, preferred_element_type=jnp.float32)


_bfloat16_matmul.defvjp(_bfloat16_matmul_forward, _bfloat16_matmul_backward)


def checkpointed(function, compute: Compute):
    """`function` with the rematerialisation that `compute` asks for."""
    if compute.remat == "none":
        return function
    policies = jax.checkpoint_policies
    policy = policies.nothing_saveable
    if compute.remat == "dots":
        named = policies.save_only_these_names(CONTEXT)
        policy = policies.save_from_both_policies(policies.dots_with_no_batch_dims_saveable, named)
    return functools.wraps(function)(jax.checkpoint(function, policy=policy, prevent_cse=compute.layers == "unroll"))
