"""Sums for the masked-LM metrics of a batch."""

from typing import Any

import jax

from bert_jax.data.batches import Batch


def masked_lm_sums(out: Any, batch: Batch, majority_id: int) -> dict[str, jax.Array]:
    """Return sums over the masked tokens of each row [B]: losses, correct predictions, most frequent labels, and count.

    Args:
        out: an output with `masked_lm_losses` and `masked_lm_correct`, `[B, P]`.
        batch: the batch.
        majority_id: id of the most frequent masked token.
    """
    masked = batch["masked_weights"]
    return {
        "mlm_loss": (out.masked_lm_losses * masked).sum(-1),
        "mlm_correct": (out.masked_lm_correct * masked).sum(-1),
        "mlm_majority": ((batch["masked_labels"] == majority_id) * masked).sum(-1),
        "mlm_count": masked.sum(-1),
    }
