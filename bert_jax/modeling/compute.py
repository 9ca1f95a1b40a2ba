"""`Compute`: precision of matrix products and of gradients, scanned layers, rematerialisation, attention backend."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

from bert_jax.errors import InputError, did_you_mean

DTYPES = ("float32", "bfloat16")
LAYERS = ("scan", "unroll")
REMATS = ("none", "dots", "full")
ATTENTIONS = ("auto", "xla", "fused", "splash", "cudnn")

# Names of arrays that remat `dots` keeps beside matrix products.
CONTEXT = "context"  # output of attention
GATHERED = "gathered"  # a layer's weights, gathered from all devices


def resolved_dtype(dtype: str) -> str:
    """Return `dtype`, with `auto` replaced: bfloat16 on accelerators, float32 on CPU."""
    if dtype != "auto":
        return dtype
    return "float32" if jax.default_backend() == "cpu" else "bfloat16"


@dataclasses.dataclass(frozen=True)
class Compute:
    """Options of forward and backward passes that change neither parameters nor, up to rounding, results.

    Attributes:
        dtype: dtype of the operands of matrix products. Parameters, softmax, LayerNorm, logits and losses stay float32.
        layers: `scan` compiles one layer and loops over it (quick to compile); `unroll` compiles all layers.
        remat: rematerialisation in the backward pass: `none`, `dots` (all but matrix products), or `full` (everything
            inside a layer).
        attention: attention backend (`bert_jax.modeling.backends`); `auto` takes the cheapest for platform and length.
        reduce_dtype: dtype in which devices sum the gradients of the layers' kernels and of the word embedding.
            bfloat16 needs dtype bfloat16, and gathers the kernels once a step, for forward and backward pass.
        platform: target platform: `cpu`, `gpu` or `tpu`; empty means the platform that JAX uses.
    """

    dtype: str = "float32"
    layers: str = "scan"
    remat: str = "none"
    attention: str = "auto"
    reduce_dtype: str = "float32"
    platform: str = ""

    def __post_init__(self) -> None:
        choices_of = {
            "dtype": DTYPES, "layers": LAYERS, "remat": REMATS, "attention": ATTENTIONS, "reduce_dtype": DTYPES
        }  # fmt: skip
        for name, choices in choices_of.items():
            value = getattr(self, name)
            if value not in choices:
                raise InputError(f"{name} {value!r} is not known{did_you_mean(str(value), choices)}")

    @property
    def target(self) -> str:
        """Return the target platform."""
        return self.platform or jax.default_backend()

    @property
    def on_cpu(self) -> bool:
        """Return whether the target platform is a CPU."""
        return self.target == "cpu"

    @property
    def activation_dtype(self) -> jnp.dtype:
        """Return the dtype of activations; float32 on CPUs, which have bfloat16 arithmetic only in dot products."""
        return jnp.dtype("float32" if self.on_cpu else self.dtype)


def matmul(
    x: jax.Array, kernel: jax.Array, compute: Compute, *, transposed: bool = False, dtype: Any = None
) -> jax.Array:
    """Multiply `x [..., D] @ kernel [D, F] -> [..., F]` with operands of `compute.dtype`.

    Args:
        x: the activations.
        kernel: the kernel.
        compute: dtype and platform.
        transposed: whether the kernel is `[F, D]`.
        dtype: dtype of the result; None means `compute.activation_dtype`.
    """
    # CPUs are fast only for matrices; on accelerators the axes are kept, as they may be split over devices.
    rows = x.reshape(-1, x.shape[-1]) if compute.on_cpu else x
    if compute.dtype == "float32":
        y = _dot(rows, kernel, [-1], [1 if transposed else 0], precision=jax.lax.Precision.HIGHEST)
    else:
        result = jnp.dtype(dtype or compute.activation_dtype)
        form = _Form(transposed, result, x.dtype, kernel.dtype, compute.on_cpu)
        y = _bfloat16_matmul(form, rows, kernel)
    return y.reshape(*x.shape[:-1], y.shape[-1])


def _dot(a: jax.Array, b: jax.Array, axes_a: Sequence[int], axes_b: Sequence[int], **options: Any) -> jax.Array:
    """Contract two arrays over the given axes of each."""
    contracted = ([axis % a.ndim for axis in axes_a], [axis % b.ndim for axis in axes_b])
    return jax.lax.dot_general(a, b, (contracted, ((), ())), **options)


class _Form(NamedTuple):
    """Static arguments of a bfloat16 product."""

    transposed: bool  # the kernel is [F, D]
    result: jnp.dtype
    x: jnp.dtype
    kernel: jnp.dtype
    on_cpu: bool


# The gradient is written by hand for two reasons. Its products take bfloat16 operands, although the gradient of a
# float32 kernel is float32. And XLA's CPU compiler multiplies bfloat16 at twice the speed of float32, but only into
# float32, with row-major operands, and contracting the last axis of the first operand: products of automatic
# differentiation do not have this form, so they run as float32 or fail.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _bfloat16_matmul(form: _Form, x: jax.Array, kernel: jax.Array) -> jax.Array:
    return _bfloat16_matmul_forward(form, x, kernel)[0]


def _bfloat16_matmul_forward(form: _Form, x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    x, kernel = x.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16)
    y = _dot(x, kernel, [-1], [1 if form.transposed else 0], preferred_element_type=form.result)
    return y, (x, kernel)


def _bfloat16_matmul_backward(form: _Form, saved: tuple[jax.Array, ...], cotangent: jax.Array) -> tuple[jax.Array, ...]:
    x, kernel = saved
    cotangent = cotangent.astype(jnp.bfloat16)
    x_gradient = _dot(cotangent, kernel, [-1], [0 if form.transposed else 1], preferred_element_type=form.x)
    a, b = (cotangent, x) if form.transposed else (x, cotangent)
    rows = list(range(a.ndim - 1))
    if form.on_cpu:  # make `a.T` a copy; the compiler would make it a view
        a = with_layout_constraint(a.T, Layout(major_to_minor=(0, 1)))
    dtype = jnp.float32 if form.on_cpu else form.kernel
    kernel_gradient = _dot(a, b, [1] if form.on_cpu else rows, rows, preferred_element_type=dtype)
    return x_gradient, kernel_gradient.astype(form.kernel)


_bfloat16_matmul.defvjp(_bfloat16_matmul_forward, _bfloat16_matmul_backward)


def checkpointed(function: Callable[..., Any], compute: Compute) -> Callable[..., Any]:
    """Wrap `function` in `jax.checkpoint` as `compute.remat` says."""
    if compute.remat == "none":
        return function
    policies = jax.checkpoint_policies
    policy = policies.nothing_saveable
    if compute.remat == "dots":
        named = policies.save_only_these_names(CONTEXT, GATHERED)
        policy = policies.save_from_both_policies(policies.dots_with_no_batch_dims_saveable, named)
    return functools.wraps(function)(jax.checkpoint(function, policy=policy, prevent_cse=compute.layers == "unroll"))
