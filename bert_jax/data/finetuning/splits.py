"""Choose the rows of the training data that are held out for evaluation."""

import numpy as np


def held_out(classes: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Choose a share of the rows, stratified: of each class as nearly as whole rows allow.

    In all they are `share` of the rows, rounded to the nearest (a half upwards). Of a class of c rows they are
    `share * c`, rounded down; the rows that are then wanting come one each from the classes that lost most in rounding,
    of equals the first. A class keeps at least one row that is not held out.

    Args:
        classes: int `[n]`, the class of each row, from 0; all 0 where rows have none.
        share: in (0, 1).
        seed: of which rows of a class they are.

    Returns:
        bool `[n]`, a function of the arguments alone.
    """
    counts = np.bincount(classes)
    wanted = share * counts
    most = np.maximum(counts - 1, 0)
    taken = np.minimum(np.floor(wanted).astype(int), most)
    wanting = int(np.floor(share * len(classes) + 0.5)) - taken.sum()
    room = np.argsort(-(wanted - taken), kind="stable")
    room = room[taken[room] < most[room]]
    taken[room[: max(wanting, 0)]] += 1
    order = np.random.default_rng(seed).permutation(len(classes))
    held = np.zeros(len(classes), bool)
    for number, count in enumerate(taken):
        held[order[classes[order] == number][:count]] = True
    return held


def held_out_groups(groups: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Choose whole groups whose rows are as near to a share of all rows as possible.

    The groups are taken one after the other in an order that the seed gives; each is held out if that brings the number
    of rows nearer to the share.

    Args:
        groups: int `[n]`, the group of each row, from 0.
        share: in (0, 1).
        seed: of the order.

    Returns:
        bool `[n]`.
    """
    counts = np.bincount(groups)
    wanted, taken, held = share * len(groups), 0, np.zeros(len(counts), bool)
    for group in np.random.default_rng(seed).permutation(len(counts)):
        held[group] = abs(taken + counts[group] - wanted) < abs(taken - wanted)
        taken += counts[group] * held[group]
    return held[groups]
