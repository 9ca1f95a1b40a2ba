"""Batches with several rows of a class, and training over the classes of a table."""

import collections
import json

import numpy as np
import pytest
from small_tasks import SmallTask

from bert_jax.data.finetuning.batching import TrainSource
from bert_jax.data.finetuning.features import ragged_features
from bert_jax.errors import InputError
from bert_jax.tasks.embedding.dense.class_batches import ClassSource, class_ranks

TOPICS = {"animals": "cat dog bird fish", "nature": "house tree river stone", "colours": "red green blue old"}
SMALL = SmallTask(
    "sentence_embedding",
    {
        "init_from": "{place}/encoder", "data.train": "{place}/train.jsonl", "data.dev": "{place}/dev.jsonl",
        "data.text_column": "text", "data.label_column": "topic", "data.loss": "batch_hard_triplet",
        "data.max_seq_length": 16, "data.length_buckets": (16,), "global_batch_size": 12, "num_epochs": 2.0,
        "optimizer.learning_rate": 2e-3,
    },
)  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("classes")
    rng = np.random.default_rng(0)
    for name, rows in (("train", 90), ("dev", 30)):
        topics = [list(TOPICS)[i % 3] for i in range(rows)]
        lines = [{"text": " ".join(rng.choice(TOPICS[topic].split(), 3)), "topic": topic} for topic in topics]
        (root / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_small(root / "encoder")
    return root


def source(classes, batch_size, seed=0):
    rows = ragged_features([[1] * (3 + i % 9) for i in range(len(classes))])
    return ClassSource(TrainSource(rows, batch_size, (8, 16), 0, seed), np.asarray(classes))


@pytest.mark.parametrize("batch_size", [4, 6, 10])
@pytest.mark.parametrize("counts", [(2, 2), (9, 4, 1), (3, 8, 5, 2), (40, 2), (5, 5, 5, 5, 5)])
def test_each_class_of_a_batch_has_two_rows(counts, batch_size):
    classes = np.repeat(np.arange(len(counts)), counts)
    batches = source(classes, batch_size)
    for epoch in range(3):
        index, lengths = batches._plan(epoch)
        assert index.shape == (batches.steps_per_epoch, batch_size) == (len(lengths), batch_size)
        rows = index[index >= 0]
        assert len(rows) == len({*rows.tolist()})  # no row twice
        for batch, length in zip(index, lengths, strict=True):
            found = collections.Counter(classes[batch[batch >= 0]].tolist())
            assert len(found) >= 2 and min(found.values()) >= 2
            longest = (batches.features.lengths[batch[batch >= 0]]).max()
            assert length == (8 if longest <= 8 else 16)


def test_an_epoch_is_as_long_as_in_sentence_transformers():
    sampler = pytest.importorskip("sentence_transformers.base.sampler").GroupByLabelBatchSampler

    class Table(dict):
        column_names = ("label",)

    for seed in range(30):
        rng = np.random.default_rng(seed)
        classes = rng.integers(0, 4, int(rng.integers(10, 60)))
        theirs = sampler(Table(label=classes.tolist()), 6, drop_last=False, valid_label_columns=["label"])
        ours = source(classes, 6)
        assert ours.steps_per_epoch == max(len(theirs), 1)
        assert (ours._plan(0)[0] >= 0).sum() == sum(map(len, theirs))


def test_a_batch_depends_on_seed_and_step_alone():
    classes = np.arange(60) % 5
    first, again = source(classes, 8), source(classes, 8)
    for step in (11, 3, 0):
        a, b = first.batch(step), again.batch(step)
        assert all((a[name] == b[name]).all() for name in a)
    assert (source(classes, 8, seed=1).batch(0)["input_ids"] != first.batch(0)["input_ids"]).any()
    assert not (first._plan(0)[0] == first._plan(1)[0]).all()
    halves = [first.batch(2, slice(0, 4)), first.batch(2, slice(4, 8))]
    np.testing.assert_array_equal(np.concatenate([half["input_ids"] for half in halves]), first.batch(2)["input_ids"])


def test_batches_that_cannot_be():
    with pytest.raises(InputError, match=r"config\.global_batch_size: expected an even number of at least 4"):
        source([0, 0, 1, 1], 5)
    with pytest.raises(InputError, match="at least two classes with two rows or more, found 1 of 3"):
        source([0, 0, 1, 2], 4)


def test_ranks_of_the_nearest_text_of_the_class():
    vectors = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.8, 0.3], [-1, 0.0]])
    classes = np.array([0, 1, 1, 0, 2])
    np.testing.assert_array_equal(class_ranks(vectors, classes, "cosine"), [2, 3, 2, 2])
    with pytest.raises(InputError, match="a class with at least two texts, found 5"):
        class_ranks(vectors, np.arange(5), "cosine")


@pytest.mark.slow
def test_classes_are_learned(place):
    results, _ = SMALL.train(place, num_epochs=6.0)
    assert results["eval/retrieval_accuracy"] > 0.9 and results["eval/mrr"] > 0.9


def test_a_job_of_classes(place):
    made = SMALL.job(place, **{"data.loss": "batch_all_triplet", "data.dev": "", "data.validation_split": 0.2})
    batch = made.train_source.batch(0)
    assert batch["input_ids"].shape == (12, 1, 16) and set(batch["labels"].tolist()) == {0, 1, 2}
    held = [made.eval_source.batch(i) for i in range(made.eval_source.num_batches)]
    real = np.concatenate([batch["labels"][batch["example_weights"] > 0] for batch in held])
    assert np.bincount(real.astype(int)).tolist() == [6, 6, 6]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.label_column": ""}, "config.data.label_column: expected a column, which loss 'batch_hard_triplet'"),
        ({"data.negative_column": "text"}, "config.data.negative_columns: expected .* rows of other classes"),
        ({"global_batch_size": 7}, "config.global_batch_size: expected an even number"),
        ({"data.loss": "contrastive", "data.pair_column": "text"}, "column 'topic'|expected a number"),
    ],
)
def test_recipes_that_do_not_fit(place, changes, message):
    with pytest.raises(InputError, match=message):
        SMALL.job(place, **changes)


def test_labels_of_pairs_are_0_or_1(place, tmp_path):
    rows = [{"text": "a cat", "pair": "a dog", "topic": label} for label in (1, 0, 0.5)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = {"data.train": str(tmp_path / "pairs.jsonl"), "data.pair_column": "pair", "data.dev": ""}
    for loss in ("contrastive", "online_contrastive"):
        with pytest.raises(InputError, match=r"pairs\.jsonl: line 3: expected 0 or 1 in column 'topic'"):
            SMALL.job(place, **changes, **{"data.loss": loss})
