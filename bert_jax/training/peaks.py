"""Peak FLOP/s of devices."""

import jax

# Dense bfloat16 peak of one JAX device in TFLOP/s, from the vendors' sheets: cloud.google.com/tpu/docs/{v2,v3,v4,v5e,
# v5p,v6e,tpu7x}; nvidia.com data sheets of A100, H100 and H200 SXM (without sparsity). The first name that is part of
# `device_kind` counts. JAX shows a chip of v2 (46), v3 (123) or TPU7x (2,307) as two devices.
PEAK_TFLOPS: tuple[tuple[str, float], ...] = (
    ("TPU v2", 46.0 / 2),
    ("TPU v3", 123.0 / 2),
    ("TPU v4", 275.0),
    ("TPU v5 lite", 197.0),
    ("TPU v5e", 197.0),
    ("TPU v5", 459.0),
    ("TPU v6", 918.0),
    ("TPU7x", 2307.0 / 2),
    ("A100", 312.0),
    ("H100 PCIe", 756.0),
    ("H100", 989.0),
    ("H200", 989.0),
)


def peak_flops(device: jax.Device) -> float | None:
    """Return the device's dense bfloat16 peak in FLOP/s, or None when it is not in the table."""
    fitting = (tflops for name, tflops in PEAK_TFLOPS if name.lower() in device.device_kind.lower())
    tflops = next(fitting, None)
    return tflops * 1e12 if tflops else None
