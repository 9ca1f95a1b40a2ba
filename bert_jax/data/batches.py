"""The type of a batch."""

from typing import Any

# Name -> array `[B, ...]`: NumPy's on a host, JAX's in a step.
Batch = dict[str, Any]
