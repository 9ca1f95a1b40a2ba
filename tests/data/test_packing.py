"""Rows of several examples."""

import numpy as np
import pytest
from prepared_corpora import write_corpus

from bert_jax.data.packing import best_fit
from bert_jax.data.pretraining.manifest import Manifest
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.data.pretraining.prepared import PreparedInstances
from bert_jax.data.pretraining.sources import PretrainingEvalSource, PretrainingSource
from bert_jax.errors import InputError

LENGTH = 64
SETTINGS = {"max_seq_length": LENGTH, "dupe_factor": 2, "validation_fraction": 0.2, "num_workers": 1}


def test_best_fit_uses_every_example_once_and_little_room_is_left():
    rng = np.random.default_rng(0)
    for lengths in (rng.integers(5, 129, 3000), rng.integers(5, 30, 500), np.full(7, 50), [128], []):
        rows = best_fit(lengths, 128)
        assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
        assert all(sum(lengths[i] for i in row) <= 128 for row in rows)
        assert len(rows) <= np.sum(lengths) / 128 * 11 / 9 + 1 or set(lengths) == {50}
    assert best_fit([60, 70, 58, 60, 68], 128) == [[1, 2], [4, 0], [3]]  # 128, 128, 60: not 70 + 58, 68 + 58


def test_packing_leaves_less_padding_than_rows_of_one():
    rng = np.random.default_rng(1)
    lengths = np.where(rng.random(5000) < 0.5, 128, rng.integers(5, 128, 5000))
    assert lengths.sum() / (128 * len(best_fit(lengths, 128))) > 0.95 > 0.8 > lengths.mean() / 128


@pytest.fixture(scope="module", params=["nsp", "mlm"])
def both(request, tmp_path_factory, tiny_tokenizer):
    """The same corpus prepared with and without packing, examples of many lengths among them."""
    folder = tmp_path_factory.mktemp("packed")
    corpus = str(write_corpus(folder / "corpus.txt", documents=60))
    for name, packed in (("packed", True), ("apart", False)):
        options = SETTINGS | {"short_seq_prob": 0.7, "objective": request.param}
        prepare(corpus, tiny_tokenizer, folder / name, packed=packed, **options)
    return folder / "packed", folder / "apart", request.param


def segments(batch, row):
    """The examples of a packed row as (ids, token types), masks undone."""
    ids = batch["input_ids"][row].copy()
    real = batch["masked_weights"][row] > 0
    ids[batch["masked_positions"][row][real]] = batch["masked_labels"][row][real]
    numbers = batch["segment_ids"][row]
    for number in range(1, numbers.max() + 1):
        inside = numbers == number
        assert (np.diff(np.nonzero(inside)[0]) == 1).all()  # without a gap
        assert batch["position_ids"][row][inside].tolist() == list(range(inside.sum()))
        yield tuple(ids[inside]), tuple(batch["token_type_ids"][row][inside])


def test_rows_hold_the_examples_that_there_are_without(both, tiny_tokenizer):
    t, (packed, apart, objective) = tiny_tokenizer, both
    rows, singles = PreparedInstances(packed, "train", LENGTH), PreparedInstances(apart, "train", LENGTH)
    batch = rows.batch(range(len(rows)), [0] * len(rows))
    found, labels, predicted = [], [], 0
    for row in range(len(rows)):
        examples = list(segments(batch, row))
        weights = batch["example_weights"][row]
        assert weights.tolist() == [1] * len(examples) + [0] * (len(weights) - len(examples))
        starts = np.cumsum([0, *(len(ids) for ids, _ in examples)])
        positions = batch["masked_positions"][row][batch["masked_weights"][row] > 0]
        for (ids, types), start in zip(examples, starts, strict=False):
            assert ids[0] == t.cls_id and ids[-1] == t.sep_id
            budget = ((positions >= start) & (positions < start + len(ids))).sum()
            # Not more than the example has words to mask.
            assert budget == min(max(1, np.rint(0.15 * len(ids))), np.sum(~np.isin(ids, [t.cls_id, t.sep_id])))
            predicted += budget
            found.append((ids, types))
        if objective == "nsp":
            assert batch["cls_positions"][row][: len(examples)].tolist() == starts[:-1].tolist()
            labels += batch["next_sentence_labels"][row][: len(examples)].tolist()
        assert batch["segment_ids"][row][starts[-1] :].tolist() == [0] * (LENGTH - starts[-1])
    assert predicted == batch["masked_weights"].sum()
    single = singles.batch(range(len(singles)), [0] * len(singles))
    single["segment_ids"], single["position_ids"] = (
        single["attention_mask"],
        np.tile(np.arange(LENGTH), (len(singles), 1)),
    )
    expected = [example for row in range(len(singles)) for example in segments(single, row)]
    assert sorted(found) == sorted(expected)
    assert ("next_sentence_labels" in batch) == (objective == "nsp")
    if objective == "nsp":
        assert sorted(zip(found, labels, strict=True)) == sorted(
            zip(expected, single["next_sentence_labels"].tolist(), strict=True)
        )


def test_the_manifest_counts_rows_and_examples(both):
    packed, apart = (Manifest.read(directory).sets[0] for directory in both[:2])
    assert packed.examples == apart.examples == apart.rows and apart.most_per_row == 1
    assert packed.tokens == apart.tokens and packed.label_1 == apart.label_1
    assert packed.most_per_row > 1 and packed.rows < 0.8 * apart.rows
    assert packed.tokens / packed.rows / LENGTH > 0.93


def test_masks_differ_between_the_examples_of_a_row_and_from_epoch_to_epoch(both):
    rows = PreparedInstances(both[0], "train", LENGTH)
    first, again, second = (rows.batch(range(len(rows)), [epoch] * len(rows)) for epoch in (0, 0, 1))
    np.testing.assert_array_equal(first["masked_positions"], again["masked_positions"])
    assert np.mean((first["masked_positions"] == second["masked_positions"]).all(axis=1)) < 0.1
    assert first["masked_positions"].shape == second["masked_positions"].shape


def test_batches_of_rows(both):
    source = PretrainingSource(both[0], "train", LENGTH, 8)
    whole = source.batch(3)
    for name, array in source.batch(3, slice(2, 5)).items():
        np.testing.assert_array_equal(array, whole[name][2:5], err_msg=name)
    count = len(PreparedInstances(both[0], "validation", LENGTH))
    last = PretrainingEvalSource(both[0], "validation", LENGTH, count - 1).batch(1)
    assert last["example_weights"][0].any() and last["masked_weights"][0].any()
    assert not last["example_weights"][1:].any() and not last["masked_weights"][1:].any()


def test_packed_rows_cannot_be_cut(both):
    with pytest.raises(InputError, match=r"sequence length 32: .* has packed rows of 64 tokens"):
        PreparedInstances(both[0], "train", 32)
