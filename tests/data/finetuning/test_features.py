"""Tokenised examples, as batches."""

import itertools

import numpy as np
import pytest

from bert_jax.data.finetuning import features
from bert_jax.data.finetuning.features import encode_texts
from bert_jax.data.finetuning.labelled_rows import labels_of, read_labelled
from bert_jax.data.finetuning.tables import Columns
from bert_jax.tokenization import load_tokenizer

COLUMNS = Columns(text="text", pair="", label="label")
PAIRS = Columns(text="text", pair="other", label="label")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", "##a", "##b"]))
    return load_tokenizer(path)


def write(path, text):
    path.write_text(text)
    return str(path)


def load(spec, tokenizer, columns=COLUMNS, max_length=16, names=None, regression=False):
    rows, names = read_labelled(spec, columns, names, regression)
    return encode_texts(tokenizer, rows, labels_of(rows, columns, names), max_length), names


def test_features_are_the_tokenizers(tmp_path, tokenizer):
    spec = write(tmp_path / "a.tsv", "text\tlabel\na b c\tyes\nd\tno\ne\tno\n")
    loaded, names = load(spec, tokenizer)
    assert names == ("no", "yes")
    assert loaded.labels.tolist() == [1, 0, 0]
    batch = loaded.pad(np.array([1, 0, 2, -1]), 8, tokenizer.pad_id)
    expected = tokenizer(["d", "a b c", "e"], max_length=8, padding="max_length")
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        np.testing.assert_array_equal(batch[name][:3], expected[name])
        assert not batch[name][3].any()
    assert batch["labels"].tolist() == [0, 1, 0, 0]
    assert batch["example_weights"].tolist() == [1, 1, 1, 0]


def test_pairs_are_cut_as_the_tokenizer_cuts_them(tmp_path, tokenizer):
    rows = list(itertools.product(range(1, 10, 2), repeat=2))
    lines = "".join(f"{' '.join('a' * n)}\t{' '.join('b' * m)}\t{n % 4}\n" for n, m in rows)
    loaded, _ = load(write(tmp_path / "a.tsv", "text\tother\tlabel\n" + lines), tokenizer, PAIRS, max_length=10)
    batch = loaded.pad(np.arange(len(rows)), 10, tokenizer.pad_id)
    expected = tokenizer(
        [" ".join("a" * n) for n, _ in rows],
        [" ".join("b" * m) for _, m in rows],
        max_length=10,
        padding="max_length",
    )
    for name, value in expected.items():
        np.testing.assert_array_equal(batch[name], value)


def test_more_rows_than_are_tokenised_at_a_time(tmp_path, tokenizer, monkeypatch):
    spec = write(tmp_path / "a.tsv", "text\tlabel\n" + "".join(f"{' '.join('a' * n)}\t{n}\n" for n in range(1, 12)))
    whole, names = load(spec, tokenizer)
    monkeypatch.setattr(features, "_CHUNK", 3)
    chunked, _ = load(spec, tokenizer)
    assert names == tuple(map(str, range(1, 12)))  # sorted as the numbers that they are
    for name in ("tokens", "starts", "first", "labels"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(chunked, name))


def test_regression_targets(tmp_path, tokenizer):
    loaded, names = load(write(tmp_path / "a.csv", "text,label\na,2.50\nb,-1e1\n"), tokenizer, regression=True)
    assert names == ()
    assert loaded.labels.dtype == np.float32
    assert loaded.labels.tolist() == [2.5, -10.0]
