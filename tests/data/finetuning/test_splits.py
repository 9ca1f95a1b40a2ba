"""Which rows are held out: how many of each class or group, and that nothing else decides it."""

import numpy as np
import pytest

from bert_jax.data.finetuning.splits import held_out, held_out_groups


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ([80, 20], 0.1, [8, 2]),
        ([6, 3, 1], 0.5, [3, 2, 0]),  # 5 of 10; of those that lost a half the last keeps its only row
        ([5, 5], 0.1, [1, 0]),  # 1 of 10; equals: the first
        ([3, 7], 0.25, [1, 2]),  # 0.75 and 1.75, of 2.5, which is rounded up to 3
        ([1, 1, 1], 0.9, [0, 0, 0]),
        ([0, 4], 0.5, [0, 2]),
        ([25], 0.1, [3]),
        ([100], 0.29, [29]),  # 28.999999999999996 in floating point
    ],
)
def test_each_class_keeps_its_share(counts, share, expected):
    classes = np.random.default_rng(1).permutation(np.repeat(np.arange(len(counts)), counts))
    held = held_out(classes, share, seed=3)
    assert np.bincount(classes[held], minlength=len(counts)).tolist() == expected


def test_the_rounding_is_never_off_by_more_than_a_row():
    random = np.random.default_rng(0)
    for _ in range(200):
        counts, share = random.integers(2, 50, random.integers(1, 6)), random.uniform(0.01, 0.8)
        classes = np.repeat(np.arange(len(counts)), counts)
        taken = np.bincount(classes[held_out(classes, share, 0)], minlength=len(counts))
        assert (np.abs(taken - share * counts) <= 1).all() and (taken < counts).all()
        assert abs(taken.sum() - share * len(classes)) <= 0.5 + (taken == counts - 1).sum()


def test_the_seed_alone_decides_which():
    classes = np.random.default_rng(0).integers(0, 3, 90)
    a, b = held_out(classes, 0.2, 5), held_out(classes, 0.2, 5)
    assert (a == b).all() and a.sum() == 18
    assert (a != held_out(classes, 0.2, 6)).any()


def test_groups_stay_together():
    groups = np.repeat(np.arange(12), np.random.default_rng(0).integers(1, 40, 12))
    chosen = set()
    for seed in range(5):
        held = held_out_groups(groups, 0.25, seed)
        assert not set(groups[held]) & set(groups[~held])
        assert abs(held.sum() - 0.25 * len(groups)) < 20  # less than half the largest group
        assert (held == held_out_groups(groups, 0.25, seed)).all()
        chosen.add(tuple(held))
    assert len(chosen) == 5


def test_groups_that_would_be_too_many_rows_are_left():
    assert not held_out_groups(np.repeat([0, 1], [50, 50]), 0.2, 0).any()
    assert held_out_groups(np.repeat([0, 2], [90, 10]), 0.1, 0).tolist() == [False] * 90 + [True] * 10
