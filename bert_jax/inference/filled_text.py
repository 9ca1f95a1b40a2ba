"""The text of a row in which a mask is filled."""

import numpy as np

from bert_jax.tokenization import Tokenizer


def filled_text(tokenizer: Tokenizer, ids: np.ndarray, place: int, token: int, only: bool) -> str:
    """Return the text of `ids [S]` with a token at position `place`.

    Special tokens are left out if it is the `only` mask; with several they stay, so that the others remain visible.
    """
    filled = ids.copy()
    filled[place] = token
    return tokenizer.decode(filled.tolist(), skip_special_tokens=only)
