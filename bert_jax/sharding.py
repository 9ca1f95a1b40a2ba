"""Sharding: one mesh `(data, fsdp, tensor)`, and the mesh axes that split each logical axis.

Axis `data` splits the batch and copies the parameters. Axis `fsdp` splits the batch and the parameters. Axis `tensor`
splits the work inside a layer (heads, feed-forward, vocabulary) and, between layers, the tokens of each sequence
(Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2). Only this file names mesh axes.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, PartitionSpec

from bert_jax.errors import InputError

MESH_AXES = ("data", "fsdp", "tensor")

# Logical axis -> the mesh axes that split it. A spec uses each mesh axis once, for its leftmost logical axis: "embed"
# of an activation ("batch", "length", "embed") is not split, although "embed" of a parameter is split by fsdp.
LOGICAL_AXIS_RULES: dict[str, tuple[str, ...]] = {
    "batch": ("data", "fsdp"),
    "length": ("tensor",),
    "embed": ("fsdp",),
    "heads": ("tensor",),
    "mlp": ("tensor",),
    "vocab": ("tensor",),
}


def make_mesh(data: int = -1, fsdp: int = 1, tensor: int = 1, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Return the mesh `(data, fsdp, tensor)` over `devices` (default: all); one size may be -1 (the rest).

    Over several TPU slices only `data` spans the slices, since the network between them is slow.

    Raises:
        InputError: the product of the sizes is not the number of devices, or `data` is not a multiple of the number of
            slices.
    """
    devices = list(jax.devices() if devices is None else devices)
    sizes = {"data": data, "fsdp": fsdp, "tensor": tensor}
    text = " x ".join(f"{name}={size}" for name, size in sizes.items())
    if any(size < 1 and size != -1 for size in sizes.values()) or list(sizes.values()).count(-1) > 1:
        raise InputError(f"mesh: expected positive sizes, at most one of them -1 (the rest), found {text}")
    fixed = math.prod(size for size in sizes.values() if size != -1)
    shape = tuple(len(devices) // fixed if size == -1 else size for size in sizes.values())
    if math.prod(shape) != len(devices):
        raise InputError(f"mesh: expected sizes with a product of {len(devices)}, the number of devices, found {text}")
    axis_types = (AxisType.Auto,) * len(MESH_AXES)
    slices = len({getattr(device, "slice_index", None) for device in devices})
    if slices == 1:
        return jax.make_mesh(shape, MESH_AXES, axis_types=axis_types, devices=devices)
    if shape[0] % slices:
        raise InputError(f"mesh: expected data to be a multiple of the {slices} slices, found {shape[0]}")
    inner, outer = (shape[0] // slices, *shape[1:]), (slices, 1, 1)
    return Mesh(mesh_utils.create_hybrid_device_mesh(inner, outer, devices), MESH_AXES, axis_types=axis_types)


def batch_spec() -> PartitionSpec:
    """Return the spec of every array of a batch: the first axis is split over data and fsdp."""
    return spec_of(("batch",))


def constrain(x: jax.Array, *logical_axes: str | None) -> jax.Array:
    """Constrain the sharding of an activation by one logical axis (or None: not split) per dimension.

    Without a mesh this is the identity. An indivisible dimension is left to the compiler.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1:
        return x
    if len(logical_axes) != x.ndim:
        raise ValueError(f"constrain: expected {x.ndim} axes for shape {x.shape}, found {logical_axes}")
    spec = list(spec_of(logical_axes))
    for i, axis in enumerate(logical_axes):
        if x.shape[i] % axis_parts(mesh, axis):
            spec[i] = PartitionSpec.UNCONSTRAINED
    return jax.lax.with_sharding_constraint(x, PartitionSpec(*spec))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def gather(x: jax.Array, axes: tuple[str | None, ...]) -> jax.Array:
    """Gather a parameter with these logical axes over fsdp; its gradient is split again.

    Devices exchange parameter and gradient in the dtype of `x`.
    """
    return constrain(x, *(None if axis == "embed" else axis for axis in axes))


gather.defvjp(lambda x, axes: (gather(x, axes), None), lambda axes, _, gradient: (constrain(gradient, *axes),))


def split_rows(x: jax.Array, parts: int) -> jax.Array:
    """Split rows, `[B, ...] -> [parts, B / parts, ...]`; row i goes to part i % parts, so no row leaves its device."""
    x = x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1)
    return constrain(x, None, "batch", *[None] * (x.ndim - 2))


def join_rows(x: jax.Array) -> jax.Array:
    """Join rows, `[parts, B / parts, ...] -> [B, ...]`; the inverse of `split_rows`."""
    x = x.swapaxes(0, 1)
    return constrain(x.reshape(-1, *x.shape[2:]), "batch", *[None] * (x.ndim - 2))


def device_share(size: int, logical_axis: str) -> int:
    """Return a device's share of `size` along a logical axis of the current mesh; all of it without a mesh."""
    mesh = jax.sharding.get_abstract_mesh()
    return size if mesh.empty else size // axis_parts(mesh, logical_axis)


def mapped(function: Any, in_axes: Sequence[tuple[str | None, ...]], out_axes: tuple[str | None, ...]) -> Any:
    """Wrap a function that the compiler cannot split, so that each device runs it on its part of the arrays.

    Args:
        function: the function.
        in_axes: logical axes of each argument.
        out_axes: logical axes of the result.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1:
        return function
    specs = tuple(spec_of(axes) for axes in in_axes)
    return jax.shard_map(function, in_specs=specs, out_specs=spec_of(out_axes), check_vma=False)


def device_kind() -> str:
    """Return JAX's name for the devices that a program is traced for: the current mesh's, or JAX's default devices."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return device.device_kind if device is not None else jax.devices()[0].device_kind


def batch_parts(mesh: Mesh) -> int:
    """Return the number of parts into which `mesh` splits a batch; it must divide the batch size."""
    return axis_parts(mesh, "batch")


def tensor_parts(mesh: Mesh) -> int:
    """Return the number of parts into which `mesh` splits the heads; it must divide the number of heads."""
    return axis_parts(mesh, "heads")


def axis_parts(mesh: Any, axis: str | None) -> int:
    """Return the number of parts into which `mesh` splits a logical axis; 1 for None."""
    return math.prod(mesh.shape[name] for name in LOGICAL_AXIS_RULES[axis]) if axis else 1


def spec_of(logical_axes: Iterable[str | None]) -> PartitionSpec:
    """Return the spec of an array by one logical axis (or None: not split) per dimension."""
    used: set[str] = set()
    entries: list[Any] = []
    for axis in logical_axes:
        free = tuple(name for name in (LOGICAL_AXIS_RULES[axis] if axis else ()) if name not in used)
        used.update(free)
        entries.append(free if len(free) > 1 else free[0] if free else None)
    return PartitionSpec(*entries)
