"""Token features of labelled texts, as ragged arrays in memory."""

import dataclasses
import functools
import itertools
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Protocol

import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.tables import Example
from bert_jax.errors import InputError
from bert_jax.tokenization import Tokenizer

LONG_TEXTS = ("cut", "windows")  # treatments of texts that are longer than a row

_CHUNK = 8192  # texts tokenised at a time: enough for every thread, few enough for memory


class Paddable(Protocol):
    """Tokenised examples, from which batches are made."""

    @property
    def lengths(self) -> np.ndarray:
        """int64 `[n]`, the minimum padded length of a batch that holds each example, in tokens."""
        ...

    def __len__(self) -> int: ...

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """Return the batch of examples `index` [B], padded to `length`; an index of -1 makes a row of weight 0."""
        ...


class Packable(Paddable, Protocol):
    """Tokenised examples that can be packed, several into a row.

    Attributes:
        token_fills: name of a per-token array of a batch, other than `input_ids` -> its padding value.
    """

    token_fills: ClassVar[Mapping[str, int]]


@dataclasses.dataclass(frozen=True, eq=False)
class Features:
    """Tokenised examples as one ragged array.

    Attributes:
        tokens: int32 `[total]`, the sequences ([CLS] A [SEP] or [CLS] A [SEP] B [SEP]), concatenated.
        starts: int64 `[n + 1]`, the offset of each sequence in `tokens`, followed by `total`.
        first: int32 `[n]`, the number of tokens of segment 0 in each sequence.
        labels: `[n]`, int32 classes or float32 targets, or float32 `[n, C]`, 1 for each class that a text belongs to;
            zeros where there are no labels.
    """

    tokens: np.ndarray
    starts: np.ndarray
    first: np.ndarray
    labels: np.ndarray

    token_fills: ClassVar[Mapping[str, int]] = {"token_type_ids": 0}

    def __len__(self) -> int:
        return len(self.first)

    @property
    def num_examples(self) -> int:
        """The number of rows of the table that the examples come from."""
        return len(self)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """int64 `[n]`, tokens of each sequence."""
        return np.diff(self.starts)

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """Return the batch of examples `index` [B], padded to `length`; an index of -1 makes a row of weight 0."""
        real = index >= 0
        row = np.where(real, index, 0)
        positions = np.arange(length)
        mask = positions < np.where(real, self.lengths[row], 0)[:, None]
        tokens = self.tokens[np.minimum(self.starts[row][:, None] + positions, len(self.tokens) - 1)]
        return {
            "input_ids": np.where(mask, tokens, pad_id).astype(np.int32),
            "attention_mask": mask.astype(np.int32),
            "token_type_ids": (mask & (positions >= self.first[row][:, None])).astype(np.int32),
            "labels": np.where(real.reshape(-1, *[1] * (self.labels.ndim - 1)), self.labels[row], 0).astype(
                self.labels.dtype
            ),
            "example_weights": real.astype(np.float32),
        }


@dataclasses.dataclass(frozen=True, eq=False)
class WindowFeatures(Features):
    """Windows of texts as one ragged array, each with the label of its text.

    Attributes:
        documents: int32 `[n]`, the number of the text of each window.
    """

    documents: np.ndarray

    @property
    def num_examples(self) -> int:
        return int(self.documents[-1]) + 1

    @functools.cached_property
    def shares(self) -> np.ndarray:
        """float32 `[n]`, the weight of each window: one over the number of windows of its text."""
        return (1 / np.bincount(self.documents)[self.documents]).astype(np.float32)

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """Return the batch of `Features.pad`, with `shares` as weights and `documents` int32 [B] (-1 for weight 0)."""
        real = index >= 0
        return super().pad(index, length, pad_id) | {
            "documents": np.where(real, self.documents[index], -1).astype(np.int32),
            "example_weights": np.where(real, self.shares[index], 0).astype(np.float32),
        }


def encode_texts(
    tokenizer: Tokenizer, rows: Sequence[Example], labels: np.ndarray, max_length: int, stride: int | None = None
) -> Features:
    """Tokenize rows.

    The longer text of a sequence over `max_length` tokens is truncated. With a `stride`, the sequence is cut into
    windows instead, each beginning `stride` tokens after the one before it (`windows.text_windows`).

    Raises:
        InputError: `stride` is given and a row is a pair of texts.
    """
    if stride is not None:
        return _encode_windows(tokenizer, rows, labels, max_length, stride)
    parts = []
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        pairs = None if chunk[0].pair is None else [row.pair or "" for row in chunk]
        batch = tokenizer([row.text for row in chunk], pairs, max_length=max_length)
        mask = batch["attention_mask"] > 0
        parts.append((batch["input_ids"][mask], mask.sum(1), (mask & (batch["token_type_ids"] == 0)).sum(1)))
    tokens, lengths, first = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Features(tokens, np.concatenate([[0], np.cumsum(lengths)]), first.astype(np.int32), labels)


def ragged_features(rows: Iterable[Sequence[int]]) -> Features:
    """Return single-segment sequences of tokens as Features without labels."""
    tokens, lengths = array("i"), []
    for row in rows:
        tokens.extend(row)
        lengths.append(len(row))
    of_rows = np.array(lengths, np.int32)
    starts = np.concatenate([[0], np.cumsum(of_rows, dtype=np.int64)])
    return Features(np.frombuffer(tokens, np.int32), starts, of_rows, np.zeros(len(of_rows), np.int32))


def _encode_windows(
    tokenizer: Tokenizer, rows: Sequence[Example], labels: np.ndarray, max_length: int, stride: int
) -> WindowFeatures:
    if rows[0].pair is not None:
        raise InputError("expected single texts to read in windows, found pairs of texts, which can only be cut")
    tokens, lengths, documents = [], [], []
    for start in range(0, len(rows), _CHUNK):
        ids = tokenizer.encode_batch([row.text for row in rows[start : start + _CHUNK]])
        from bert_jax.data.finetuning.windows import text_windows

        windows, numbers = text_windows(ids, tokenizer.layout, max_length, stride)
        lengths += [len(window) for window in windows]
        tokens.append(np.fromiter(itertools.chain.from_iterable(windows), np.int32))
        documents.append(start + numbers)
    starts, document = np.concatenate([[0], np.cumsum(lengths)]), np.concatenate(documents)
    return WindowFeatures(
        np.concatenate(tokens), starts, np.array(lengths, np.int32), labels[document], document.astype(np.int32)
    )
