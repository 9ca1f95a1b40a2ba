"""Padded lengths, and which rows a batch holds."""

import itertools

import numpy as np
import pytest

from bert_jax.data.finetuning.batching import EvalSource, TrainSource, choose_buckets, few_buckets
from bert_jax.data.finetuning.features import Features


def features(lengths, first=None):
    """Features whose tokens say which example and place they are: 1000 * example + place."""
    lengths = np.asarray(lengths)
    tokens = np.concatenate([1000 * (i + 1) + np.arange(n) for i, n in enumerate(lengths)]).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    first = lengths if first is None else first
    return Features(tokens, starts, np.asarray(first, np.int32), np.arange(len(lengths), dtype=np.int32) + 7)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_buckets_waste_least_of_all_choices(most):
    lengths = np.random.default_rng(most).integers(1, 50, 200)
    grid = range(8, 57, 8)

    def padded(buckets):
        return np.asarray(buckets)[np.searchsorted(buckets, lengths)].sum()

    choices = [b for k in range(1, most + 1) for b in itertools.combinations(grid, k) if b[-1] >= lengths.max()]
    found = choose_buckets(lengths, 512, most=most, least_gain=0.0)
    assert list(found) == sorted(set(found))
    assert padded(found) == min(map(padded, choices))


def test_a_bucket_that_saves_little_is_left_out():
    assert choose_buckets(np.array([64] * 999 + [1]), 512) == (64,)
    assert choose_buckets(np.array([64] * 500 + [1] * 500), 512) == (8, 64)
    assert choose_buckets(np.array([5]), 512) == (8,)


def test_no_bucket_is_longer_than_a_sequence_may_be():
    assert choose_buckets(np.array([30] * 500 + [1] * 500), 30) == (8, 30)
    assert few_buckets(np.array([50] * 9), 50) == (50,)


def source(n=103, batch_size=8, seed=3):
    lengths = np.random.default_rng(0).integers(3, 40, n)
    return TrainSource(features(lengths), batch_size, (8, 16, 40), pad_id=0, seed=seed)


def test_every_epoch_holds_each_example_once_and_the_same_shapes():
    a = source()
    orders = []
    for epoch in range(3):
        batches = [a.batch(epoch * a.steps_per_epoch + step) for step in range(a.steps_per_epoch)]
        labels = np.concatenate([b["labels"][b["example_weights"] > 0] for b in batches])
        assert sorted(labels) == list(range(7, 110))
        lengths = [b["input_ids"].shape[1] for b in batches]
        assert {n: lengths.count(n) for n in set(lengths)} == a.shapes()
        assert sum((b["example_weights"] < 1).any() for b in batches) == 1
        orders.append(labels.tolist())
    assert orders[0] != orders[1] != orders[2]


def test_rows_carry_their_own_tokens_padded_to_a_length_that_fits():
    a = source()
    lengths = a.features.lengths
    for step in range(a.steps_per_epoch):
        batch = a.batch(step)
        for ids, mask, label, weight in zip(
            batch["input_ids"], batch["attention_mask"], batch["labels"], batch["example_weights"], strict=True
        ):
            n = lengths[label - 7] if weight else 0
            assert mask.tolist() == [1] * n + [0] * (len(ids) - n)
            assert ids[:n].tolist() == (1000 * (label - 6) + np.arange(n)).tolist()
            assert not ids[n:].any()


def test_a_batch_depends_on_seed_and_step_alone():
    steps = [31, 2, 17, 2, 40]
    a, b = source(), source()
    first = {step: a.batch(step) for step in steps}
    for step in reversed(steps):
        for name, value in b.batch(step).items():
            np.testing.assert_array_equal(value, first[step][name])
    other = source(seed=4).batch(2)
    assert other["labels"].tolist() != first[2]["labels"].tolist()


def test_hosts_that_take_some_rows_make_the_batch_together():
    a = source()
    for step in range(a.steps_per_epoch):
        whole = a.batch(step)
        halves = [a.batch(step, slice(0, 4)), a.batch(step, slice(4, 8))]
        for name, value in whole.items():
            np.testing.assert_array_equal(np.concatenate([half[name] for half in halves]), value)


def test_fewer_examples_than_a_batch():
    a = source(n=5)
    assert a.steps_per_epoch == 1
    assert a.batch(9)["example_weights"].tolist() == [1] * 5 + [0] * 3


@pytest.mark.parametrize("n", [1, 8, 21])
def test_evaluation_sees_each_example_once_and_restores_their_order(n):
    lengths = np.random.default_rng(n).integers(3, 60, n)
    data = features(lengths)
    evaluation = EvalSource(data, 8, (16, 32), pad_id=0)
    batches = [evaluation.batch(i) for i in range(evaluation.num_batches)]
    assert evaluation.num_batches == -(-n // 8)
    weights = np.concatenate([b["example_weights"] for b in batches])
    assert weights.tolist() == [1] * n + [0] * (len(weights) - n)
    assert evaluation.restore([b["labels"] for b in batches]).tolist() == data.labels.tolist()
    assert {b["input_ids"].shape[1] for b in batches} <= {16, 32, int(lengths.max())}
    np.testing.assert_array_equal(evaluation.batch(0, slice(2, 5))["input_ids"], batches[0]["input_ids"][2:5])
