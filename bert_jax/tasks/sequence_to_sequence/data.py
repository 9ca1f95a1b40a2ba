"""Rows of a source and a target text, tokenized for an encoder-decoder."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.features import Features, encode_texts
from bert_jax.data.finetuning.records import table_name
from bert_jax.data.finetuning.tables import Example, read_examples
from bert_jax.data.invalid_rows import InvalidRows, check_texts, place
from bert_jax.errors import InputError
from bert_jax.tokenization import Tokenizer

NO_LABEL = -1  # label of padding
_MULTIPLE = 8  # padded lengths of targets are multiples of this


def read_source_targets(spec: Any, columns: Columns, bad: InvalidRows | None = None) -> list[Example]:
    """Read the rows of a table of sources (the text column) and targets (the label column).

    Args:
        spec: a table, as for `read_examples`.
        columns: the columns.
        bad: collects invalid rows; None: they are an error.

    Raises:
        InputError: as for `read_examples`, or a text is empty, or there are no rows.
    """
    bad = bad or InvalidRows(table_name(spec))

    def checked(row: Example) -> Example:
        check_texts(place(table_name(spec), row.line), {columns.text: row.text, columns.label: row.label or ""})
        return row

    rows = list(bad.fitting(bad.each(read_examples(spec, columns, bad), checked)))
    if not rows:
        raise InputError(f"{table_name(spec)}: expected at least one row, found none")
    return rows


@dataclasses.dataclass(frozen=True, eq=False)
class SourceTargets:
    """Tokenized sources and targets.

    Attributes:
        sources: the n sources.
        targets: the n targets, each with its first and its last special token.
    """

    sources: Features
    targets: Features

    def __len__(self) -> int:
        return len(self.sources)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The number of tokens in the longer text of each row, int64 `[n]`."""
        lengths: np.ndarray = np.maximum(self.sources.lengths, self.targets.lengths)
        return lengths

    @functools.cached_property
    def target_length(self) -> int:
        """The maximum padded length of targets."""
        return int(-(-self.targets.lengths.max() // _MULTIPLE) * _MULTIPLE)

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """Return the batch of rows `index` [B], padded to `length`; an index of -1 makes a row of weight 0.

        Returns:
            `input_ids` and `attention_mask` of the sources `[B, length]`; `decoder_input_ids`, the targets without
            their last token, and `labels`, the targets without their first token, `[B, T]`; `example_weights` `[B]`.
        """
        sources = self.sources.pad(index, length, pad_id)
        targets = self.targets.pad(index, min(length, self.target_length), pad_id)
        ids, real = targets["input_ids"], targets["attention_mask"] > 0
        return {
            "input_ids": sources["input_ids"],
            "attention_mask": sources["attention_mask"],
            "decoder_input_ids": ids[:, :-1],
            "labels": np.where(real[:, 1:], ids[:, 1:], np.int32(NO_LABEL)),
            "example_weights": sources["example_weights"],
        }


def encode_source_targets(
    tokenizer: Tokenizer, rows: Sequence[Example], max_length: int, max_target_length: int
) -> SourceTargets:
    """Tokenize rows of `read_source_targets`; sources and targets over their limits are cut."""
    none = np.zeros(len(rows), np.int32)
    sources = encode_texts(tokenizer, [Example(0, row.text, None, None) for row in rows], none, max_length)
    targets = encode_texts(
        tokenizer, [Example(0, row.label or "", None, None) for row in rows], none, max_target_length
    )
    return SourceTargets(sources, targets)
