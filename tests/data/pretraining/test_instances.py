"""Sentence pairs, against what google-research/bert `create_pretraining_data.py` does."""

import random

import numpy as np
import pytest

from bert_jax.data.pretraining.instances import (
    Instance,
    TokenDocument,
    decode_records,
    encode_record,
    full_sentences,
    pairs_of_document,
    token_dtype,
)


def numbered(documents, sentences, length):
    """Documents in which every token is a number of its own, so that it tells where it came from."""
    ids = np.arange(documents * sentences * length).reshape(documents, sentences, length)
    return [TokenDocument.of(document) for document in ids]


def make(documents, index, max_seq_length=32, short_seq_prob=0.0, seed=0):
    return list(pairs_of_document(documents, index, max_seq_length, short_seq_prob, random.Random(seed)))


def contiguous(tokens):
    return (np.diff(tokens) == 1).all()


def test_segments_are_whole_texts_from_the_right_documents():
    documents = numbered(20, 50, 1)
    for index in range(20):
        for instance in make(documents, index, seed=index):
            assert contiguous(instance.tokens_a) and contiguous(instance.tokens_b)
            assert set(instance.tokens_a // 50) == {index}
            if instance.label:
                assert set(instance.tokens_b // 50) != {index}
            else:
                assert instance.tokens_b[0] == instance.tokens_a[-1] + 1


def test_sentences_that_a_random_segment_displaced_are_used_again():
    # Sentences of one token make truncation impossible, so that A and true B together give back the document.
    documents = numbered(5, 300, 1)
    instances = make(documents, 2)
    assert any(instance.label for instance in instances)
    used = [i.tokens_a if i.label else np.concatenate([i.tokens_a, i.tokens_b]) for i in instances]
    np.testing.assert_array_equal(np.concatenate(used), np.arange(600, 900))


def test_half_of_the_second_segments_are_random():
    documents = numbered(20, 400, 3)
    labels = [i.label for index in range(20) for i in make(documents, index, seed=index)]
    assert len(labels) > 700
    assert abs(np.mean(labels) - 0.5) < 0.06  # three standard deviations are 0.056


def test_one_sentence_always_gets_a_random_partner():
    documents = numbered(200, 1, 8)
    assert all(i.label for index in range(200) for i in make(documents, index, seed=index))


def test_lengths_reach_the_maximum_but_for_a_tenth_of_the_documents():
    documents = numbered(40, 200, 1)
    firsts = [make(documents, 0, 64, 0.1, seed)[0] for seed in range(2000)]
    lengths = np.array([len(i.tokens_a) + len(i.tokens_b) for i in firsts])
    # A random B may end with its document before the target is reached; a true one cannot.
    true = lengths[[not i.label for i in firsts]]
    assert true.max() == 61 and true.min() < 15
    assert abs(np.mean(true < 61) - 0.1) < 0.03
    assert all(len(i.tokens_a) + len(i.tokens_b) == 61 for i in make(documents, 0, 64)[:-1] if not i.label)


def test_long_pairs_lose_from_the_longer_segment_at_both_ends_alike():
    documents = numbered(20, 2, 100)
    front = back = 0
    for seed in range(200):
        for instance in make(documents, 3, 40, seed=seed):
            assert len(instance.tokens_a) + len(instance.tokens_b) == 37
            assert abs(len(instance.tokens_a) - len(instance.tokens_b)) == 1
            front += instance.tokens_a[0] % 100
            back += 99 - instance.tokens_a[-1] % 100
    assert 0.95 < front / back < 1.05


def test_short_segments_are_not_cut_for_long_ones():
    documents = [TokenDocument.of([np.arange(3), np.arange(3, 100)]), TokenDocument.of([np.arange(500, 503)])]
    for seed in range(50):
        for instance in make(documents, 0, 40, seed=seed):
            if not instance.label:
                assert len(instance.tokens_a) == 3 and len(instance.tokens_b) == 34


def test_a_single_document_is_its_own_other():
    instances = make(numbered(1, 50, 2), 0)
    assert instances and all(len(i.tokens_a) and len(i.tokens_b) for i in instances)


def test_sentence_order_swaps_half_of_the_pairs():
    documents = numbered(5, 2000, 1)
    instances = list(pairs_of_document(documents, 2, 16, 0.0, random.Random(0), "sop"))
    *instances, last = instances
    for instance in instances:
        first, second = instance.tokens_a, instance.tokens_b
        if instance.label:
            first, second = second, first
        assert len(first) + len(second) == 13 and contiguous(np.concatenate([first, second]))
    assert abs(np.mean([instance.label for instance in instances]) - 0.5) < 0.13  # three standard deviations are 0.12
    assert len(instances) == 2000 // 13 and set(last.tokens_a // 2000) == {2}


def test_sentence_order_gives_a_lone_sentence_a_random_partner():
    for instance in pairs_of_document(numbered(5, 1, 6), 2, 16, 0.0, random.Random(0), "sop"):
        assert instance.label == 1 and set(instance.tokens_b // 6) != {2}


SEP = 10**6


def test_full_sentences_use_every_token_once_and_keep_sentences_whole():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 12, 400)
    sentences = np.split(np.arange(lengths.sum()), np.cumsum(lengths)[:-1])
    documents = [TokenDocument.of(sentences[i : i + 8]) for i in range(0, 400, 8)]
    instances = list(full_sentences(documents, 34, 0.0, SEP, random.Random(0)))
    tokens = np.concatenate([instance.tokens_a for instance in instances])
    assert sorted(tokens[tokens != SEP]) == list(range(lengths.sum()))
    starts, first_of = set(np.cumsum(lengths) - lengths), {document.tokens[0] for document in documents}
    for instance in instances:
        row = instance.tokens_a
        assert len(instance.tokens_b) == 0 and instance.label == 0
        assert row[0] in starts and (row[-1] + 1 in starts or row[-1] + 1 == lengths.sum())
        breaks = np.nonzero(row == SEP)[0]
        assert all(row[i + 1] in first_of for i in breaks)  # never at the end of a row
        assert all(contiguous(part[part != SEP]) for part in np.split(row, breaks))
    # A row is left short by less than the sentence that did not fit.
    sizes = np.array([len(instance.tokens_a) for instance in instances])
    assert sizes.max() <= 32 and sizes[:-1].min() > 32 - 12 and sizes.mean() > 28


def test_full_sentences_differ_from_pass_to_pass():
    documents, rng = numbered(20, 5, 4), random.Random(0)
    first, second = ([i.tokens_a.tolist() for i in full_sentences(documents, 34, 0.0, SEP, rng)] for _ in range(2))
    assert first != second and len(first) == len(second)


def test_a_sentence_longer_than_a_row_is_cut():
    instances = list(full_sentences([TokenDocument.of([np.arange(100)])], 34, 0.0, SEP, random.Random(0)))
    assert [len(instance.tokens_a) for instance in instances] == [32, 32, 32, 4]


def test_some_full_sentences_are_short():
    documents = numbered(3, 4000, 1)
    sizes = [len(i.tokens_a) for i in full_sentences(documents, 34, 0.1, SEP, random.Random(0))]
    assert abs(np.mean(np.array(sizes) < 32) - 0.1) < 0.05


@pytest.mark.parametrize(("vocab_size", "itemsize"), [(30522, 2), (65536, 2), (65537, 4)])
def test_records_round_trip(vocab_size, itemsize):
    dtype = token_dtype(vocab_size)
    assert dtype.itemsize == itemsize
    rng = np.random.default_rng(0)
    draw = lambda n: rng.integers(0, vocab_size, n)  # noqa: E731
    instances = [Instance(draw(rng.integers(1, 9)), draw(rng.integers(1, 9)), bool(rng.integers(2))) for _ in range(50)]
    rows = [instances[:1], instances[1:4], instances[4:5], instances[5:]]
    records = [encode_record(row, dtype) for row in rows]
    assert len(records[0]) == itemsize * (4 + len(instances[0].tokens_a) + len(instances[0].tokens_b))
    longest = max(map(len, records))
    padded = b"".join(record.ljust(longest, b"\0") for record in records)
    batch = decode_records(np.frombuffer(padded, dtype).reshape(len(records), -1))
    assert batch.rows.tolist() == [0, 1, 1, 1, 2] + [3] * 45
    tokens = np.concatenate([np.concatenate([i.tokens_a, i.tokens_b]) for i in instances])
    np.testing.assert_array_equal(batch.tokens, tokens)
    assert batch.lengths_a.tolist() == [len(i.tokens_a) for i in instances]
    assert batch.lengths_b.tolist() == [len(i.tokens_b) for i in instances]
    assert batch.labels.tolist() == [i.label for i in instances]
