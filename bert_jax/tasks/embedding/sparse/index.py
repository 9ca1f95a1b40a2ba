"""An inverted index of sparse embeddings: for each token of the vocabulary, the texts in which it has a weight."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.errors import InputError
from bert_jax.tasks.embedding.index_files import IndexFiles, IndexWriter
from bert_jax.tasks.embedding.search_index import SearchIndex, best_texts

INVERTED_SIMILARITIES = ("dot", "cosine")
_BLOCK = 1 << 22  # entries that are merged at a time


class SparseIndex(SearchIndex):
    """An inverted index on disk. Search is exact, and reads only the entries of the query's tokens."""

    def __init__(self, files: IndexFiles, width: int, similarity: str):
        super().__init__(files, width, similarity)
        self._texts = files.array("token_texts", np.int32, (None,))
        self._weights = files.array("token_weights", np.float32, (len(self._texts),))
        starts = files.array("token_starts", np.int64, (width + 1,))
        self._starts = files.starts(np.diff(starts), len(self._texts), "token_starts")

    def _best(self, query: Any, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        scores = np.zeros(self._files.count, np.float32)
        for token, weight in zip(query.indices, query.data, strict=True):
            place = slice(self._starts[token], self._starts[token + 1])
            texts = self._texts[place]
            if len(texts) and not 0 <= texts.min() <= texts.max() < len(scores):
                raise self._files.damaged(f"token_texts below {len(scores):,}")
            scores[texts] += weight * self._weights[place]  # `texts` has no duplicates
        return best_texts(scores, top_k, self.live)

    @classmethod
    def write(cls, files: IndexWriter, chunks: Iterable[Any], similarity: str, **options: Any) -> dict[str, Any]:
        """Write an inverted index of sparse vectors, CSR arrays `[n, V]`.

        Raises:
            InputError: the similarity is not dot product or cosine.
        """
        if similarity not in INVERTED_SIMILARITIES:
            expected = " or ".join(INVERTED_SIMILARITIES)
            raise InputError(f"index: expected a model of similarity {expected}, found {similarity}")
        counts, lengths = np.zeros(0, np.int64), []
        for chunk in chunks:
            if not len(counts):
                counts = np.zeros(chunk.shape[1], np.int64)
            counts += np.bincount(chunk.indices, minlength=len(counts))
            files.append("tokens_by_text", chunk.indices.astype(np.int32))
            files.append("weights_by_text", chunk.data.astype(np.float32))
            lengths.append(np.diff(chunk.indptr))
        starts = np.concatenate([[0], np.cumsum(counts)])
        files.append("token_starts", starts)
        by_text = files.read("tokens_by_text"), files.read("weights_by_text")
        by_token = (files.create(name, kind, (int(starts[-1]),))
                    for name, kind in (("token_texts", np.int32), ("token_weights", np.float32)))  # fmt: skip
        _invert(*by_text, lengths, starts[:-1].copy(), *by_token)
        for name in ("tokens_by_text", "weights_by_text"):
            files.drop(name)
        return {"texts": int(sum(map(len, lengths))), "weights": int(starts[-1])}

    @classmethod
    def merge(cls, files: IndexWriter, parts: Sequence[Any]) -> dict[str, Any]:
        renumbered, count = [], 0  # of each part, the new number of each of its texts; -1 = deleted
        for part in parts:
            numbers = np.full(part._files.count, -1, np.int32)
            numbers[part.live_numbers] = np.arange(count, count + len(part.live_numbers))
            renumbered.append(numbers)
            count += len(part.live_numbers)
        counts: list[np.ndarray] = []
        for tokens in _token_blocks(sum(np.diff(part._starts) for part in parts)):
            entries = [part._entries(tokens, numbers) for part, numbers in zip(parts, renumbered, strict=True)]
            of_token, texts, weights = (np.concatenate(arrays) for arrays in zip(*entries, strict=True))
            order = np.argsort(of_token, kind="stable")
            files.append("token_texts", texts[order])
            files.append("token_weights", weights[order])
            counts.append(np.bincount(of_token, minlength=len(tokens)))
        starts = np.concatenate([[0], np.cumsum(np.concatenate(counts), dtype=np.int64)])
        files.append("token_starts", starts)
        return {"weights": int(starts[-1])}

    def _entries(self, tokens: range, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the entries of consecutive tokens: the token, counted from the first, the new text and the weight."""
        place = slice(self._starts[tokens.start], self._starts[tokens.stop])
        of_token = np.repeat(np.arange(len(tokens)), np.diff(self._starts[tokens.start : tokens.stop + 1]))
        texts = numbers[self._texts[place]]
        kept = texts >= 0
        return of_token[kept], texts[kept], self._weights[place][kept]


def _token_blocks(counts: np.ndarray) -> Iterator[range]:
    """Yield the tokens of the vocabulary in blocks of about `_BLOCK` entries; `counts` has the entries of each."""
    blocks = np.cumsum(counts) // _BLOCK
    ends = [*(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(counts)]
    yield from (range(start, stop) for start, stop in zip([0, *ends], ends, strict=False))


def _invert(
    tokens: np.ndarray,
    weights: np.ndarray,
    lengths: list[np.ndarray],
    ends: np.ndarray,
    token_texts: np.ndarray,
    token_weights: np.ndarray,
) -> None:
    """Sort weights by token, chunk by chunk; `ends` has the position for each token's next weight."""
    start = first = 0
    for rows in lengths:
        stop = start + int(rows.sum())
        order = np.argsort(tokens[start:stop], kind="stable")
        ordered = tokens[start:stop][order]
        distinct, begins, counts = np.unique(ordered, return_index=True, return_counts=True)
        places = np.repeat(ends[distinct] - begins, counts) + np.arange(len(ordered))
        token_texts[places] = np.repeat(np.arange(first, first + len(rows)), rows)[order]
        token_weights[places] = weights[start:stop][order]
        ends[distinct] += counts
        start, first = stop, first + len(rows)
