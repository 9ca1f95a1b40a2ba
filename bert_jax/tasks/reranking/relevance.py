"""The relevance that a cross-encoder predicts, before the activation."""

from typing import Any


def match_logits(logits: Any, match: int) -> Any:
    """Return the logits `[...]` of a match from the outputs `[..., C]` of a cross-encoder, numpy or jax.

    Of one output it is that output. Of two classes it is the output of the class `match` minus the other one, whose
    sigmoid is the softmax of the class.
    """
    return logits[..., 0] if logits.shape[-1] == 1 else logits[..., match] - logits[..., 1 - match]
