"""Examples of real text (WikiText-2) beside what the original's algorithm, spelt out anew below, makes of it.

Each figure must lie in the interval that chance leaves it: four standard errors, left by chance alone once in 16,000
times. The random numbers are seeded, so a test passes always or never.
"""

import gzip
import random

import numpy as np
import pytest

from bert_jax.data.corpora.sentences import split_sentences
from bert_jax.data.corpora.sources import open_corpus
from bert_jax.data.pretraining.instances import TokenDocument, pairs_of_document
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.data.pretraining.prepared import PreparedInstances
from bert_jax.tokenization import load_tokenizer

LENGTH, SHORT, PASSES, ERRORS = 128, 0.1, 12, 4.0


@pytest.fixture(scope="module")
def articles(shared_data):
    """The articles of the validation part as lists of sentences; titles open them, headings are left out."""
    text = gzip.decompress((shared_data / "wikitext-2" / "wiki.valid.raw.gz").read_bytes()).decode()
    found = []
    for line in text.splitlines():
        if line.startswith(" = ") and not line.startswith(" = = "):
            found.append([])
        elif line.strip() and not line.startswith(" = "):
            found[-1] += split_sentences(line.strip())
    return found


@pytest.fixture(scope="module")
def tokenizer(shared_data):
    return load_tokenizer(shared_data / "vocab" / "bert-base-uncased-vocab.txt")


@pytest.fixture(scope="module")
def documents(articles, tokenizer):
    return [TokenDocument.of(tokenizer.encode_batch(article, parse_special=False)) for article in articles]


@pytest.fixture(scope="module")
def batches(articles, tokenizer, tmp_path_factory):
    """All examples with masks by token and by word, as the pipeline gives them."""
    folder = tmp_path_factory.mktemp("wikitext")
    (folder / "corpus.txt").write_text("\n\n".join("\n".join(article) for article in articles))
    prepare(f"sentences:{folder / 'corpus.txt'}", tokenizer, folder / "out", max_seq_length=LENGTH,
            short_seq_prob=SHORT, dupe_factor=2, validation_fraction=0, num_workers=1)  # fmt: skip
    batches = {}
    for unit in ("token", "word"):
        source = PreparedInstances(folder / "out", "train", LENGTH, max_predictions=20, mask_unit=unit)
        batches[unit] = source.batch(range(len(source)), [0] * len(source))
    return batches


def test_articles_are_documents(articles, shared_data):
    corpus = open_corpus(f"wikitext:{shared_data / 'wikitext-2' / 'wiki.valid.raw.gz'}")
    found = [[s for text in document.texts for s in split_sentences(text)] for document in corpus]
    assert found == articles


def original(documents, index, rng):
    """(length of A, length of B, whether B is random) of each example of a document, in the words of the paper's
    description: sentences are gathered up to a target length, A ends at a random one of them, B is the rest or, half of
    the time, comes from elsewhere, and the sentences that it displaced are gathered again."""
    room = LENGTH - 3
    target = rng.randint(2, room) if rng.random() < SHORT else room
    sentences = np.diff(documents[index].bounds).tolist()
    while sentences:
        taken = total = 0
        while taken < len(sentences) and total < target:
            total += sentences[taken]
            taken += 1
        first = rng.randint(1, taken - 1) if taken > 1 else 1
        length_a = sum(sentences[:first])
        is_random = taken == 1 or rng.random() < 0.5
        if is_random:
            others = [i for i in range(len(documents)) if i != index]
            other = np.diff(documents[rng.choice(others)].bounds).tolist()
            length_b, place = 0, rng.randint(0, len(other) - 1)
            while place < len(other) and (length_b == 0 or length_b < target - length_a):
                length_b += other[place]
                place += 1
            sentences = sentences[first:]
        else:
            length_b = sum(sentences[first:taken])
            sentences = sentences[taken:]
        while length_a + length_b > room:
            length_a, length_b = (length_a - 1, length_b) if length_a > length_b else (length_a, length_b - 1)
        yield length_a, length_b, is_random


def per_document(examples):
    """Rows of sums over one pass through one document: the examples of one are not independent of one another."""
    a, b, label = np.array(examples, float).T
    full = a + b == LENGTH - 3
    return len(a), label.sum(), (a + b + 3).sum(), full.sum(), a.sum(), (label * full).sum()


def ratio(sums, part):
    """A mean over examples and its standard error, documents being what was drawn (the delta method)."""
    counts, parts = sums[:, 0], sums[:, part]
    mean = parts.sum() / counts.sum()
    return mean, np.sqrt(np.square(parts - mean * counts).sum()) / counts.sum()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("part", "name"), list(enumerate(["random next", "length", "full rows", "length of A", "random and full"], start=1))
)
def test_examples_are_as_the_original_s(documents, part, name):
    ours, theirs = [], []
    for turn in range(PASSES):
        for index in range(len(documents)):
            rng = random.Random(f"ours {turn} {index}")
            made = pairs_of_document(documents, index, LENGTH, SHORT, rng)
            ours.append(per_document([(len(i.tokens_a), len(i.tokens_b), i.label) for i in made]))
            theirs.append(per_document(list(original(documents, index, random.Random(f"theirs {turn} {index}")))))
    (mean, error), (expected, expected_error) = (ratio(np.array(sums), part) for sums in (ours, theirs))
    assert abs(mean - expected) < ERRORS * np.hypot(error, expected_error), (name, mean, expected)
    assert np.hypot(error, expected_error) < 0.05 * max(expected, 0.5)  # so that a fifth too much would be seen


def test_masks_per_sequence(batches):
    lengths = batches["token"]["attention_mask"].sum(axis=1)
    expected = np.clip(np.rint(0.15 * lengths), 1, 20)
    np.testing.assert_array_equal(batches["token"]["masked_weights"].sum(axis=1), expected)


@pytest.mark.parametrize("unit", ["token", "word"])
def test_of_the_masked_80_are_hidden_10_random_10_kept(batches, tokenizer, unit):
    batch = batches[unit]
    row, slot = np.nonzero(batch["masked_weights"])
    now = batch["input_ids"][row, batch["masked_positions"][row, slot]]
    before = batch["masked_labels"][row, slot]
    hidden, kept = now == tokenizer.mask_id, now == before
    for share, expected in ((hidden, 0.8), (kept, 0.1), (~hidden & ~kept, 0.1)):
        assert abs(share.mean() - expected) < ERRORS * np.sqrt(expected * (1 - expected) / len(row))
    drawn = now[~hidden & ~kept] / tokenizer.vocab_size  # uniform over the vocabulary, the unused pieces too
    assert abs(drawn.mean() - 0.5) < ERRORS * np.sqrt(1 / 12 / len(drawn))


def test_every_place_is_as_likely_to_be_masked(batches):
    batch = batches["token"]
    full = batch["attention_mask"].sum(axis=1) == LENGTH
    places = batch["masked_positions"][full][batch["masked_weights"][full] > 0] / (LENGTH - 1)
    assert abs(places.mean() - 0.5) < ERRORS * np.sqrt(1 / 12 / len(places))


def test_whole_words_keep_the_budget(batches, tokenizer):
    batch = batches["word"]
    lengths, counts = batch["attention_mask"].sum(axis=1), batch["masked_weights"].sum(axis=1)
    budget = np.clip(np.rint(0.15 * lengths), 1, 20)
    assert (counts <= budget).all()
    assert (counts / budget).mean() > 0.99  # a word that would overshoot gives way to a shorter one
    ids = batch["input_ids"].copy()
    row, slot = np.nonzero(batch["masked_weights"])
    ids[row, batch["masked_positions"][row, slot]] = batch["masked_labels"][row, slot]
    masked = np.zeros(ids.shape, bool)
    masked[row, batch["masked_positions"][row, slot]] = True
    goes_on = tokenizer.is_continuation[ids] & (batch["attention_mask"] > 0)
    opens = np.isin(np.roll(ids, 1, axis=1), [tokenizer.cls_id, tokenizer.sep_id])  # a word cut by truncation
    inside = goes_on & ~opens
    np.testing.assert_array_equal(masked[:, 1:][inside[:, 1:]], masked[:, :-1][inside[:, 1:]])
    assert inside[:, 1:].sum() > 10_000
