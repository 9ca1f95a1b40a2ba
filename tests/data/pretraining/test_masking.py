"""Which tokens are predicted and what replaces them."""

import dataclasses

import numpy as np
import pytest

from bert_jax.data.pretraining.masking import Masking, apply_masks, hash_counters

VOCAB, MASK_ID, CLS, SEP, PAD = 5000, 4, 2, 3, 0
WIDTH = 64
MASKING = Masking(vocab_size=VOCAB, mask_id=MASK_ID, max_predictions=10)


def rows(count, lengths=None, seed=0):
    """Rows `[CLS] tokens [SEP]`, padded; returns input_ids, candidates, lengths."""
    rng = np.random.default_rng(seed)
    lengths = np.full(count, WIDTH) if lengths is None else np.asarray(lengths)
    columns = np.arange(WIDTH)
    ids = rng.integers(5, VOCAB, (count, WIDTH)).astype(np.int32)
    ids[:, 0] = CLS
    ids[np.arange(count), lengths - 1] = SEP
    ids[columns >= lengths[:, None]] = PAD
    candidates = (columns > 0) & (columns < lengths[:, None] - 1)
    return ids, candidates, lengths


def mask(data, masking=MASKING, epoch=0, examples=None):
    ids, candidates, lengths = data
    examples = np.arange(len(ids)) if examples is None else examples
    return apply_masks(ids, candidates, lengths, masking.keys(np.asarray(epoch), examples), masking)


def test_the_generator_is_splitmix64():
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]  # the published outputs from seed 0
    assert hash_counters(np.arange(3)).tolist() == expected


def test_bits_of_different_counters_are_unrelated():
    bits = hash_counters(np.arange(50)[:, None], np.arange(50)[None, :])
    assert bits.shape == (50, 50) and len(np.unique(bits)) == 2500
    assert not np.array_equal(bits, bits.T)
    ones = [(bits >> np.uint64(i) & np.uint64(1)).mean() for i in range(64)]
    assert min(ones) > 0.45 and max(ones) < 0.55


def test_the_number_of_predictions_is_the_original_s():
    data = rows(60, np.arange(5, 65))
    for masking in (MASKING, dataclasses.replace(MASKING, max_predictions=5, mask_prob=0.2)):
        out = mask(data, masking)
        share, most = masking.mask_prob, masking.max_predictions
        expected = [min(most, max(1, round(share * length))) for length in range(5, 65)]
        assert out["masked_weights"].sum(axis=1).tolist() == expected


def test_labels_positions_and_inputs_agree():
    ids, candidates, lengths = data = rows(200, np.tile(np.arange(20, 60), 5))
    out = mask(data)
    restored = out["input_ids"].copy()
    for row in range(200):
        count = int(out["masked_weights"][row].sum())
        positions = out["masked_positions"][row]
        assert (np.diff(positions[:count]) > 0).all() and candidates[row, positions[:count]].all()
        assert not positions[count:].any() and not out["masked_labels"][row, count:].any()
        assert not out["masked_weights"][row, count:].any()
        restored[row, positions[:count]] = out["masked_labels"][row, :count]
    np.testing.assert_array_equal(restored, ids)
    assert (out["input_ids"][:, 0] == CLS).all() and (out["input_ids"][np.arange(200), lengths - 1] == SEP).all()
    assert [out[name].dtype for name in ("input_ids", "masked_positions", "masked_labels")] == [np.int32] * 3


def test_eighty_ten_ten():
    data = rows(4000)
    out = mask(data)
    now = np.take_along_axis(out["input_ids"], out["masked_positions"], axis=1)
    total = now.size
    assert total == 40000
    masked, kept = (now == MASK_ID).sum() / total, (now == out["masked_labels"]).sum() / total
    assert abs(masked - 0.8) < 0.008 and abs(kept - 0.1) < 0.006  # four standard deviations
    others = now[(now != MASK_ID) & (now != out["masked_labels"])]
    assert abs(len(others) / total - 0.1) < 0.006
    # Random tokens come from the whole vocabulary, special tokens included, all alike.
    quarters = np.histogram(others, bins=4, range=(0, VOCAB))[0] / len(others)
    assert abs(quarters - 0.25).max() < 0.03 and others.min() < 10 and others.max() > VOCAB - 10


def test_every_position_is_as_likely():
    out = mask(rows(4000))
    counts = np.bincount(out["masked_positions"].ravel(), minlength=WIDTH)
    assert counts[0] == counts[-1] == 0
    expected = 40000 / (WIDTH - 2)
    assert abs(counts[1:-1] - expected).max() < 5 * np.sqrt(expected)


def test_masks_depend_on_seed_epoch_and_example_and_nothing_else():
    ids, candidates, lengths = data = rows(32)
    first = mask(data)
    order = np.random.default_rng(1).permutation(32)[:20]
    again = mask((ids[order], candidates[order], lengths[order]), examples=order)
    for name, array in again.items():
        np.testing.assert_array_equal(array, first[name][order])
    same = [np.array_equal(first["masked_positions"][0], other["masked_positions"][0]) for other in (
        mask(data, epoch=1), mask(data, dataclasses.replace(MASKING, seed=1)), mask(data, examples=np.arange(1, 33))
    )]  # fmt: skip
    assert same == [False] * 3


@pytest.mark.parametrize("max_predictions", [3, 10])
def test_whole_words_within_the_budget(max_predictions):
    rng = np.random.default_rng(2)
    is_continuation = np.zeros(VOCAB, np.bool_)
    is_continuation[VOCAB // 2 :] = True
    masking = dataclasses.replace(
        MASKING, unit="word", is_continuation=is_continuation, max_predictions=max_predictions
    )
    ids, candidates, lengths = data = rows(500, rng.integers(10, WIDTH + 1, 500))
    out = mask(data, masking)
    counts = out["masked_weights"].sum(axis=1)
    reached = 0
    for row in range(500):
        budget = min(max_predictions, max(1, round(0.15 * lengths[row])))
        chosen = set(out["masked_positions"][row, : int(counts[row])].tolist())
        words = []
        for column in np.nonzero(candidates[row])[0].tolist():
            if words and is_continuation[ids[row, column]] and candidates[row, column - 1]:
                words[-1].add(column)
            else:
                words.append({column})
        assert len(chosen) <= budget
        assert all(word <= chosen or not word & chosen for word in words)
        # A word was passed over only because it would have exceeded the budget.
        assert all(len(word) > budget - len(chosen) for word in words if not word & chosen)
        reached += len(chosen) == budget
    assert reached > 450


def test_shares_are_those_asked_for():
    out = mask(rows(1000), dataclasses.replace(MASKING, mask_replace_prob=0.5, random_replace_prob=0.3))
    now = np.take_along_axis(out["input_ids"], out["masked_positions"], axis=1)
    kept = (now == out["masked_labels"]).mean()
    assert abs((now == MASK_ID).mean() - 0.5) < 0.02 and abs(kept - 0.2) < 0.016  # four standard deviations


def test_static_masks_are_taken_in_turn():
    data, masking = rows(32), dataclasses.replace(MASKING, static=3)
    seen = [mask(data, masking, epoch=epoch)["input_ids"] for epoch in range(6)]
    for epoch in range(3):
        np.testing.assert_array_equal(seen[epoch], seen[epoch + 3])
        assert not np.array_equal(seen[epoch], seen[(epoch + 1) % 3])


def test_spans_begin_with_words_and_share_a_fate():
    rng = np.random.default_rng(3)
    is_continuation = np.zeros(VOCAB, np.bool_)
    is_continuation[3 * VOCAB // 4 :] = True
    masking = dataclasses.replace(MASKING, unit="span", is_continuation=is_continuation, max_predictions=12)
    ids, candidates, _ = rows(3000)
    candidates[:, 30] = False  # the [SEP] between two segments
    budget = rng.integers(1, 13, 3000)
    out = mask((ids, candidates, np.rint(budget / 0.15).astype(int)), masking)
    assert out["masked_weights"].sum(1).tolist() == budget.tolist()  # spent to the last token: spans are cut
    words, fates = [], []
    for row in range(3000):
        chosen = np.zeros(WIDTH + 1, bool)
        chosen[out["masked_positions"][row, : budget[row]]] = True
        starts = np.nonzero(chosen[1:] & ~chosen[:-1])[0] + 1
        for start in starts.tolist():
            end = start + int(np.argmin(chosen[start:]))
            assert candidates[row, start:end].all()
            assert not is_continuation[ids[row, start]] or not candidates[row, start - 1]
            if len(starts) == 1 and budget[row] == 12:  # one span, or several that touch
                continue
            now, was = out["input_ids"][row, start:end], ids[row, start:end]
            fates.append(((now == MASK_ID).all(), (now == was).all(), ((now != MASK_ID) & (now != was)).all()))
            words.append(int((~is_continuation[ids[row, start:end]]).sum()))
    hidden, kept, replaced = np.mean(fates, axis=0)
    assert hidden + kept + replaced > 0.9  # the rest are spans that touch, with fates of their own
    assert 0.68 < hidden < 0.85 and 0.07 < kept < 0.13 and 0.07 < replaced < 0.13
    assert 1.5 < np.mean(words) < 3.5


def test_the_lengths_of_spans_are_geometric():
    """With room for one span only: 0.2 * 0.8**(n-1) up to 10 words, cut by nothing but the end of the row."""
    is_continuation = np.zeros(VOCAB, np.bool_)
    masking = Masking(
        vocab_size=VOCAB, mask_id=MASK_ID, max_predictions=10, unit="span", is_continuation=is_continuation
    )
    ids, candidates, _ = rows(20000)
    keys = masking.keys(np.zeros(20000, int), np.arange(20000))
    out = apply_masks(ids, candidates, np.full(20000, 67), keys, masking)  # a budget of 10
    first = []
    scores = hash_counters(keys[:, None], 1, np.arange(WIDTH)) >> np.uint64(1)
    start = np.where(candidates, scores, np.uint64(1 << 63)).argmin(1)
    for row in np.nonzero(start < WIDTH - 22)[0].tolist():
        chosen = np.zeros(WIDTH + 1, bool)
        chosen[out["masked_positions"][row]] = True
        first.append(int(np.argmin(chosen[start[row] :])))
    shares = np.bincount(first, minlength=11)[1:11] / len(first)
    expected = 0.2 * 0.8 ** np.arange(10) / (1 - 0.8**10)
    # Another span may touch the first and make it look longer: one in a few does.
    assert shares[0] == pytest.approx(expected[0], rel=0.15) and shares[0] < expected[0]
    assert np.all(np.diff(shares[:6]) < 0)


def test_a_segment_that_begins_within_a_word_begins_a_word():
    is_continuation = np.ones(VOCAB, np.bool_)
    masking = dataclasses.replace(MASKING, unit="word", is_continuation=is_continuation, max_predictions=2)
    ids = np.array([[CLS, 10, 11, SEP, 12, 13, SEP]], np.int32)
    candidates = np.array([[0, 1, 1, 0, 1, 1, 0]], np.bool_)
    seen = set()
    for example in range(50):
        keys = hash_counters(0, 0, np.array([example]))
        out = apply_masks(ids, candidates, np.array([14]), keys, masking)  # a length that gives a budget of 2
        seen.add(tuple(out["masked_positions"][0].tolist()))
    assert seen == {(1, 2), (4, 5)}
