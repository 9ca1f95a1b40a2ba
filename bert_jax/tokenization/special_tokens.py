"""Add special tokens to a tokenizer, such as the markers of entities."""

from collections.abc import Sequence
from typing import Any

import tokenizers

from bert_jax.errors import InputError


def with_special_tokens(tokenizer: Any, tokens: Sequence[str]) -> Any:
    """Return a copy of a tokenizer with the special tokens `tokens` appended to its vocabulary.

    Args:
        tokenizer: a `bert_jax.tokenization.Tokenizer`.
        tokens: the tokens; tokens that the vocabulary already has keep their ids.

    Raises:
        InputError: tokens cannot be added to a tokenizer of this kind.
    """
    if not hasattr(tokenizer, "backend"):
        kind = type(tokenizer).__name__
        raise InputError(f"expected a tokenizer of the tokenizers library, to add {', '.join(tokens)}, found a {kind}")
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    backend.add_special_tokens([tokenizers.AddedToken(token, normalized=False, special=True) for token in tokens])
    return tokenizer.replaced(backend, tokenizer.sentencepiece_model)
