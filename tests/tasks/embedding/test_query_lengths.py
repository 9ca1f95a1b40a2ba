"""Queries padded to lengths of their own: the choice of the lengths, the batches, and the loss of a batch."""

import itertools
import json

import jax
import numpy as np
import pytest
from small_tasks import SmallTask

from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.data.batches import TEXT_INPUTS
from bert_jax.data.finetuning.batching import TrainSource
from bert_jax.data.finetuning.features import ragged_features
from bert_jax.data.finetuning.groups import Groups
from bert_jax.errors import InputError
from bert_jax.jobs.synthetic import stages_of
from bert_jax.modeling import Bert
from bert_jax.tasks.embedding.dense.adaptive_layers import AdaptiveLayers
from bert_jax.tasks.embedding.dense.guide import GUIDE
from bert_jax.tasks.embedding.dense.query_lengths import (
    QUERY_NAMES,
    Lengths,
    QuerySource,
    choose_lengths,
    queries_of,
    text_lengths,
)
from bert_jax.tasks.embedding.dense.task import SentenceEmbeddingTask
from bert_jax.training import steps, train
from bert_jax.training.flops import step_flops
from bert_jax.training.monitoring import Throughput

LENGTHS = (Lengths(8, 16), Lengths(8, 24), Lengths(24, 24))
WORDS = ["cat", "dog", "bird", "fish", "house", "tree", "river", "stone", "red", "green", "blue", "old"]
SMALL = SmallTask(
    "sentence_embedding",
    {
        "init_from": "{place}/encoder", "data.train": "{place}/train.jsonl", "data.text_column": "query",
        "data.pair_column": "document", "data.loss": "in_batch_negatives", "data.max_seq_length": 64,
        "global_batch_size": 8, "num_epochs": 2.0, "optimizer.learning_rate": 1e-3, "eval_every": 0,
    },
)  # fmt: skip


def lengths_of(rows, seed=0):
    """Tokens of short queries, a few of them long, and of long texts."""
    rng = np.random.default_rng(seed)
    query = np.where(rng.random(rows) < 0.1, rng.integers(9, 24, rows), rng.integers(3, 9, rows))
    return query, rng.integers(6, 25, rows)


def groups(rows=50, texts=2, seed=0):
    rng = np.random.default_rng(seed)
    query, other = lengths_of(rows, seed)
    tokens = [
        rng.integers(5, 90, length).tolist()
        for row in range(rows)
        for length in (query[row], other[row], *rng.integers(3, other[row] + 1, texts - 2))
    ]
    return Groups(ragged_features(tokens), rng.random(rows).astype(np.float32), rng.integers(0, 3, (rows, texts)))


def source(rows, batch_size=6, seed=0):
    return QuerySource(TrainSource(rows, batch_size, (16, 24), 0, seed), LENGTHS)


def waste(chain, query, other, others):
    """The padded tokens of rows that each go to the first lengths of a chain that they fit."""
    return sum(
        next(each.query + others * each.other for each in chain if q <= each.query and o <= each.other)
        for q, o in zip(query, other, strict=True)
    )


@pytest.mark.parametrize("seed", range(6))
def test_no_chain_of_lengths_needs_less_padding(seed):
    query, other = lengths_of(60, seed)
    others = 1 + seed % 3
    chain, tokens = choose_lengths(query, other, others, 128, most=3, least_gain=0.0)
    assert tokens == waste(chain, query, other, others)
    nodes = [Lengths(*pair) for pair in itertools.product((8, 16, 24), repeat=2)]
    last = Lengths(*(-(-int(lengths.max()) // 8) * 8 for lengths in (query, other)))
    assert chain[-1] == last
    chains = [
        (*several, last)
        for count in range(3)
        for several in itertools.product(nodes, repeat=count)
        if all(a.query <= b.query and a.other <= b.other for a, b in itertools.pairwise((*several, last)))
    ]
    assert tokens == min(waste(each, query, other, others) for each in chains)


def test_lengths_stop_at_the_limit_and_where_they_save_little():
    query, other = lengths_of(60)
    (only,), _ = choose_lengths(query, other, 1, 128, least_gain=0.9)
    assert only == Lengths(24, 24)
    chain, _ = choose_lengths(np.minimum(query, 20), np.minimum(other, 20), 1, 20)
    assert chain[-1] == Lengths(20, 20)
    rng = np.random.default_rng(0)
    many, tokens = choose_lengths(rng.integers(1, 5000, 3000), rng.integers(1, 5000, 3000), 1, 8192)
    assert len(many) > 2 and tokens < 3000 * 2 * 5000


def test_an_epoch_has_every_row_once_and_its_texts():
    rows = groups(texts=3)
    batches, seen = source(rows), []
    assert batches.steps_by_shape(batches.steps_per_epoch).keys() <= set(range(batches.steps_per_epoch))
    for step in range(batches.steps_per_epoch):
        batch = batches.batch(step)
        assert Lengths(batch["query_ids"].shape[-1], batch["input_ids"].shape[-1]) in LENGTHS
        for row in np.flatnonzero(batch["example_weights"]):
            number = int(np.flatnonzero(rows.labels == batch["labels"][row])[0])
            seen.append(number)
            plain = rows.pad(np.array([number]), 24, 0)
            for name in TEXT_INPUTS:
                own, others = batch[QUERY_NAMES[name]][row], batch[name][row]
                np.testing.assert_array_equal(own, plain[name][0, 0, : len(own)])
                np.testing.assert_array_equal(others, plain[name][0, 1:, : others.shape[-1]])
        halves = [batches.batch(step, slice(0, 3)), batches.batch(step, slice(3, 6))]
        for name, array in batch.items():
            np.testing.assert_array_equal(np.concatenate([half[name] for half in halves]), array)
    assert sorted(seen) == list(range(len(rows)))
    other = source(rows, seed=1).batch(0)
    assert any(other[name].shape != array.shape or (other[name] != array).any()
               for name, array in batches.batch(0).items())  # fmt: skip


def test_another_batch_size_has_the_lengths_that_are_named():
    resized = source(groups()).resized(10, (2,))
    assert resized.steps_per_epoch == 5 and resized.lengths == LENGTHS[2:]
    assert resized.batch(0)["query_ids"].shape == (10, 24) and resized.batch(0)["input_ids"].shape == (10, 1, 24)


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    folder = tmp_path_factory.mktemp("queries")
    write_small(folder / "encoder", max_position_embeddings=64, num_hidden_layers=2, initializer_range=0.1)
    rng = np.random.default_rng(0)
    lines = [
        {"query": word, "document": " ".join([word, *rng.choice(WORDS, 30)])}
        for word in (WORDS[i % len(WORDS)] for i in range(48))
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.parametrize(
    ("loss", "texts", "options"),
    [
        ("in_batch_negatives", 2, {"mask_duplicates": True}),
        ("in_batch_negatives", 3, {"guided": True, "parts": 2}),
        ("in_batch_negatives", 2, {"adaptive": AdaptiveLayers(1), "matryoshka": ((8, 1.0), (4, 0.5))}),
        ("triplet", 3, {}),
        ("cosine", 2, {}),
        ("online_contrastive", 2, {}),
    ],
)
def test_the_loss_is_that_of_texts_of_one_length(place, loss, texts, options):
    loaded = load_pretrained(place / "encoder", "sentence_embedding")
    task = SentenceEmbeddingTask(Bert(loaded.config, "sentence_embedding"), loss, **options)
    rows, batches = groups(texts=texts), source(groups(texts=texts))
    apart = next(batch for batch in map(batches.batch, range(9)) if batch["example_weights"].all())
    numbers = [int(np.flatnonzero(rows.labels == label)[0]) for label in apart["labels"]]
    whole = rows.pad(np.array(numbers), 24, 0)
    if loss == "online_contrastive":
        whole["labels"] = apart["labels"] = np.arange(6, dtype=np.float32) % 2
    if "guided" in options:
        vectors = np.random.default_rng(0).normal(size=(6, texts, 5)).astype(np.float32)
        whole[GUIDE] = apart[GUIDE] = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    if "mask_duplicates" in options:  # the query of one row is the text of another
        for name in TEXT_INPUTS:
            tokens = queries_of(apart)[name][0, 0]
            whole[name][1, 1] = np.pad(tokens, (0, 24 - len(tokens)))
            apart[name][1, 0] = np.pad(tokens, (0, apart[name].shape[-1] - len(tokens)))

    def run(batch):
        of = jax.jit(jax.value_and_grad(lambda p: task.loss(p, batch, None, task.weights(batch)), has_aux=True))
        return of(loaded.params)

    ((value, sums), grads), ((expected, wanted), expected_grads) = run(apart), run(whole)
    assert value == pytest.approx(float(expected), rel=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), sums, wanted)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5), grads, expected_grads)


def test_two_texts_have_different_dropout(place):
    loaded = load_pretrained(place / "encoder", "sentence_embedding")
    task = SentenceEmbeddingTask(Bert(loaded.config.replace(hidden_dropout_prob=0.5), "sentence_embedding"), "cosine")
    batch = source(groups()).batch(0)
    for name in TEXT_INPUTS:  # both texts are the first eight tokens of the second
        batch[name] = batch[name][:, :, :8]
        batch[QUERY_NAMES[name]] = batch[name][:, 0]
    vectors = task._embed(loaded.params, batch, jax.random.key(0))
    assert np.abs(vectors[:, 0] - vectors[:, 1]).max() > 0.01


def test_a_run_has_short_queries_and_says_so(place):
    made = SMALL.job(place)
    (lengths,) = made.train_source.lengths
    assert lengths.query == 8 and lengths.other >= 32
    assert made.data()["lengths"] == [[lengths.query, lengths.other]]
    batch = made.train_source.batch(0)
    assert step_flops(made.task.model, batch) < 0.7 * step_flops(
        made.task.model, {"input_ids": np.zeros((8, 2, lengths.other))}
    )
    seen = Throughput.__new__(Throughput)
    seen._steps = seen._sequences = seen._tokens = 0
    seen._peak = None
    seen.add(made.task.model, batch)
    assert seen._tokens == 8 * (lengths.query + lengths.other)
    (stage,) = stages_of(made, SMALL.recipe(place))
    assert {"query_ids", "query_mask"} <= stage.batch.keys()
    turned = SMALL.job(place, **{"data.text_column": "document", "data.pair_column": "query"})
    assert turned.train_source.lengths == (Lengths(lengths.other, lengths.query),)
    for changes in (
        {"data.length_buckets": (64,)},
        {"data.pair_column": "document", "data.text_column": "document"},
    ):
        assert type(SMALL.job(place, **changes).train_source) is TrainSource


def test_a_resumed_run_ends_in_the_same_bits(place, tmp_path):
    c = SMALL.recipe(place, checkpoint_every=2)
    whole = train(c, tmp_path / "whole", progress=False)
    for state, _ in steps(c, tmp_path / "resumed", progress=False):
        if int(state.step) == 5:  # the newest checkpoint is of step 4
            break
    resumed = train(c, tmp_path / "resumed", progress=False)
    jax.tree.map(np.testing.assert_array_equal, whole.state.params, resumed.state.params)
    c.data.length_buckets = (64,)
    with pytest.raises(InputError, match=r"data\.length_buckets was"):
        train(c, tmp_path / "resumed", progress=False)


def test_texts_of_rows_with_outputs_are_counted():
    class Rows:
        rows = groups(texts=3)

    lengths = text_lengths(Rows())
    assert lengths.shape == (50, 3)
    np.testing.assert_array_equal(lengths[:, 0], lengths_of(50)[0])
