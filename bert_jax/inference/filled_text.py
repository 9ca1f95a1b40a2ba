"""Fill a mask in a row of tokens, and decode the row."""

import numpy as np

from bert_jax.tokenization import Tokenizer


def filled_text(tokenizer: Tokenizer, ids: np.ndarray, place: int, token: int, only: bool) -> str:
    """Return the text of `ids [S]`, in which `token` replaces the mask at position `place`.

    Special tokens are left out if this is the `only` mask; else they stay, so that the other masks remain visible.
    """
    filled = ids.copy()
    filled[place] = token
    return tokenizer.decode(filled.tolist(), skip_special_tokens=only)
