"""Examples of a query and its documents, which are padded to lengths of their own."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.features import Features
from bert_jax.data.finetuning.ranked_passages import RankedPassages, filled_passages


@dataclasses.dataclass(frozen=True)
class Expansion:
    """How queries are filled up (`bert_jax.conversion.multi_vector_settings.QueryExpansion`).

    Attributes:
        length: number of tokens to which they are filled up.
        token: id of the token that is added.
        attended: whether other tokens attend to the added tokens.
    """

    length: int
    token: int
    attended: bool


@dataclasses.dataclass(frozen=True, eq=False)
class QueryDocuments:
    """Tokenized examples of one query and K documents.

    Attributes:
        queries: the n queries.
        documents: the `n * K` documents; those of an example are neighbours.
        labels: float32 `[n, K]`, the relevance of each document; `MISSING` where an example has fewer.
        query_length: the padded length of queries.
        expansion: how queries are filled up; None = not.
    """

    queries: Features
    documents: Features
    labels: np.ndarray
    query_length: int
    expansion: Expansion | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def size(self) -> int:
        """The number of documents of an example, K."""
        size: int = self.labels.shape[1]
        return size

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """int64 `[n]`, tokens of the longest document of each example."""
        lengths: np.ndarray = self.documents.lengths.reshape(-1, self.size).max(axis=1)
        return lengths

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """Return the batch of examples `index` [B]; an index of -1 makes a weight of 0.

        Returns:
            `query_ids`, `query_mask` (tokens to attend to) and `query_scored` (tokens that are not padding)
            `[B, query_length]`; `input_ids` and `attention_mask` of the documents `[B, K, length]`; `labels` `[B, K]`;
            `example_weights` `[B]`.
        """
        real = index >= 0
        places = np.where(real[:, None], index[:, None] * self.size + np.arange(self.size), -1)
        documents = self.documents.pad(places.ravel(), length, pad_id)
        queries = self.queries.pad(index, self.query_length, pad_id)
        ids, mask = queries["input_ids"], queries["attention_mask"]
        scored = mask
        if self.expansion is not None:
            added = (mask == 0) & (np.arange(self.query_length) < self.expansion.length) & real[:, None]
            ids, scored = np.where(added, np.int32(self.expansion.token), ids), mask | added
            mask = scored if self.expansion.attended else mask
        return {
            "query_ids": ids,
            "query_mask": mask,
            "query_scored": scored,
            **{name: documents[name].reshape(*places.shape, length) for name in ("input_ids", "attention_mask")},
            "labels": np.where(real[:, None], self.labels[index], np.float32(0)),
            "example_weights": real.astype(np.float32),
        }


def encode_query_documents(
    rows: Sequence[RankedPassages],
    encode_queries: Callable[[list[str]], Features],
    encode_documents: Callable[[list[str]], Features],
    expansion: Expansion | None = None,
) -> QueryDocuments:
    """Tokenize rows, filled up to an equal number of documents; queries are padded to a multiple of 8 tokens.

    Args:
        rows: queries with their documents.
        encode_queries: function that tokenizes texts.
        encode_documents: the same for documents.
        expansion: how queries are filled up.
    """
    labels, documents = filled_passages(rows)
    queries = encode_queries([row.query for row in rows])
    longest = max(int(queries.lengths.max()), expansion.length if expansion else 0)
    texts = list(itertools.chain.from_iterable(documents))
    return QueryDocuments(queries, encode_documents(texts), labels, -(-longest // 8) * 8, expansion)
