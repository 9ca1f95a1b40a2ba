"""The type of a batch, and the arrays of its token rows."""

from typing import Any

# Name -> array `[B, ...]`: NumPy's on a host, JAX's in a step.
Batch = dict[str, Any]
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
POOLING_MASK = "pooling_mask"  # an input of batches in which prompts of several lengths are left out of pooling
TEXT_INPUTS = (*INPUTS, POOLING_MASK)  # inputs of texts to embed; a batch need not have the last one


def sub_batches(batch: Batch) -> dict[str, Batch]:
    """Return the rows of each data set, by name, in a batch whose arrays are called `SET/NAME`; {"": batch} for one
    whose arrays are called `NAME`."""
    parts: dict[str, Batch] = {}
    for name, array in batch.items():
        of_set, _, own = name.rpartition("/")
        parts.setdefault(of_set, {})[own] = array
    return parts
