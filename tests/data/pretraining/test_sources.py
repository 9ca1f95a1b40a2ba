"""Batches as pure functions of the step."""

import threading
import time

import numpy as np
import pytest
from prepared_corpora import assert_equal, write_corpus

from bert_jax.config import BertConfig
from bert_jax.data.prefetching import prefetch
from bert_jax.data.pretraining.manifest import Manifest
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.data.pretraining.prepared import PreparedInstances
from bert_jax.data.pretraining.sources import PretrainingEvalSource, PretrainingSource
from bert_jax.errors import InputError
from bert_jax.tokenization import word_piece

SHAPES = {
    "input_ids": ("S", np.int32),
    "attention_mask": ("S", np.int32),
    "token_type_ids": ("S", np.int32),
    "masked_positions": ("P", np.int32),
    "masked_labels": ("P", np.int32),
    "masked_weights": ("P", np.float32),
    "next_sentence_labels": ("", np.int32),
    "example_weights": ("", np.float32),
}


def records(prepared, split, length):
    """The instances of a set as lists, read without the pipeline: (tokens of A, tokens of B, label)."""
    instances = next(s for s in Manifest.read(prepared).sets if (s.split, s.max_seq_length) == (split, length))
    out = []
    for shard in instances.shards:
        for row in np.load(prepared / shard.name, mmap_mode="r")[:, 2:].tolist():  # behind the checksum
            count, label, a, b, *tokens = row
            assert count == 1 and not any(tokens[a + b :])
            out.append((tokens[:a], tokens[a : a + b], label))
    return out


def unmasked(batch):
    ids = batch["input_ids"].copy()
    row, slot = np.nonzero(batch["masked_weights"])
    ids[row, batch["masked_positions"][row, slot]] = batch["masked_labels"][row, slot]
    return ids


def test_shapes_and_types(prepared):
    batch = PretrainingSource(prepared, "train", 64, 6, max_predictions=7).batch(3)
    sizes = {"S": (6, 64), "P": (6, 7), "": (6,)}
    assert {name: (array.shape, array.dtype) for name, array in batch.items()} == {
        name: (sizes[axis], np.dtype(dtype)) for name, (axis, dtype) in SHAPES.items()
    }
    assert PretrainingSource(prepared, "train", 64, 6).batch(0)["masked_positions"].shape == (6, 10)  # 0.15 * 64


@pytest.mark.parametrize("length", [48, 64])
def test_rows_are_the_stored_pairs_with_special_tokens(prepared, tiny_tokenizer, length):
    t = tiny_tokenizer
    batch = PreparedInstances(prepared, "train", length).batch(range(30), [0] * 30)
    ids = unmasked(batch)
    for row, (a, b, label) in enumerate(records(prepared, "train", length)[:30]):
        expected = [t.cls_id, *a, t.sep_id, *b, t.sep_id]
        pad = [0] * (length - len(expected))
        assert ids[row].tolist() == expected + pad
        assert batch["attention_mask"][row].tolist() == [1] * len(expected) + pad
        assert batch["token_type_ids"][row].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1) + pad
        assert batch["next_sentence_labels"][row] == label
    # Predictions cover words of both segments, never the special tokens.
    positions = [p[w > 0] for p, w in zip(batch["masked_positions"], batch["masked_weights"], strict=True)]
    chosen = np.concatenate([ids[row][p] for row, p in enumerate(positions)])
    assert not np.isin(chosen, [t.cls_id, t.sep_id, t.pad_id]).any()
    types = np.concatenate([batch["token_type_ids"][row][p] for row, p in enumerate(positions)])
    assert 0.2 < types.mean() < 0.8


@pytest.mark.parametrize("length", [40, 48])
def test_full_sentences_are_rows_of_a_single_segment(tmp_path, tiny_tokenizer, length):
    t, corpus = tiny_tokenizer, write_corpus(tmp_path / "corpus.txt", documents=40)
    prepare(str(corpus), t, tmp_path / "out", objective="mlm", max_seq_length=48, dupe_factor=1, num_workers=1)
    instances = PreparedInstances(tmp_path / "out", "train", length)
    batch = instances.batch(range(len(instances)), [0] * len(instances))
    assert batch.keys() == SHAPES.keys() - {"next_sentence_labels"}
    ids, separators = unmasked(batch), 0
    for row, (a, b, _) in enumerate(records(tmp_path / "out", "train", 48)):
        expected = [t.cls_id, *a[: length - 2], t.sep_id]
        assert not b and ids[row].tolist() == expected + [0] * (length - len(expected))
        assert batch["attention_mask"][row].sum() == len(expected) and not batch["token_type_ids"][row].any()
        positions = batch["masked_positions"][row][batch["masked_weights"][row] > 0]
        assert not np.isin(ids[row][positions], [t.cls_id, t.sep_id, t.pad_id]).any()
        separators += a.count(t.sep_id)
    assert separators > 10


def test_a_shorter_row_keeps_the_beginning_of_both_segments(prepared):
    batch = PreparedInstances(prepared, "train", 20).batch(range(30), [0] * 30)
    ids = unmasked(batch)
    for row, (a, b, _) in enumerate(records(prepared, "train", 48)[:30]):
        while len(a) + len(b) > 17:
            a, b = (a[:-1], b) if len(a) > len(b) else (a, b[:-1])
        kept = ids[row][batch["attention_mask"][row] > 0].tolist()
        kept_a = kept[1 : kept.index(3)]
        assert kept == [2, *a, 3, *b, 3] or abs(len(kept_a) - len(a)) <= 1  # an odd token may go to either side
        assert len(kept) == len(a) + len(b) + 3


def test_a_batch_depends_on_the_step_alone(prepared):
    source = PretrainingSource(prepared, "train", 48, 8, seed=5)
    batches = [source.batch(step) for step in range(20)]
    for step in (13, 2, 19, 2):
        assert_equal(PretrainingSource(prepared, "train", 48, 8, seed=5).batch(step), batches[step])
    assert not np.array_equal(
        PretrainingSource(prepared, "train", 48, 8, seed=6).batch(0)["input_ids"], batches[0]["input_ids"]
    )


@pytest.mark.parametrize("rows", [slice(2, 5), slice(None, None, 2), np.array([6, 1])])
def test_rows_of_a_batch_are_those_of_the_whole(prepared, rows):
    for source in (PretrainingSource(prepared, "train", 48, 8), PretrainingEvalSource(prepared, "validation", 48, 8)):
        step = getattr(source, "num_batches", 31) - 1
        whole = source.batch(step)
        assert_equal(source.batch(step, rows), {name: array[rows] for name, array in whole.items()})


def test_every_epoch_has_every_example_once_in_another_order_with_other_masks(prepared):
    count = len(records(prepared, "train", 48))
    source = PretrainingSource(prepared, "train", 48, count)  # a batch is an epoch
    assert source.num_examples == count and source.steps_per_epoch == 1
    epochs = [source.batch(step) for step in range(3)]
    rows = [list(map(bytes, unmasked(epoch))) for epoch in epochs]
    assert sorted(rows[0]) == sorted(rows[1]) == sorted(rows[2])
    assert rows[0] != rows[1] and rows[1] != rows[2]
    in_order = [
        bytes(row) for row in unmasked(PreparedInstances(prepared, "train", 48).batch(range(count), [0] * count))
    ]
    assert rows[0] != in_order
    masked = [
        dict(zip(row, map(bytes, epoch["masked_positions"]), strict=True))
        for row, epoch in zip(rows, epochs, strict=True)
    ]
    same = [masked[0][row] == masked[1][row] for row in masked[0]]
    assert np.mean(same) < 0.1


def test_hosts_together_make_the_batch_of_one(prepared):
    source = PretrainingSource(prepared, "train", 48, 12)
    for step in range(2 * source.steps_per_epoch):  # over the end of an epoch
        parts = [source.batch(step, slice(first, first + 3)) for first in (0, 3, 6, 9)]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in SHAPES}
        assert_equal(joined, source.batch(step))


def test_a_single_example_is_an_epoch(tmp_path, tiny_tokenizer):
    (tmp_path / "one.txt").write_text("The cat sat.")
    prepare(str(tmp_path / "one.txt"), tiny_tokenizer, tmp_path / "out", validation_fraction=0, dupe_factor=1)
    source = PretrainingSource(tmp_path / "out", "train", 128, 3)
    assert source.num_examples == 1
    batch = source.batch(7)
    assert len(set(map(bytes, unmasked(batch)))) == 1  # three epochs of it


def test_whole_words_are_masked_together(prepared, tiny_tokenizer):
    batch = PretrainingSource(prepared, "train", 64, 64, mask_unit="word").batch(0)
    ids, goes_on = unmasked(batch), tiny_tokenizer.is_continuation
    chosen = np.zeros(ids.shape, np.bool_)
    row, slot = np.nonzero(batch["masked_weights"])
    chosen[row, batch["masked_positions"][row, slot]] = True
    inside = goes_on[ids][:, 1:] & (ids[:, :-1] > 4)  # a piece that goes on with the token before it
    assert inside.sum() > 100
    np.testing.assert_array_equal(chosen[:, 1:][inside], chosen[:, :-1][inside])


def test_evaluation_covers_every_example_with_fixed_masks(prepared):
    expected = records(prepared, "validation", 48)
    source = PretrainingEvalSource(prepared, "validation", 48, 7)
    assert source.num_batches == -(-len(expected) // 7) and len(expected) % 7
    batches = [source.batch(i) for i in range(source.num_batches)]
    real = np.concatenate([batch["example_weights"] for batch in batches])
    assert real.tolist() == [1.0] * len(expected) + [0.0] * (len(real) - len(expected))
    assert not batches[-1]["masked_weights"][batches[-1]["example_weights"] == 0].any()
    assert batches[-1]["attention_mask"].any(axis=1).all()  # padding rows are harmless, not empty
    found = np.concatenate([unmasked(batch) for batch in batches])[: len(expected)]
    assert [row[row > 0].tolist() for row in found] == [[2, *a, 3, *b, 3] for a, b, _ in expected]
    assert_equal(PretrainingEvalSource(prepared, "validation", 48, 7).batch(1), batches[1])
    few = PretrainingEvalSource(prepared, "validation", 48, 7, max_examples=5)
    assert few.num_batches == 1 and few.batch(0)["example_weights"].sum() == 5
    with pytest.raises(IndexError):
        source.batch(source.num_batches)


class Counting:
    """A source that says which steps it was asked for, and fails at one."""

    def __init__(self, fails_at=None):
        self.asked, self.fails_at = [], fails_at

    def batch(self, step, rows=slice(None)):
        self.asked.append(step)
        if step == self.fails_at:
            raise RuntimeError(f"step {step}")
        return {"step": np.arange(step, step + 4)[rows]}


def prefetch_threads():
    return [thread for thread in threading.enumerate() if thread.name == "prefetch"]


def test_prefetching_gives_batches_in_order_ahead_of_time():
    source = Counting()
    batches = prefetch(source, 3, 9, depth=2, rows=slice(0, 1), transform=lambda batch: int(batch["step"][0]))
    assert next(batches) == 3
    deadline = time.monotonic() + 5
    while len(source.asked) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert source.asked == [3, 4, 5, 6]  # one taken, two waiting, one in hand
    assert list(batches) == [4, 5, 6, 7, 8]
    assert not prefetch_threads()
    assert list(prefetch(source, 5, 5)) == []


def test_prefetching_raises_where_the_source_does():
    batches = prefetch(Counting(fails_at=2), 0, 9)
    assert [int(next(batches)["step"][0]) for _ in range(2)] == [0, 1]
    with pytest.raises(RuntimeError, match="step 2"):
        next(batches)
    assert not prefetch_threads()


def test_prefetching_stops_when_nobody_listens():
    batches = prefetch(Counting(), 0, 10**9)
    next(batches)
    batches.close()
    assert not prefetch_threads()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("train", 65, 4), {}, "sequence length 65: .* at most 64 tokens"),
        (("train", 4, 4), {}, "at least 5"),
        (("training", 48, 4), {}, "did you mean 'train'"),
        (("train", 48, 0), {}, "batch size"),
        (("train", 48, 4), {"mask_prob": 0.0}, "mask_prob"),
        (("train", 48, 4), {"max_predictions": 0}, "max_predictions"),
        (("train", 48, 4), {"config": BertConfig(max_position_embeddings=40)}, "48: the model has 40 positions"),
        (("train", 48, 4), {"config": BertConfig(vocab_size=100)}, "at most the model's 100 word pieces, found"),
    ],
)
def test_what_does_not_fit_is_said(prepared, arguments, options, message):
    with pytest.raises(InputError, match=message):
        PretrainingSource(prepared, *arguments, **options)


def test_directories_that_were_tampered_with(tmp_path, tiny_tokenizer, tiny_vocab):
    corpus = write_corpus(tmp_path / "corpus.txt", documents=20)
    out = tmp_path / "out"
    prepare(str(corpus), tiny_tokenizer, out, validation_fraction=0, num_workers=1)
    with pytest.raises(InputError, match="found none; was it prepared with validation_fraction 0"):
        PretrainingSource(out, "validation", 128, 4)
    shard = out / "train-128-00000-000.npy"
    data, rows = bytearray(shard.read_bytes()), np.load(shard, mmap_mode="r")
    data[-3 * rows.strides[0]] ^= 1  # the checksum itself, of the third row from the end
    shard.write_bytes(data)
    source, damaged = PreparedInstances(out, "train", 128), len(rows) - 3
    source.batch(np.delete(np.arange(len(rows)), damaged), [0] * (len(rows) - 1))
    message = rf"out: cannot read train examples: .*/train-128-00000-000\.npy: row {damaged} is damaged"
    with pytest.raises(InputError, match=message):
        source.batch([5, damaged], [0, 0])
    shard.write_bytes(data[:-10])
    with pytest.raises(InputError, match=rf"npy: expected {rows.strides[0]} bytes from byte \d+, found"):
        source.batch([len(rows) - 1], [0])
    shard.write_bytes(data)
    word_piece((*tiny_vocab, "more")).save(out / "tokenizer")
    with pytest.raises(InputError, match="expected the tokenizer of the shards, found another"):
        PretrainingSource(out, "train", 128, 4)
