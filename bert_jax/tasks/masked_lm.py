"""Sums of the masked-LM metrics of a batch."""

from typing import Any

import jax

from bert_jax.data.batches import Batch


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
