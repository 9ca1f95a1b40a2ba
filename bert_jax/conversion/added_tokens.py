"""Add words to a model: pieces of its vocabulary, rows of its word embedding and of the matrices tied to it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.config import BertConfig
from bert_jax.conversion.vocabulary_rows import with_rows
from bert_jax.errors import InputError
from bert_jax.tokenization.adding import with_added_tokens
from bert_jax.tokenization.interface import Tokenizer

NEW_ROWS = ("pieces", "all")


def extend_vocabulary(
    config: BertConfig,
    params: Mapping[str, Any],
    tokenizer: Tokenizer | None,
    words: Iterable[str],
    new_rows: str = "pieces",
    multiple: int = 1,
) -> tuple[BertConfig, dict[str, Any], Tokenizer]:
    """Return config, parameters and tokenizer of a model with further words in its vocabulary.

    The ids and rows of all other pieces stay the same.

    Args:
        config: the architecture.
        params: the canonical tree of parameters.
        tokenizer: the model's tokenizer.
        words: the words; those that are one piece already are left out.
        new_rows: what a word's row begins as: the mean of the rows of its pieces before (`pieces`), or of all rows
            (`all`; Hewitt 2021, nlp.stanford.edu/~johnhew/vocab-expansion.html).
        multiple: the number of rows becomes a multiple of this, with rows that no piece has yet.

    Raises:
        InputError: the model is quantized or has no tokenizer, or an argument is not valid.
    """
    if new_rows not in NEW_ROWS or multiple < 1:
        raise InputError(
            f"expected new rows of {' or '.join(NEW_ROWS)}, and a positive multiple, found {new_rows!r} and {multiple}"
        )
    if tokenizer is None:
        raise InputError("expected a model with a tokenizer, found none")
    if config.quantization is not None:
        raise InputError(
            "expected a model that is not quantized, found a quantized one; add words before it is quantized"
        )
    extended, pieces = with_added_tokens(tokenizer, words)
    rows = max(config.vocab_size, -(-extended.vocab_size // multiple) * multiple)
    sources = pieces if new_rows == "pieces" else {i: range(tokenizer.vocab_size) for i in pieces}
    return config.replace(vocab_size=rows), with_rows(params, lambda array: _extended(array, sources, rows)), extended


def _extended(before: np.ndarray, sources: Mapping[int, Sequence[int]], rows: int) -> np.ndarray:
    """Return the rows of an array and further ones: row i is the mean of rows `sources[i]`, or else of all rows."""
    after = np.empty((rows, *before.shape[1:]), before.dtype)
    after[: len(before)] = before
    after[len(before) :] = before.mean(axis=0, dtype=np.float32)
    for i, pieces in sources.items():
        after[i] = before[list(pieces)].mean(axis=0, dtype=np.float32)
    return after
