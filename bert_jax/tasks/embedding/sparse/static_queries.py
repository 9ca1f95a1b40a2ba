"""Sparse embeddings of queries from a table of weights of tokens, without an encoder (inference-free retrieval).

Geng et al. 2024 (arXiv:2411.04403), section 3: the vector of a query has the weight of each of its tokens, once however
often the token occurs, and special tokens around the query have none.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.inference.base import TEXT_WINDOW
from bert_jax.inference.sparse_vectors import cut_tokens, look_up_tokens
from bert_jax.tokenization import Tokenizer


def tokenize_plain(
    tokenizer: Tokenizer, texts: Sequence[str], limit: int | None, truncation: bool = True
) -> list[Sequence[int]]:
    """Tokenize texts without special tokens, cut to `limit` tokens (None = no limit).

    Raises:
        TextError: a text is longer, and `truncation` is off.
    """
    return cut_tokens(tokenizer, tokenizer.encode_batch(texts), limit, truncation)


def look_up_queries(
    model: Any, texts: list[str], prompt: str, size: int | None, truncation: bool
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return for each query the ids of its tokens with a weight, in ascending order, and the weights, float32.

    Args:
        model: a `PretrainedModel` with query weights.
        texts: the queries.
        prompt: text to put before each.
        size: number of greatest weights to keep, the first of equal ones; None = all.
        truncation: whether longer queries than the model's `query_length` are cut; otherwise they are an error.
    """
    table = np.asarray(model.params["query_weights"]["weight"], np.float32)
    indices, weights = [], []
    for start in range(0, len(texts), TEXT_WINDOW):
        window = [prompt + text for text in texts[start : start + TEXT_WINDOW]]
        for row in tokenize_plain(model.tokenizer, window, model.settings.query_length, truncation):
            ids, found = look_up_tokens(table, row, size)
            indices.append(ids)
            weights.append(found)
    return indices, weights


def weigh_tokens(weights: jax.Array, ids: jax.Array, mask: jax.Array) -> jax.Array:
    """Return the sparse embeddings `[B, V]` of queries with tokens `[B, S]`, by the weights of tokens `[V]`."""
    rows = jnp.arange(len(ids))[:, None]
    present = jnp.zeros((len(ids), len(weights)), weights.dtype).at[rows, ids].max(mask.astype(weights.dtype))
    return present * weights


def inverse_document_frequencies(documents: Iterable[Collection[int]], tokenizer: Tokenizer, size: int) -> np.ndarray:
    """Return the inverse document frequency of each token, float32 `[size]`: ln(1 + (N - n + 0.5) / (n + 0.5)).

    This is the IDF of BM25 (Robertson and Zaragoza 2009, section 3.1), for n of N documents with the token.

    Args:
        documents: the token ids of each document; equal documents count once.
        tokenizer: the tokenizer, whose special tokens have 0.
        size: number of tokens of the vocabulary.
    """
    frequencies, number = np.zeros(size), 0
    for ids in {tuple(sorted(set(document))) for document in documents}:
        frequencies[list(ids)] += 1
        number += 1
    weights = np.log1p((number - frequencies + 0.5) / (frequencies + 0.5)).astype(np.float32)
    weights[list(tokenizer.special_ids)] = 0
    return weights
