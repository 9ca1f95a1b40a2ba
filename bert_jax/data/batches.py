"""The type of a batch, and the arrays of its token rows."""

from typing import Any

# Name -> array `[B, ...]`: NumPy's on a host, JAX's in a step.
Batch = dict[str, Any]
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
