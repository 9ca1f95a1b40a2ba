"""The tokens of a batch that are not padding."""

import jax
import jax.numpy as jnp

from bert_jax.data.batches import Batch


def is_token(batch: Batch) -> jax.Array:
    """Return bool `[B, S]`, whether each token is not padding."""
    return batch["segment_ids" if "segment_ids" in batch else "attention_mask"] > 0


def packing(batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Return the fraction of a batch that is not padding, as (sum, count)."""
    tokens = is_token(batch)
    return tokens.sum(dtype=jnp.float32), jnp.float32(tokens.size)
