"""Pack short examples into rows, so that a batch has little padding.

The model keeps the examples of a row apart: attention stays within a segment, positions begin anew in each, and each
has a [CLS] of its own. Of a corpus, rows are composed when it is prepared, so that a row is as easily found as an
example; of the rows of a table, when training begins (`bert_jax.data.finetuning.packing`).
"""

import bisect
from collections.abc import Mapping, Sequence

import numpy as np


def best_fit(lengths: Sequence[int] | np.ndarray, room: int, order: np.ndarray | None = None) -> list[list[int]]:
    """Compose rows of at most `room` tokens: each example goes to the row that it fills best.

    The longest first, it is best-fit decreasing (Johnson 1974, https://doi.org/10.1137/0203025): at most about 11/9 of
    the fewest rows possible.

    Args:
        lengths: of the examples, special tokens counted; none above `room`.
        room: tokens a row.
        order: in which the examples come, by index; None: the longest first.

    Returns:
        Indices of the examples of each row.
    """
    rows: list[list[int]] = []
    by_room: dict[int, list[int]] = {}  # tokens left -> rows that have just so many
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
    """Lay examples of pretraining end to end into rows.

    Args:
        batch: I examples as `PreparedInstances` makes them, a row each: `[I, L]`, `[I, P]` and `[I]`.
        rows: int [I], ascending from 0 without gaps: the row that each example goes to.
        seq_length: S, tokens a row.
        slots: predictions a row; as many as the examples of any row have together.
        most: M, examples a row.
        pad_id: fills `input_ids`.

    Returns:
        As `pack_examples` does; of [I] arrays `next_sentence_labels`, where `batch` has them, and `example_weights`.
        Besides, `masked_*` [R, slots].
    """
    num_rows, fills = int(rows[-1]) + 1, {"input_ids": pad_id, "token_type_ids": 0}
    names = ("attention_mask", *fills, "next_sentence_labels", "example_weights")
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
    """Lay examples end to end into rows.

    Args:
        batch: I examples, a row each: `attention_mask` [I, L], of tokens that stand first; other arrays of tokens
            [I, L], which are named in `fills`; and arrays of examples [I, ...].
        rows: int [I], ascending: the row that each example goes to.
        num_rows: R; those that no example goes to are padding.
        seq_length: S, tokens a row.
        most: M, examples a row.
        fills: array of tokens -> what its padding is.

    Returns:
        [R, S] of each array of tokens, and int32 `position_ids` (from 0 in each example) and `segment_ids` (from 1; 0
        is padding); [R, M, ...] of each array of examples, 0 where a row has fewer; and int32 `cls_positions` [R, M],
        where each example begins.
    """
    lengths = batch["attention_mask"].sum(axis=1)
    number = count_within(rows)  # of an example within its row
    begins = np.cumsum(lengths) - lengths
    offsets = begins - begins[np.arange(len(rows)) - number]  # where it begins in its row

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
    """For each element of ascending `rows`, how many equal ones stand before it."""
    return np.arange(len(rows)) - np.searchsorted(rows, rows)
