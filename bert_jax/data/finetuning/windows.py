"""Cut sequences longer than the model's limit into overlapping windows."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.tokenization.layout import RowLayout


class TextWindow(NamedTuple):
    """A window of a sequence, and the part of it whose predictions are used: half-open ranges of tokens."""

    start: int
    stop: int
    own_start: int
    own_stop: int


class ContextWindow(NamedTuple):
    """A part of a context: the index of its first token, and its number of tokens."""

    start: int
    size: int


def cut_windows(length: int, room: int, stride: int) -> list[ContextWindow]:
    """Cut a context of `length` tokens into windows; an empty context has one window of no tokens."""
    windows = [ContextWindow(0, min(length, room))]
    while sum(windows[-1]) < length:
        start = windows[-1].start + min(windows[-1].size, stride)
        windows.append(ContextWindow(start, min(length - start, room)))
    return windows


def overlapping(length: int, room: int) -> list[TextWindow]:
    """Cut `length` tokens into windows; none where there are no tokens.

    Neighbouring windows share about a quarter of their tokens. Each owns half of the shared tokens, so every token is
    owned by one window: the one that shows more context around it.

    Args:
        length: tokens of the sequence.
        room: tokens of a window, at least 1; windows are shorter only where the sequence is.
    """
    starts = [*range(0, max(length - room, 0), room - room // 4), max(length - room, 0)] if length else []
    borders = [0, *((start + before + room) // 2 for before, start in itertools.pairwise(starts)), length]
    return [TextWindow(start, min(start + room, length), borders[i], borders[i + 1]) for i, start in enumerate(starts)]


def text_windows(
    texts: Sequence[Sequence[int]], layout: RowLayout, max_length: int, stride: int
) -> tuple[list[list[int]], np.ndarray]:
    """Cut texts into the rows of a model; a text that fits into one row is encoded as without windows.

    Args:
        texts: the ids of each text.
        layout: the special tokens of a row.
        max_length: the maximum row length in tokens, special tokens included.
        stride: tokens between the beginnings of two neighbouring windows; 0 = half the room of a row.

    Returns:
        The rows, and int32 `[n]`, the text of each row; windows of a text are neighbours.
    """
    room = max_length - layout.num_special(False)
    rows, numbers = [], []
    for number, ids in enumerate(texts):
        for start, size in cut_windows(len(ids), room, stride or max(room // 2, 1)):
            rows.append([*layout.start, *ids[start : start + size], *layout.end])
            numbers.append(number)
    return rows, np.array(numbers, np.int32)


def averaged(logits: np.ndarray, numbers: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Average the logits `[n, C]` of each text's windows, each window weighted by its number of tokens.

    Args:
        logits: float32 `[n, C]`, the logits of each window.
        numbers: int `[n]`, the text of each window, from 0.
        lengths: int `[n]`, tokens of each window, special tokens included.

    Returns:
        float32 `[T, C]`, the logits of each text; for a text of one window, bit for bit those of the window.
    """
    sums = np.zeros((int(numbers.max()) + 1, logits.shape[1]))  # in float64 a float32 times a length is exact
    np.add.at(sums, numbers, logits.astype(np.float64) * lengths[:, None])
    return (sums / np.bincount(numbers, lengths)[:, None]).astype(np.float32)
