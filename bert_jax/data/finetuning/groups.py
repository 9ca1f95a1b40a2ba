"""Examples of several sequences each: texts to compare, or the choices of a question."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from bert_jax.data.batches import INPUTS, POOLING_MASK, Batch
from bert_jax.data.finetuning.features import Features, encode_texts
from bert_jax.data.finetuning.tables import Example
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True, eq=False)
class Groups:
    """Tokenised examples of `size` sequences each; the sequences of a batch are padded to one length.

    Attributes:
        sequences: the `n * size` sequences; the sequences of an example are neighbours.
        labels: `[n, ...]`, int32 classes or float32 targets; zeros where there are no labels.
        pooling_skips: int32 `[n, size]`, the number of leading tokens of each sequence that are not pooled; None = as
            the model's config says for every sequence.
    """

    sequences: Features
    labels: np.ndarray
    pooling_skips: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def size(self) -> int:
        """The number of sequences of an example."""
        return len(self.sequences) // len(self.labels)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """int64 `[n]`, tokens of the longest sequence of each example."""
        return self.sequences.lengths.reshape(-1, self.size).max(axis=1)

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """Return the batch of examples `index` [B], inputs `[B, size, length]`; an index of -1 makes a weight of 0.

        With `pooling_skips` the batch has a `pooling_mask`, 1 for tokens that are pooled.
        """
        real = index >= 0
        places = np.where(real[:, None], index[:, None] * self.size + np.arange(self.size), -1)
        padded = self.sequences.pad(places.ravel(), length, pad_id)
        batch = {name: padded[name].reshape(*places.shape, length) for name in INPUTS}
        if self.pooling_skips is not None:
            pooled = np.arange(length) >= self.pooling_skips[index][:, :, None]
            batch[POOLING_MASK] = np.where(pooled, batch["attention_mask"], 0).astype(np.int32)
        return batch | {
            "labels": np.where(real.reshape(-1, *[1] * (self.labels.ndim - 1)), self.labels[index], 0).astype(
                self.labels.dtype
            ),
            "example_weights": real.astype(np.float32),
        }


def encode_groups(
    tokenizer: Tokenizer,
    examples: Sequence[Sequence[tuple[str, str | None]]],
    labels: np.ndarray,
    max_length: int,
) -> Groups:
    """Tokenize examples, each with equally many (text, pair or None); truncate sequences to `max_length` tokens."""
    rows = [Example(0, text, pair, None) for example in examples for text, pair in example]
    return Groups(encode_texts(tokenizer, rows, np.zeros(len(rows), np.int32), max_length), labels)
