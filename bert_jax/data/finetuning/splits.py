"""Choose the rows of the training data that are held out for evaluation."""

import numpy as np


def held_out(classes: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Choose a share of the rows, stratified by class.

    The total is `share * n`, rounded to the nearest integer (a half upwards). A class of c rows contributes `share * c`
    rows, rounded down; each class that rounding reduced most adds one missing row, the first class in a tie.
    Each class keeps at least one row that is not held out.

    Args:
        classes: int `[n]`, the class of each row, from 0; all 0 where rows have no classes.
        share: the share to hold out, in (0, 1).
        seed: the seed of the choice within a class.

    Returns:
        bool `[n]`, whether each row is held out; depends on the arguments alone.
    """
    counts = np.bincount(classes)
    shares = share * counts
    most = np.maximum(counts - 1, 0)
    taken = np.minimum(np.floor(shares).astype(int), most)
    wanting = int(np.floor(share * len(classes) + 0.5)) - taken.sum()
    room = np.argsort(-(shares - taken), kind="stable")
    room = room[taken[room] < most[room]]
    taken[room[: max(wanting, 0)]] += 1
    order = np.random.default_rng(seed).permutation(len(classes))
    held = np.zeros(len(classes), bool)
    for number, count in enumerate(taken):
        held[order[classes[order] == number][:count]] = True
    return held


def held_out_groups(groups: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Choose whole groups whose rows are about a share of all rows.

    The groups are visited in random order; each is held out if that brings the number of held-out rows nearer to the
    share.

    Args:
        groups: int `[n]`, the group of each row, from 0.
        share: the share to hold out, in (0, 1).
        seed: the seed of the order.

    Returns:
        bool `[n]`, whether each row is held out.
    """
    counts = np.bincount(groups)
    wanted, taken, held = share * len(groups), 0, np.zeros(len(counts), bool)
    for group in np.random.default_rng(seed).permutation(len(counts)):
        held[group] = abs(taken + counts[group] - wanted) < abs(taken - wanted)
        taken += counts[group] * held[group]
    return held[groups]
