"""Sparse vectors: the dimensions that are not 0 and their weights, from a model's outputs or a table of weights."""

from collections.abc import Sequence

import numpy as np

from bert_jax.errors import TextError
from bert_jax.tokenization import Tokenizer


def active(vector: np.ndarray, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the dimensions of a vector `[V]` that are not 0, in ascending order, and their values.

    At most the `most` greatest values are kept, as `greatest_weights` chooses them.
    """
    (indices,) = np.nonzero(vector)
    return greatest_weights(indices, vector[indices], most)


def greatest_weights(indices: np.ndarray, weights: np.ndarray, most: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the `most` weights of greatest absolute value, with their dimensions in ascending order.

    Of equal ones, the first are kept. `select_max_active_dims` of sentence-transformers compares absolute values too;
    only the weights of queries in a table can be negative.

    Args:
        indices: dimensions in ascending order, `[n]`.
        weights: their weights `[n]`.
        most: number of weights to keep; None = all.
    """
    if most is not None and len(indices) > most:
        best = np.sort(np.argsort(-np.abs(weights), kind="stable")[:most])
        indices, weights = indices[best], weights[best]
    return indices.astype(np.int32), weights


def look_up_tokens(
    table: np.ndarray, ids: Sequence[int] | np.ndarray, most: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the token ids of a text whose weight is not 0, once each in ascending order, and their weights.

    Args:
        table: a weight for each token of the vocabulary, `[V]`.
        ids: the tokens of the text, without special tokens around them.
        most: as for `greatest_weights`.
    """
    found = np.unique(np.asarray(ids, np.int64))
    found = found[table[found] != 0]
    return greatest_weights(found, table[found], most)


def lexical_vector(tokenizer: Tokenizer, ids: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """Return for each token of the vocabulary its greatest weight in a text, float32 `[size]`; 0 for special tokens.

    Args:
        tokenizer: the tokenizer.
        ids: the tokens of the text `[S]`, with special tokens.
        weights: a weight for each of the first tokens.
        size: number of tokens of the vocabulary.
    """
    vector = np.zeros(size, np.float32)
    np.maximum.at(vector, ids[: len(weights)], weights)
    unknown = (i for i in tokenizer.special_ids if tokenizer.is_unknown(i))
    vector[[tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, *unknown]] = 0
    return vector


def cut_tokens(
    tokenizer: Tokenizer, rows: Sequence[Sequence[int]], limit: int | None, truncation: bool
) -> list[Sequence[int]]:
    """Cut texts to `limit` tokens (None = no limit) on the tokenizer's side of truncation.

    Args:
        tokenizer: the tokenizer.
        rows: the token ids of each text, without special tokens around them.
        limit: maximum number of tokens.
        truncation: whether longer texts are cut; otherwise they are an error.

    Raises:
        TextError: a text is longer, and `truncation` is off.
    """
    if limit is None:
        return list(rows)
    for i, row in enumerate(rows):
        if len(row) > limit and not truncation:
            raise TextError(i, f"expected at most {limit} tokens, found {len(row)}")
    from_left = tokenizer.truncation_side == "left"
    return [row[max(0, len(row) - limit) :] if from_left else row[:limit] for row in rows]
