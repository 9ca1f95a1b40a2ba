"""Cut sequences longer than the model's limit into overlapping windows."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data.finetuning.question_windows import cut_windows
from bert_jax.tokenization.layout import RowLayout

LONG_TEXTS = ("cut", "windows")  # what becomes of a text that is longer than a row


class TextWindow(NamedTuple):
    """A part of a sequence, and the part of that which is to be answered from it: half-open ranges of tokens."""

    start: int
    stop: int
    own_start: int
    own_stop: int


def overlapping(length: int, room: int) -> list[TextWindow]:
    """Cut `length` tokens into windows; none where there are no tokens.

    Neighbours share about a quarter of their tokens and part in the middle of what they share, so that each token is
    owned by one window, and by that which shows more of what stands around it.

    Args:
        length: tokens of the sequence.
        room: tokens of a window, at least 1; the last has as many too, where the sequence has.
    """
    starts = [*range(0, max(length - room, 0), room - room // 4), max(length - room, 0)] if length else []
    borders = [0, *((start + before + room) // 2 for before, start in itertools.pairwise(starts)), length]
    return [TextWindow(start, min(start + room, length), borders[i], borders[i + 1]) for i, start in enumerate(starts)]


def text_windows(
    texts: Sequence[Sequence[int]], layout: RowLayout, max_length: int, stride: int
) -> tuple[list[list[int]], np.ndarray]:
    """Cut texts into the rows of a model; a text that fits into one row is encoded as without windows.

    Args:
        texts: ids.
        layout: of the rows.
        max_length: tokens of a row.
        stride: tokens from the beginning of one window to that of the next; 0 = half of those that a row has room for.

    Returns:
        The rows, and int32 `[n]`, the text that each is of; windows of a text are neighbours.
    """
    room = max_length - layout.num_special(False)
    rows, numbers = [], []
    for number, ids in enumerate(texts):
        for start, size in cut_windows(len(ids), room, stride or max(room // 2, 1)):
            rows.append([*layout.start, *ids[start : start + size], *layout.end])
            numbers.append(number)
    return rows, np.array(numbers, np.int32)


def averaged(logits: np.ndarray, numbers: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Average the logits `[n, C]` of each text's windows, each window counted by its number of tokens.

    Args:
        logits: of windows, float32.
        numbers: int `[n]`, the text of each, from 0.
        lengths: int `[n]`, tokens of each, special ones among them.

    Returns:
        float32 `[T, C]`; that of a text of one window is this window's to the bit.
    """
    sums = np.zeros((int(numbers.max()) + 1, logits.shape[1]))  # in float64 a float32 times a length is exact
    np.add.at(sums, numbers, logits.astype(np.float64) * lengths[:, None])
    return (sums / np.bincount(numbers, lengths)[:, None]).astype(np.float32)
