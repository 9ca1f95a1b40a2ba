"""Several short examples in one row, so that little of a batch is padding.

The model keeps the examples of a row apart: attention stays within a segment, positions begin anew in each, and each
has a [CLS] of its own. Rows are composed when a corpus is prepared, so that a row is as easily found as an example.
"""

import bisect
from collections.abc import Sequence

import numpy as np


def best_fit(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Composes rows of at most `room` tokens: the longest example first, each to the row that it fills best.

    Best-fit decreasing (Johnson 1974, https://doi.org/10.1137/0203025): at most about 11/9 of the fewest rows possible.

    Args:
        lengths: of the examples, special tokens counted; none above `room`.
        room: tokens a row.

    Returns:
        Indices of the examples of each row.
    """
    rows: list[list[int]] = []
    by_room: dict[int, list[int]] = {}  # tokens left -> rows that have just so many
    rooms: list[int] = []  # the keys of by_room, ascending
    for index in np.argsort(-np.asarray(lengths), kind="stable").tolist():
        place = bisect.bisect_left(rooms, lengths[index])
        if place == len(rooms):
            row, left = len(rows), room
            rows.append([])
        else:
            left = rooms[place]
            row = by_room[left].pop()
            if not by_room[left]:
                del by_room[left], rooms[place]
        rows[row].append(index)
        left -= lengths[index]
        if left not in by_room:
            by_room[left] = []
            bisect.insort(rooms, left)
        by_room[left].append(row)
    return rows


def pack(
    batch: dict[str, np.ndarray], rows: np.ndarray, seq_length: int, slots: int, most: int, pad_id: int = 0
) -> dict[str, np.ndarray]:
    """Lays examples end to end into rows.

    Args:
        batch: I examples as `PreparedInstances` makes them, a row each: `[I, L]`, `[I, P]` and `[I]`.
        rows: int [I], ascending from 0 without gaps: the row that each example goes to.
        seq_length: S, tokens a row.
        slots: predictions a row; as many as the examples of any row have together.
        most: M, examples a row.
        pad_id: fills `input_ids`.

    Returns:
        int32 [R, S] `input_ids`, `token_type_ids`, `position_ids` (from 0 in each example) and `segment_ids` (from 1;
        0 is padding); `masked_*` [R, slots]; int32 [R, M] `cls_positions` and, where `batch` has them,
        `next_sentence_labels`; float32 [R, M] `example_weights`, 0 where a row has fewer examples.
    """
    lengths = batch["attention_mask"].sum(axis=1)
    num_rows = int(rows[-1]) + 1
    number = count_within(rows)  # of an example within its row
    begins = np.cumsum(lengths) - lengths
    offsets = begins - begins[np.arange(len(rows)) - number]  # where it begins in its row

    example, place = np.nonzero(batch["attention_mask"])
    at = rows[example], offsets[example] + place
    fill = {"input_ids": pad_id, "token_type_ids": 0}
    packed = {name: np.full((num_rows, seq_length), value, np.int32) for name, value in fill.items()}
    for name, array in packed.items():
        array[at] = batch[name][example, place]
    packed["position_ids"] = np.zeros((num_rows, seq_length), np.int32)
    packed["position_ids"][at] = place
    packed["segment_ids"] = np.zeros((num_rows, seq_length), np.int32)
    packed["segment_ids"][at] = number[example] + 1

    example, slot = np.nonzero(batch["masked_weights"])
    at = rows[example], count_within(rows[example])
    for name in ("masked_positions", "masked_labels", "masked_weights"):
        packed[name] = np.zeros((num_rows, slots), batch[name].dtype)
        packed[name][at] = batch[name][example, slot]
    packed["masked_positions"][at] += offsets[example].astype(np.int32)

    for name, values in (("cls_positions", offsets), *((n, batch[n]) for n in _BY_EXAMPLE if n in batch)):
        packed[name] = np.zeros((num_rows, most), np.float32 if name == "example_weights" else np.int32)
        packed[name][rows, number] = values
    return packed


_BY_EXAMPLE = ("next_sentence_labels", "example_weights")


def count_within(rows: np.ndarray) -> np.ndarray:
    """For each element of ascending `rows`, how many equal ones stand before it."""
    return np.arange(len(rows)) - np.searchsorted(rows, rows)
