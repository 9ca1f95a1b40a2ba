"""Find the devices of a pipeline by name or number, and copy a model's parameters to them."""

import dataclasses
import re
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from bert_jax import sharding
from bert_jax.errors import InputError


def find_devices(device: str | int | jax.Device) -> list[jax.Device] | None:
    """Return the devices that a pipeline's argument `device` selects; None for JAX's default device.

    Raises:
        InputError: there is no such device.
    """
    if device == "all":
        here = jax.local_devices()
        return here if len(here) > 1 else None
    return [_device(device)]


def _device(device: str | int | jax.Device) -> jax.Device:
    """Return the device with a name or number. Raises InputError if there is no such device."""
    if isinstance(device, jax.Device):
        return device
    match = re.fullmatch(r"(cpu|gpu|cuda|rocm|tpu)(?::(\d+))?", "cpu" if device == -1 else str(device))
    try:
        if match:
            return jax.devices(match[1])[int(match[2] or 0)]
        return jax.devices()[int(device)]
    except (RuntimeError, ValueError, IndexError):
        here = ", ".join(f"{one.platform}:{one.id}" for one in jax.devices())
        raise InputError(f"device: expected one of {here}, cpu or all, found {device!r}") from None


def on_devices(model: Any, devices: list[jax.Device]) -> Any:
    """Copy the parameters of a model to each device; the devices then split the rows of a batch."""
    place: Any = devices[0]
    if len(devices) > 1:
        place = NamedSharding(sharding.make_mesh(devices=devices), PartitionSpec())
    compute = dataclasses.replace(model.compute, platform=devices[0].platform)
    return dataclasses.replace(model, params=jax.device_put(model.params, place), compute=compute)
