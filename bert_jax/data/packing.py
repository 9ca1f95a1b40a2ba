"""Pack short examples into rows, so that a batch has little padding.

The model keeps the examples of a row apart: attention stays within a segment, and each segment has its own positions
from 0 and its own [CLS]. The rows of a corpus are composed when it is prepared, so that random access to a packed row
is as fast as to an example; the rows of a table are composed when training begins
(`bert_jax.data.finetuning.packing`).
"""

import bisect
from collections.abc import Mapping, Sequence

import numpy as np


def best_fit(lengths: Sequence[int] | np.ndarray, room: int, order: np.ndarray | None = None) -> list[list[int]]:
    """Compose rows of at most `room` tokens by best fit: each example goes to the row with the least sufficient room.

    With the longest example first, this is best-fit decreasing (Johnson 1974, https://doi.org/10.1137/0203025), which
    needs at most about 11/9 of the optimal number of rows.

    Args:
        lengths: tokens of each example, special tokens included; none above `room`.
        room: tokens per row.
        order: indices of the examples in the order of placement; None: the longest first.

    Returns:
        Indices of the examples of each row.
    """
    rows: list[list[int]] = []
    by_room: dict[int, list[int]] = {}  # tokens left -> rows with exactly this number of tokens left
    rooms: list[int] = []  # the keys of by_room, ascending
    lengths = np.asarray(lengths)
    if order is None:
        order = np.argsort(-lengths, kind="stable")
    for index, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        place = bisect.bisect_left(rooms, length)
        if place == len(rooms):
            row, left = len(rows), room
            rows.append([])
        else:
            left = rooms[place]
            row = by_room[left].pop()
            if not by_room[left]:
                del by_room[left], rooms[place]
        rows[row].append(index)
        left -= length
        if left not in by_room:
            by_room[left] = []
            bisect.insort(rooms, left)
        by_room[left].append(row)
    return rows


def pack(
    batch: dict[str, np.ndarray], rows: np.ndarray, seq_length: int, slots: int, most: int, pad_id: int = 0
) -> dict[str, np.ndarray]:
    """Concatenate pretraining examples into packed rows.

    Args:
        batch: I examples of `PreparedInstances`, one per row: arrays `[I, L]`, `[I, P]` and `[I]`.
        rows: int [I], ascending from 0 without gaps: the packed row of each example.
        seq_length: S, tokens per packed row.
        slots: predictions per packed row; at least the total of the examples in any row.
        most: M, examples per packed row.
        pad_id: the padding of `input_ids`.

    Returns:
        The arrays of `pack_examples`, with `example_weights` and, where `batch` has them, `next_sentence_labels` and
        `target_counts` as per-example arrays; and `masked_*` [R, slots].
    """
    num_rows, fills = int(rows[-1]) + 1, {"input_ids": pad_id, "token_type_ids": 0}
    names = ("attention_mask", *fills, "next_sentence_labels", "example_weights", "target_counts")
    packed = pack_examples({n: batch[n] for n in names if n in batch}, rows, num_rows, seq_length, most, fills)
    example, slot = np.nonzero(batch["masked_weights"])
    at = rows[example], count_within(rows[example])
    for name in ("masked_positions", "masked_labels", "masked_weights"):
        packed[name] = np.zeros((num_rows, slots), batch[name].dtype)
        packed[name][at] = batch[name][example, slot]
    packed["masked_positions"][at] += packed["cls_positions"][rows, count_within(rows)][example]
    return packed


def pack_examples(
    batch: dict[str, np.ndarray], rows: np.ndarray, num_rows: int, seq_length: int, most: int, fills: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Concatenate examples into packed rows.

    Args:
        batch: I examples, one per row: `attention_mask` [I, L], with padding only at the end; other per-token arrays
            [I, L], which `fills` names; and per-example arrays [I, ...].
        rows: int [I], ascending: the packed row of each example.
        num_rows: R, the number of packed rows; rows without an example are padding.
        seq_length: S, tokens per packed row.
        most: M, examples per packed row.
        fills: name of a per-token array -> its padding value.

    Returns:
        Each per-token array as [R, S]; int32 [R, S] `position_ids` (from 0 in each example) and `segment_ids` (from 1;
        0 is padding); each per-example array as [R, M, ...], 0 where a row has fewer than M; and int32 [R, M]
        `cls_positions`, the position of the first token of each example.
    """
    lengths = batch["attention_mask"].sum(axis=1)
    number = count_within(rows)  # number of each example within its row
    begins = np.cumsum(lengths) - lengths
    offsets = begins - begins[np.arange(len(rows)) - number]  # position of each example's first token in its row

    example, place = np.nonzero(batch["attention_mask"])
    at = rows[example], offsets[example] + place
    of_tokens = {name: (batch[name][example, place], fill) for name, fill in fills.items()}
    of_tokens |= {"position_ids": (place, 0), "segment_ids": (number[example] + 1, 0)}
    packed = {}
    for name, (values, fill) in of_tokens.items():
        packed[name] = np.full((num_rows, seq_length), fill, np.int32)
        packed[name][at] = values
    of_examples = {name: array for name, array in batch.items() if name not in ("attention_mask", *fills)}
    for name, array in (of_examples | {"cls_positions": offsets.astype(np.int32)}).items():
        packed[name] = np.zeros((num_rows, most, *array.shape[1:]), array.dtype)
        packed[name][rows, number] = array
    return packed


def count_within(rows: np.ndarray) -> np.ndarray:
    """Return, for each element of ascending `rows`, the number of equal elements before it."""
    return np.arange(len(rows)) - np.searchsorted(rows, rows)
