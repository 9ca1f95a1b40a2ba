"""Sequences that are longer than a model takes, as windows that overlap."""

import itertools
from typing import NamedTuple


class Window(NamedTuple):
    """A part of a sequence, and the part of that which is to be answered from it: half-open ranges of tokens."""

    start: int
    stop: int
    own_start: int
    own_stop: int


def overlapping(length: int, room: int) -> list[Window]:
    """The windows over `length` tokens, none when there are none.

    Neighbours share about a quarter of their tokens and part in the middle of what they share, so that each token is
    owned by one window, and by that which shows more of what stands around it.

    Args:
        length: tokens of the sequence.
        room: tokens of a window, at least 1; the last has as many too, where the sequence has.
    """
    starts = [*range(0, max(length - room, 0), room - room // 4), max(length - room, 0)] if length else []
    borders = [0, *((start + before + room) // 2 for before, start in itertools.pairwise(starts)), length]
    return [Window(start, min(start + room, length), borders[i], borders[i + 1]) for i, start in enumerate(starts)]
