"""Embeddings with a vector for each token, compared by late interaction (ColBERT; Khattab and Zaharia
2020, arXiv:2004.12832)."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.conversion.multi_vector_settings import MultiVectorSettings
from bert_jax.errors import TextError
from bert_jax.inference.base import TEXT_WINDOW, check_option, progress_bar
from bert_jax.tasks.embedding.embedder import Embedder
from bert_jax.tasks.embedding.multi_vector.token_pooling import pool_token_vectors
from bert_jax.tokenization import Tokenizer


class _Rows(NamedTuple):
    """Tokenized texts.

    Attributes:
        window: the numbers of the texts.
        inputs: padded arrays by name, `[N, S]`.
        lengths: number of tokens of each text, including those that fill up a query, `[N]`.
        scored: bool `[N, S]`, whether a token has a vector in the result.
    """

    window: range
    inputs: dict[str, np.ndarray]
    lengths: np.ndarray
    scored: np.ndarray


class MultiVectorEmbedding(Embedder):
    """Embeddings with a vector for each token: float32 `[T, D]` for a text of T tokens, a list of these for a list.

    The option `task` also sets the maximum length, the skipped tokens, and whether texts are filled up with mask
    tokens. Without it, a text is a document with the default prompt and the model's maximum length.
    """

    head = "multi_vector"

    def _embed(
        self, texts: list[str], prompt: str, size: int | None, task: str | None, truncation: bool, progress: bool
    ) -> list[np.ndarray]:
        vectors: list[Any] = [None] * len(texts)
        settings = self.model.settings.multi_vector or MultiVectorSettings()
        pooling = settings.pooling if settings.pooling is not None and settings.pooling.applies_to(task) else None
        with progress_bar(len(texts), progress) as advance:
            for window, inputs, lengths, scored in self._tokenized(texts, prompt, task, truncation):
                for rows, _, output in self._batches(inputs, ("token_embeddings",), lengths=lengths):
                    for row, of_tokens in zip(rows, np.asarray(output.token_embeddings), strict=True):
                        of_text = of_tokens[scored[row, : len(of_tokens)]]
                        vectors[window[row]] = of_text if pooling is None else pool_token_vectors(of_text, pooling)
                    advance(len(rows))
        return vectors

    def _tokenized(self, texts: list[str], prompt: str, task: str | None, truncation: bool) -> Iterator[_Rows]:
        """Tokenize texts with a prompt, a window of texts at a time."""
        settings = self.model.settings.multi_vector or MultiVectorSettings()
        longest = min(settings.length_of(task, self.model.max_length), self.model.config.max_position_embeddings)
        check_option("prompt", prompt)
        for first in range(0, len(texts), TEXT_WINDOW):
            window = range(first, min(first + TEXT_WINDOW, len(texts)))
            rows, lengths = encode_behind_markers(self.tokenizer, settings, texts[first : window.stop], prompt, longest)
            for i, length in zip(window, lengths, strict=True):
                if length > longest and not truncation:
                    raise TextError(i, f"expected at most {longest} tokens, found {length}")
            yield self._filled(window, rows, settings, task)

    def _filled(self, window: range, rows: list[list[int]], settings: MultiVectorSettings, task: str | None) -> _Rows:
        """Fill up queries as the settings say, and pad all rows to one length."""
        of_text = np.array([len(row) for row in rows])
        expansion = settings.expansion if task == "query" else None
        lengths = np.maximum(of_text, expansion.length) if expansion else of_text
        lengths = np.minimum(lengths, self.model.config.max_position_embeddings)
        places = np.arange(lengths.max())
        real, inside = (places < count[:, None] for count in (of_text, lengths))
        ids = np.full(real.shape, self.tokenizer.pad_id, np.int32)
        ids[real] = np.concatenate(rows)
        attended = real
        if expansion is not None:
            ids[inside & ~real] = settings.expansion_id(self.tokenizer)
            attended = inside if expansion.attended else real
        scored = inside & ~np.isin(ids, settings.skipped_ids(self.tokenizer, task))
        inputs = {"input_ids": ids, "attention_mask": attended.astype(np.int32)}
        if offset := self.model.config.positions.position_offset:  # default positions count attended tokens only
            inputs["position_ids"] = np.broadcast_to(places + offset, ids.shape)
        return _Rows(window, inputs, lengths, scored)


def encode_behind_markers(
    tokenizer: Tokenizer, settings: MultiVectorSettings, texts: Sequence[str], prompt: str, longest: int
) -> tuple[list[list[int]], list[int]]:
    """Tokenize texts with a prompt, which may begin with a token of the vocabulary (`settings.markers`).

    Returns:
        The rows, with special tokens, cut to `longest` tokens; and the number of tokens of each row before the cut.
    """
    marker, prompt = _marker(tokenizer, settings, prompt)
    start, end = [*tokenizer.layout.start, *marker], list(tokenizer.layout.end)
    room, from_left = longest - len(start) - len(end), tokenizer.truncation_side == "left"
    rows = tokenizer.encode_batch([prompt + text for text in texts])
    kept = [row[max(0, len(row) - room) :] if from_left else row[:room] for row in rows]
    return [start + row + end for row in kept], [len(row) - room + longest for row in rows]


def _marker(tokenizer: Tokenizer, settings: MultiVectorSettings, prompt: str) -> tuple[list[int], str]:
    """Return the id of the marker (a token of the vocabulary) that begins a prompt, if any, and the rest."""
    for _, marker in settings.markers:
        if marker.strip() and prompt.startswith(marker):
            for token in (marker, marker.split(maxsplit=1)[0]):
                if (token_id := tokenizer.token_to_id(token)) is not None:
                    return [token_id], prompt[len(token) :]
    return [], prompt
