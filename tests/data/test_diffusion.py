"""The noise of masked diffusion: how many tokens are masked, their weights, and what the random numbers depend on."""

import numpy as np
import pytest

from bert_jax.data.diffusion import NOISE_SCHEDULES, Noise, add_noise
from bert_jax.data.pretraining.masking import hash_counters

MASK = 99
SIZES = (1, 3, 8)  # target tokens of the examples of each row


def rows(count):
    """Rows `[count, 16]` of three examples of SIZES tokens, each behind a token that is no target."""
    examples = np.zeros((count, 16), np.int32)
    at = 0
    for number, size in enumerate(SIZES, 1):
        examples[:, at + 1 : at + 1 + size] = number
        at += 1 + size
    return np.tile(np.arange(16, dtype=np.int32), (count, 1)), examples


def noisy(noise, count=20_000, seed=0):
    ids, examples = rows(count)
    return ids, examples, add_noise(noise, ids, examples, hash_counters(seed, np.arange(count)), slots=12)


@pytest.mark.parametrize("schedule", NOISE_SCHEDULES)
def test_the_weights_of_an_example_sum_to_its_tokens_on_average(schedule):
    _, examples, out = noisy(Noise(MASK, schedule))
    number = np.take_along_axis(examples, out["masked_positions"], axis=1)
    for each, size in enumerate(SIZES, 1):
        sums = (out["masked_weights"] * (number == each)).sum(axis=1)
        assert sums.mean() == pytest.approx(size, abs=5 * float(sums.std()) / len(sums) ** 0.5 + 1e-4)
    assert (out["target_counts"] == sum(SIZES)).all()


def test_every_number_of_masked_tokens_is_as_likely_in_the_linear_schedule():
    _, examples, out = noisy(Noise(MASK))
    masked = out["input_ids"] == MASK
    counts = np.bincount((masked & (examples == 3)).sum(axis=1), minlength=9) / len(masked)
    assert counts[0] == 0 and counts[1:] == pytest.approx(np.full(8, 1 / 8), abs=0.012)
    often = masked[:, examples[0] == 3].mean(axis=0)  # all positions alike
    assert often == pytest.approx(np.full(8, 4.5 / 8), abs=0.015)


@pytest.mark.parametrize(("schedule", "share"), [("cosine", 1 - 2 / np.pi), ("quadratic", 1 / 3)])
def test_other_schedules_mask_less(schedule, share):
    _, examples, out = noisy(Noise(MASK, schedule))
    found = (out["input_ids"] == MASK)[:, examples[0] == 3].mean()
    assert share < found < share + 0.5 / 8 + 0.01  # rounded up to whole tokens


def test_only_targets_are_masked_and_labels_are_the_originals():
    ids, examples, out = noisy(Noise(MASK, weighting="equal"), count=200)
    masked = out["input_ids"] == MASK
    assert not masked[examples == 0].any() and (out["input_ids"] == ids)[~masked].all()
    for row in range(200):
        places = np.flatnonzero(masked[row])
        assert out["masked_positions"][row, : len(places)].tolist() == places.tolist()
        assert out["masked_labels"][row, : len(places)].tolist() == ids[row, places].tolist()
        assert out["masked_weights"][row].tolist() == [1.0] * len(places) + [0.0] * (12 - len(places))
        assert out["target_counts"][row] == len(places)


def test_a_row_depends_on_its_key_alone():
    ids, examples, out = noisy(Noise(MASK, "cosine"), count=50)
    keys = hash_counters(0, np.arange(50))[10:20]
    part = add_noise(Noise(MASK, "cosine"), ids[10:20], examples[10:20], keys, slots=12)
    assert all(np.array_equal(part[name], out[name][10:20]) for name in out)
    _, _, other = noisy(Noise(MASK, "cosine"), count=50, seed=1)
    assert (other["input_ids"] != out["input_ids"]).any()


def test_rows_without_targets_stay():
    ids, examples = rows(3)
    examples[1] = 0
    out = add_noise(Noise(MASK), ids, examples, hash_counters(np.arange(3)), slots=12)
    assert (out["input_ids"][1] == ids[1]).all() and not out["masked_weights"][1].any()
    nothing = add_noise(Noise(MASK), ids, 0 * examples, hash_counters(np.arange(3)), slots=12)
    assert (nothing["input_ids"] == ids).all() and not nothing["target_counts"].any()
