"""The order of the steps of several data sets: shares are exact, and a step's place is a function of the step alone."""

import numpy as np
import pytest

from bert_jax.data.finetuning.set_batches import RoundRobinOrder, ShuffledOrder, WeightedOrder, rows_of_sets

ORDERS = {
    "proportional": lambda: ShuffledOrder([7, 1, 4], seed=3),
    "round robin": lambda: RoundRobinOrder(3),
    "weights": lambda: WeightedOrder([0.5, 3.0, 1.25]),
}


@pytest.mark.parametrize("name", ORDERS)
def test_a_set_reads_each_of_its_batches_once_and_in_order(name):
    order, seen = ORDERS[name](), [0, 0, 0]
    for step in range(40):
        assert order.counts(step) == seen
        chosen, turn = order.place(step)
        assert turn == seen[chosen]
        seen[chosen] += 1
    again = ORDERS[name]()  # without the steps before
    assert [again.place(step) for step in (39, 2, 17)] == [order.place(step) for step in (39, 2, 17)]


def test_a_block_has_each_batch_of_each_set_in_a_random_order():
    order = ShuffledOrder([7, 1, 4], seed=3)
    blocks = [[order.place(step)[0] for step in range(start, start + 12)] for start in (0, 12, 24)]
    assert all(np.bincount(block).tolist() == [7, 1, 4] for block in blocks)
    assert blocks[0] != blocks[1] and blocks[0] != [ShuffledOrder([7, 1, 4], seed=4).place(i)[0] for i in range(12)]


def test_weights_are_shares_of_any_part_of_a_run():
    weights = np.array([0.5, 3.0, 1.25])
    order = WeightedOrder(weights)
    counts = np.array([order.counts(step) for step in range(0, 200_000, 997)])
    steps = np.arange(len(counts)) * 997
    np.testing.assert_allclose(counts, steps[:, None] * weights / weights.sum(), atol=12)


def test_the_rows_of_a_mixed_batch_are_its_shares():
    assert rows_of_sets([3, 1], 32, 1) == [24, 8]
    assert rows_of_sets([2, 1], 32, 4) == [20, 12]
    assert rows_of_sets([1000, 1], 16, 1) == [16, 0]
    assert rows_of_sets([1, 1, 1], 16, 2) == [6, 6, 4]


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("sizes", [[7, 1, 4], [5, 5]])
def test_an_epoch_has_the_batches_of_sentence_transformers_samplers(sizes):
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    samplers = pytest.importorskip("sentence_transformers.base.sampler", reason="the oracle")
    data = torch.utils.data.ConcatDataset([torch.zeros(8 * size - 3) for size in sizes])
    own = [torch.utils.data.BatchSampler(range(8 * size - 3), 8, drop_last=False) for size in sizes]
    ends = np.array(data.cumulative_sizes)
    expected = {}
    for kind in (samplers.ProportionalBatchSampler, samplers.RoundRobinBatchSampler):
        sampler = kind(data, own, generator=torch.Generator(), seed=0)
        sets = [int(np.searchsorted(ends, rows[0], side="right")) for rows in sampler]
        assert len(sets) == len(sampler)
        expected[kind] = sets
    proportional = expected[samplers.ProportionalBatchSampler]
    order = ShuffledOrder(sizes, seed=0)
    assert len(proportional) == sum(sizes) and order.counts(sum(sizes)) == np.bincount(proportional).tolist()
    turns = [RoundRobinOrder(len(sizes)).place(step)[0] for step in range(min(sizes) * len(sizes))]
    assert turns == expected[samplers.RoundRobinBatchSampler]
