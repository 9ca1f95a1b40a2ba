"""What tasks that learn from masked tokens count of a batch."""

from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.tasks.job import Batch


def masked_lm_sums(out: Any, batch: Batch, commonest_id: int) -> dict[str, jax.Array]:
    """For each row [B]: the losses of its masked tokens, how many are right, are the commonest, and are there.

    Args:
        out: with `masked_lm_losses` and `masked_lm_correct`, `[B, P]`.
    """
    masked = batch["masked_weights"]
    return {
        "mlm_loss": (out.masked_lm_losses * masked).sum(-1),
        "mlm_correct": (out.masked_lm_correct * masked).sum(-1),
        "mlm_commonest": ((batch["masked_labels"] == commonest_id) * masked).sum(-1),
        "mlm_count": masked.sum(-1),
    }


def is_token(batch: Batch) -> jax.Array:
    """bool `[B, S]`: what is not padding."""
    return batch["segment_ids" if "segment_ids" in batch else "attention_mask"] > 0


def packing(batch: Batch) -> tuple[jax.Array, jax.Array]:
    """The metric of how much of a batch is not padding, as (sum, count)."""
    tokens = is_token(batch)
    return tokens.sum(dtype=jnp.float32), jnp.float32(tokens.size)
