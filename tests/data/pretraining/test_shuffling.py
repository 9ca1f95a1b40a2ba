"""The order of rows in training: complete in each epoch, mixed, and readable in blocks."""

import numpy as np
import pytest

from bert_jax.data.pretraining import shuffling
from bert_jax.data.pretraining.shuffling import ShuffledRows


def blocks_of(sizes):
    return np.cumsum([0, *sizes])


@pytest.fixture
def small_windows(monkeypatch):
    monkeypatch.setattr(shuffling, "WINDOW_BLOCKS", 4)


MANY = [10] * 30 + [3, 10, 1]  # 9 windows of 3 or 4 blocks


@pytest.mark.parametrize("sizes", [MANY, [10, 10, 4], [1], [1, 1], [5] * 4, [5] * 5])
@pytest.mark.parametrize("batch_size", [1, 7, 16, 64, 1000])  # of a part of a window, of several, of several epochs
def test_an_epoch_has_every_row_once(small_windows, sizes, batch_size):
    order, count = ShuffledRows(blocks_of(sizes), batch_size, 1), sum(sizes)
    rows, epochs = order.rows(np.arange(4 * count))
    assert epochs.tolist() == np.repeat(range(4), count).tolist()
    seen = rows.reshape(4, count)
    np.testing.assert_array_equal(np.sort(seen, axis=1), np.tile(np.arange(count), (4, 1)))
    if count > 10:
        assert len(set(map(bytes, seen))) == 4
        assert not np.array_equal(ShuffledRows(blocks_of(sizes), batch_size, 2).rows(np.arange(count))[0], seen[0])


def test_a_position_depends_on_nothing_that_was_asked_before(small_windows):
    starts = blocks_of(MANY)
    whole, epochs = ShuffledRows(starts, 12, 0).rows(np.arange(2000))
    order, rng = ShuffledRows(starts, 12, 0), np.random.default_rng(0)
    for _ in range(50):
        positions = rng.integers(0, 2000, 5)
        for found, expected in zip(order.rows(positions), (whole, epochs), strict=True):
            np.testing.assert_array_equal(found, expected[positions])


def test_the_order_is_that_of_all_versions(small_windows):
    rows, _ = ShuffledRows(blocks_of([4] * 9), 4, 3).rows(np.arange(36, 60))
    expected = [8, 11, 28, 12, 9, 31, 29, 15, 10, 30, 13, 14, 23, 20, 0, 27, 22, 2, 3, 25, 21, 1, 24, 26]
    assert rows.tolist() == expected


@pytest.mark.parametrize("batch_size", [64, 256, 1000])
def test_a_batch_draws_evenly_from_the_blocks_of_its_window(batch_size):
    sizes = [100] * 50  # one window
    order = ShuffledRows(blocks_of(sizes), batch_size, 0)
    for step in range(5000 // batch_size):
        rows, _ = order.rows(np.arange(step * batch_size, (step + 1) * batch_size))
        counts = np.bincount(rows // 100, minlength=50)
        assert counts.max() <= -(-batch_size // 50) + 1 and counts.min() >= batch_size // 50 - 1


@pytest.mark.parametrize("batch_size", [64, 1000])
def test_neighbours_share_a_batch_no_more_often_than_by_chance(batch_size):
    order, together = ShuffledRows(blocks_of([100] * 50), batch_size, 0), 0
    steps = 5000 // batch_size
    for step in range(steps):
        rows, _ = order.rows(np.arange(step * batch_size, (step + 1) * batch_size))
        together += (np.diff(np.sort(rows)) == 1).sum()
    assert together <= 1.2 * steps * batch_size**2 / 5000


@pytest.mark.parametrize("batch_size", [5, 12, 16, 61, 300])
def test_blocks_of_some_rows_of_the_batch_are_those_that_hold_them(small_windows, batch_size):
    starts, rng = blocks_of(MANY), np.random.default_rng(0)
    order, count = ShuffledRows(starts, batch_size, 0), sum(MANY)
    positions = np.arange(3 * count)
    blocks = np.searchsorted(starts, order.rows(positions)[0], side="right") - 1
    windows = order._windows(positions)
    assert windows[-1] == 26 and (np.diff(windows) >= 0).all()
    for batch_rows in (np.arange(batch_size), np.arange(2), np.array([batch_size - 1]), rng.integers(0, batch_size, 3)):
        for window in range(27):
            inside = (windows == window) & np.isin(positions % batch_size, batch_rows)
            assert sorted(order.blocks(window, batch_rows)) == sorted(set(blocks[inside]))


def test_a_host_needs_its_share_of_the_blocks():
    order = ShuffledRows(blocks_of([100] * 200), 64, 0)
    needed = [order.blocks(0, np.arange(first, first + 8)) for first in range(0, 64, 8)]
    assert all(len(blocks) <= 200 / 8 + 1 for blocks in needed)
    assert set(np.concatenate(needed)) == set(range(200))


@pytest.mark.parametrize("batch_size", [4, 12, 61, 300])
def test_windows_ahead_are_those_of_this_batch_and_the_next(small_windows, batch_size):
    order = ShuffledRows(blocks_of(MANY), batch_size, 0)
    for step in range(60):
        ahead = order.windows_ahead(step, step)
        both = np.unique(order._windows(np.arange(step * batch_size, (step + 2) * batch_size)))
        assert set(both) <= set(ahead)
        assert len(ahead) == 2 or batch_size > 12  # windows have 20 rows and more
