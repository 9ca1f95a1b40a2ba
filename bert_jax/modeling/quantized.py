"""Quantized kernels and embedding tables: arithmetic by qwix, as functions of plain arrays.

A quantized parameter of the canonical tree is a dict of arrays in place of one array:

    kernel     {"quantized": int8 or float8 [..., in, out], "scale": float32 [..., 1, out]}
    kernel     {"packed": uint8 [..., in / 2, out], "scale": float32 [..., in / group, out]}      int4
    embedding  {"quantized": int8 [rows, features], "scale": float32 [rows, 1]}

and, in mode int8_static, "input_scale": float32 [..., 1] of the kernel's input. Quantization is symmetric: a number x
becomes round(x / scale), where scale is the largest absolute value that shares it, divided by 127.5 (7.5 in int4, 448
in float8).
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.config.quantization import Quantization
from bert_jax.errors import InputError
from bert_jax.modeling.compute import Compute, matmul

_Arrays = tuple[jax.Array, ...]
_LARGEST_INT8 = 127.5  # values up to 127.5 are rounded to 127


@dataclasses.dataclass(frozen=True)
class Quantizer:
    """Quantizer of the kernel of a dense layer or of an embedding table.

    Attributes:
        quantization: the quantization of the model.
        table: whether the parameter is an embedding table.
    """

    quantization: Quantization
    table: bool = False

    def quantize(self, x: jax.Array) -> dict[str, jax.Array]:
        """Quantize a kernel `[..., in, out]` with a scale for each output, or a table with a scale for each row.

        In mode int8_static, the scale of the input is 1 until it is calibrated.
        """
        import qwix

        kind = "int8" if self.table else self.quantization.kernels
        shared = x.ndim - (1 if self.table else 2)  # axis along which values share a scale
        others = tuple(axis for axis in range(x.ndim) if axis != shared)
        tiles = {shared: self.quantization.group_size} if kind == "int4" else {}
        qarray = qwix.quantize(x, jnp.dtype(kind), channelwise_axes=others, tiled_axes=tiles)
        values = {"packed": pack_int4(qarray.qvalue)} if kind == "int4" else {"quantized": qarray.qvalue}
        values["scale"] = qarray.scale
        if not self.table and self.quantization.inputs == "static":
            values["input_scale"] = jnp.ones((*x.shape[:-2], 1), jnp.float32)
        return values

    def dequantize(self, values: dict[str, jax.Array]) -> jax.Array:
        """Return the float32 kernel or table: the quantized values times their scales."""
        import qwix

        weights: jax.Array = qwix.dequantize(self._qarray(values))
        return weights

    def rounded(self, x: jax.Array) -> jax.Array:
        """Quantize and dequantize a kernel or table; the gradient is that of the identity (straight-through)."""
        return _straight_through(lambda x: self.dequantize(self.quantize(x)), x)

    def rows(self, values: dict[str, jax.Array], ids: jax.Array) -> jax.Array:
        """Look up rows of a quantized table: `[...] -> [..., features]`, float32."""
        return values["quantized"][ids].astype(jnp.float32) * values["scale"][ids]

    def matmul(self, x: jax.Array, values: dict[str, jax.Array], compute: Compute) -> jax.Array:
        """Multiply `x [..., in]` by a quantized kernel: `[..., out]` in `compute.activation_dtype`.

        Integers are multiplied into int32, float8 into float32; the product is then scaled in float32. In modes with
        float inputs the kernel is dequantized first.
        """
        import qwix

        if self.quantization.stage == "calibrating":
            x = _observed(x, values["input_scale"])
        if self.quantization.inputs == "float" or self.quantization.stage == "calibrating":
            return matmul(x, self.dequantize(values), compute)
        rows = x.reshape(-1, x.shape[-1]) if compute.on_cpu else x
        axes = (((rows.ndim - 1,), (0,)), ((), ()))
        y: jax.Array = qwix.dot_general(
            self.quantize_inputs(rows, values.get("input_scale")), self._qarray(values), axes
        )
        return y.reshape(*x.shape[:-1], y.shape[-1]).astype(compute.activation_dtype)

    def rounded_inputs(self, x: jax.Array) -> jax.Array:
        """Quantize and dequantize a dense layer's input if the mode quantizes it; the gradient is straight-through."""
        if self.quantization.inputs != "dynamic":
            return x
        import qwix

        return _straight_through(lambda x: qwix.dequantize(self.quantize_inputs(x, None)).astype(x.dtype), x)

    def quantize_inputs(self, x: jax.Array, scale: jax.Array | None) -> Any:
        """Quantize inputs `[..., in]` to a qwix.QArray: with a scale for each token, or with the given one, `[1]`."""
        import qwix

        x = x.astype(jnp.float32)
        if scale is None:
            return qwix.quantize(x, jnp.dtype(self.quantization.kernels), channelwise_axes=range(x.ndim - 1))
        values = jnp.clip(jnp.round(x / scale), -128, 127).astype(jnp.int8)
        return qwix.QArray(values, scale.reshape((1,) * x.ndim))

    def _qarray(self, values: dict[str, jax.Array]) -> Any:
        import qwix

        qvalue = unpack_int4(values["packed"]) if "packed" in values else values["quantized"]
        return qwix.QArray(qvalue, values["scale"])


def pack_int4(x: jax.Array) -> jax.Array:
    """Pack int4 values, two to a byte: `[..., in, out] -> uint8 [..., in / 2, out]`, the even rows in the low bits."""
    x = x.astype(jnp.int8).astype(jnp.uint8)
    return (x[..., 0::2, :] & 15) | (x[..., 1::2, :] << 4)


def unpack_int4(x: jax.Array) -> jax.Array:
    """Unpack what `pack_int4` has packed: `uint8 [..., in / 2, out] -> int8 [..., in, out]`, from -8 to 7."""
    low, high = (part.astype(jnp.int8) >> 4 for part in (x << 4, x))  # shifts of int8 keep the sign
    pairs = jnp.stack([low, high], axis=-2)
    return pairs.reshape(*x.shape[:-2], 2 * x.shape[-2], x.shape[-1])


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _straight_through(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    return function(x)


@_straight_through.defjvp
def _straight_through_jvp(function: Callable[..., jax.Array], primals: _Arrays, tangents: _Arrays) -> Any:
    return function(*primals), tangents[0]


@jax.custom_vjp
def _observed(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Return `x`; the gradient of `scale [1]` is the scale with which `x` fits into int8."""
    return x


def _observed_backward(x: jax.Array, cotangent: jax.Array) -> _Arrays:
    return cotangent, (jnp.abs(x.astype(jnp.float32)).max() / _LARGEST_INT8)[None]


_observed.defvjp(lambda x, scale: (x, x), _observed_backward)


class QuantizedParameter(nnx.Module):
    """The arrays of a quantized kernel or table, in place of its `nnx.Param`."""

    def __init__(self, quantizer: Quantizer, x: jax.Array):
        self.quantizer = quantizer
        for name, values in quantizer.quantize(x).items():
            setattr(self, name, nnx.Param(values))

    @property
    def values(self) -> dict[str, jax.Array]:
        """Return the arrays by name."""
        names = ("quantized", "packed", "scale", "input_scale")
        return {name: getattr(self, name)[...] for name in names if hasattr(self, name)}


def quantize_module(module: nnx.Module, quantization: Quantization) -> None:
    """Quantize the kernels and embedding tables of a model or, in training, set the quantizers that round them.

    Raises:
        InputError: the group size of int4 does not divide the inputs of a dense layer; or, in training, a pattern of
            parameters to keep in float32 matches none.
    """
    modules: list[Any] = [entry for entry in nnx.iter_graph(module) if hasattr(type(entry[1]), "PARAMETER")]
    layers = {"/".join(map(str, (*path, layer.PARAMETER))): layer for path, layer in modules}
    if quantization.stage == "training":
        quantization.check_keep(layers, "config.quantization.keep")
    for name, layer in layers.items():
        if not quantization.quantizes(name):
            continue
        parameter, table = getattr(layer, layer.PARAMETER), layer.PARAMETER == "embedding"
        _check_groups(name, parameter[...].shape, quantization, table)
        if quantization.stage == "training":
            layer.quantizer = Quantizer(quantization, table)
        else:
            setattr(layer, layer.PARAMETER, QuantizedParameter(Quantizer(quantization, table), parameter[...]))


def quantize_params(params: dict[str, Any], quantization: Quantization) -> dict[str, Any]:
    """Quantize the float32 parameters of a canonical tree, one at a time; other leaves are returned as they are.

    Raises:
        InputError: the group size of int4 does not divide the inputs of a dense layer.
    """

    def visit(tree: dict[str, Any], prefix: str) -> dict[str, Any]:
        quantized = {}
        for name, value in tree.items():
            path = f"{prefix}{name}"
            if isinstance(value, dict):
                quantized[name] = visit(value, f"{path}/")
            elif quantization.quantizes(path):
                table = name == "embedding"
                _check_groups(path, value.shape, quantization, table)
                quantized[name] = _quantized(Quantizer(quantization, table), value)
            else:
                quantized[name] = value
        return quantized

    return visit(params, "")


def dequantize_params(params: dict[str, Any], quantization: Quantization) -> dict[str, Any]:
    """Return the canonical tree with float32 parameters in place of quantized ones."""
    if "scale" in params and ("quantized" in params or "packed" in params):
        return _dequantized(Quantizer(quantization), params)  # type: ignore[no-any-return]
    return {
        name: dequantize_params(value, quantization) if isinstance(value, dict) else value
        for name, value in params.items()
    }


@functools.partial(jax.jit, static_argnums=0)
def _quantized(quantizer: Quantizer, x: jax.Array) -> dict[str, jax.Array]:
    return quantizer.quantize(x)


@functools.partial(jax.jit, static_argnums=0)
def _dequantized(quantizer: Quantizer, values: dict[str, jax.Array]) -> jax.Array:
    return quantizer.dequantize(values)


def _check_groups(path: str, shape: tuple[int, ...], quantization: Quantization, table: bool) -> None:
    if quantization.kernels == "int4" and not table and shape[-2] % quantization.group_size:
        raise InputError(
            f"quantization: group_size: expected a divisor of the {shape[-2]} inputs of {path}, "
            f"found {quantization.group_size}"
        )
