"""Examples of a query and its documents, both padded to their own lengths."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import numpy as np

from bert_jax.conversion.multi_vector_settings import MultiVectorSettings, QueryExpansion
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.features import Features, ragged_features
from bert_jax.data.finetuning.ranked_passages import RankedPassages, filled_passages
from bert_jax.tasks.embedding.multi_vector.embedder import encode_behind_markers
from bert_jax.tokenization import Tokenizer

_CHUNK = 8192  # texts that are tokenized at a time


@dataclasses.dataclass(frozen=True, eq=False)
class QueryDocuments:
    """Tokenized examples of one query and K documents.

    Attributes:
        queries: the n queries.
        documents: the `n * K` documents; those of an example are adjacent.
        labels: float32 `[n, K]`, the relevance of each document; `MISSING` for documents that an example lacks.
        query_length: the padded length of queries.
        expansion: how queries are filled up; None = they are not.
        expansion_id: id of the token that fills them up.
    """

    queries: Features
    documents: Features
    labels: np.ndarray
    query_length: int
    expansion: QueryExpansion | None = None
    expansion_id: int = 0

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def size(self) -> int:
        """The number K of documents per example."""
        size: int = self.labels.shape[1]
        return size

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each example's longest document, int64 `[n]`."""
        lengths: np.ndarray = self.documents.lengths.reshape(-1, self.size).max(axis=1)
        return lengths

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """Return the batch of the examples with numbers `index` [B]; -1 gives a padding row.

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
            ids, scored = np.where(added, np.int32(self.expansion_id), ids), mask | added
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
    tokenizer: Tokenizer, rows: Sequence[RankedPassages], settings: TextSettings, plain_queries: bool = False
) -> QueryDocuments:
    """Tokenize queries and documents as inference with these settings does.

    Rows are filled up to an equal number of documents; queries are padded to a multiple of 8 tokens. If `plain_queries`
    is set, queries have no special tokens.
    """
    of_tokens = settings.multi_vector or MultiVectorSettings()

    def encode(texts: Sequence[str], task: str) -> Features:
        if plain_queries and task == "query":
            from bert_jax.tasks.embedding.sparse.static_queries import tokenize_plain

            prompt = settings.prompt_of_task(task)
            return ragged_features(tokenize_plain(tokenizer, [prompt + text for text in texts], settings.query_length))
        prompt, longest = settings.prompt_of_task(task), of_tokens.length_of(task, settings.max_length or 0)
        chunks = (texts[start : start + _CHUNK] for start in range(0, len(texts), _CHUNK))
        encoded = (encode_behind_markers(tokenizer, of_tokens, chunk, prompt, longest)[0] for chunk in chunks)
        return ragged_features(row for chunk in encoded for row in chunk)

    labels, passages = filled_passages(rows)
    queries, expansion = encode([row.query for row in rows], "query"), of_tokens.expansion
    documents = encode(list(itertools.chain.from_iterable(passages)), "document")
    longest = max(int(queries.lengths.max()), 1, expansion.length if expansion else 0)
    expansion_id = of_tokens.expansion_id(tokenizer) if expansion else 0
    return QueryDocuments(queries, documents, labels, -(-longest // 8) * 8, expansion, expansion_id)
