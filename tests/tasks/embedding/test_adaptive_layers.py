"""Adaptive layers: the loss and its gradient beside sentence-transformers', the layers of a step, and a whole run."""

import json
import random

import jax
import numpy as np
import pytest

from bert_jax import jobs, recipes
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.errors import InputError
from bert_jax.modeling import Bert
from bert_jax.tasks.embedding.dense.adaptive_layers import AdaptiveLayers
from bert_jax.tasks.embedding.dense.task import SentenceEmbeddingTask
from bert_jax.training import train


@pytest.fixture(scope="module")
def start(tmp_path_factory, write_small):
    folder = tmp_path_factory.mktemp("adaptive") / "start"
    write_small(folder, "sentence_embedding", num_hidden_layers=4, hidden_dropout_prob=0.0, initializer_range=0.1)
    return folder


def batch(rows=5, texts=2, length=9):
    pick = np.random.default_rng(0)
    ids = pick.integers(5, 90, (rows, texts, length)).astype(np.int32)
    mask = (np.arange(length) < pick.integers(3, length + 1, (rows, texts, 1))).astype(np.int32)
    return {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": np.zeros_like(ids),
            "labels": np.zeros(rows, np.float32), "example_weights": np.ones(rows, np.float32)}  # fmt: skip


def values(*layers):
    return {f"layer_{i}": np.full(5, layer, np.float32) for i, layer in enumerate(layers)}


def run(task, params, given):
    loss = jax.jit(jax.value_and_grad(lambda p: task.loss(p, given, None, task.weights(given))[0]))
    return loss(params)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 5])
def test_the_loss_is_that_of_sentence_transformers(start, monkeypatch, parts):
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    monkeypatch.setattr(random, "sample", lambda layers, count: [1, 3])  # outputs of the first and the third layer
    theirs, given = sentence_transformers.SentenceTransformer(str(start), device="cpu").eval(), batch()
    options = {"n_layers_per_step": 2, "prior_layers_weight": 0.7, "kl_div_weight": 1.5, "kl_temperature": 0.4}
    objective = losses.AdaptiveLayerLoss(theirs, losses.MultipleNegativesRankingLoss(theirs), **options)
    names = ("input_ids", "attention_mask", "token_type_ids")
    features = [{name: torch.tensor(given[name][:, i]).long() for name in names} for i in range(2)]
    expected = objective(features, None)
    expected.backward()
    loaded = load_pretrained(start, "sentence_embedding")
    task = SentenceEmbeddingTask(Bert(loaded.config, "sentence_embedding"), "in_batch_negatives", parts=parts,
                                 adaptive=AdaptiveLayers(2, 0.7, 1.5, 0.4))  # fmt: skip
    loss, grads = run(task, loaded.params, given | values(0, 2))
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    wanted = theirs[0].auto_model.embeddings.word_embeddings.weight.grad.numpy()
    found = grads["embeddings"]["word_embeddings"]["embedding"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    other, _ = run(task, loaded.params, given | values(0, 1))
    assert abs(other - loss) > 1e-3  # which layers they are matters


@pytest.mark.slow
def test_padded_rows_and_losses_of_single_rows(start):
    loaded, given = load_pretrained(start, "sentence_embedding"), batch() | values(0)
    task = SentenceEmbeddingTask(Bert(loaded.config, "sentence_embedding"), "cosine", adaptive=AdaptiveLayers(1))
    real = np.array([1, 1, 1, 0, 0], np.float32)
    loss, _ = run(task, loaded.params, given | {"example_weights": real})
    kept, _ = run(task, loaded.params, {name: array[:3] for name, array in given.items()})
    assert loss == pytest.approx(float(kept), rel=1e-5)


@pytest.fixture
def recipe(start, tmp_path):
    words = ["cat", "dog", "bird", "fish", "house", "tree", "river", "stone"]
    rows = [{"a": f"the {w}", "b": f"a big {w} sat on a {w}"} for w in words * 8]
    for name, part in (("train", rows), ("dev", rows[:8])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    c = recipes.sentence_embedding()
    c.update_from_flattened_dict({
        "init_from": str(start), "data.train": str(tmp_path / "train.jsonl"), "data.dev": str(tmp_path / "dev.jsonl"),
        "data.text_column": "a", "data.pair_column": "b", "data.max_seq_length": 16, "global_batch_size": 8,
        "num_epochs": 4.0, "optimizer.learning_rate": 3e-3, "data.length_buckets": (16,), "data.layers_per_step": 2,
    })  # fmt: skip
    return c


def test_the_layers_of_a_step_depend_on_seed_and_step_alone(recipe):
    def layers(step, seed=0):
        c = recipe.copy_and_resolve_references()
        c.seed = seed
        found = jobs.build(recipes.resolve(c)).train_source.batch(step, slice(2))
        return found["layer_0"].tolist(), found["layer_1"].tolist()

    drawn = [layers(step) for step in range(8)]
    assert all(first[0] == first[1] != second[0] and {*first, *second} <= {0, 1, 2} for first, second in drawn)
    assert len(set(map(str, drawn))) > 2 and drawn == [layers(step) for step in range(8)]
    assert drawn != [layers(step, 1) for step in range(8)]


@pytest.mark.slow
def test_a_run_teaches_earlier_layers(recipe, tmp_path, start):
    results = train(recipe, str(tmp_path / "run"))
    assert results["eval/retrieval_accuracy"] > 0.8
    given = jobs.build(recipes.resolve(recipe)).eval_source.batch(0)

    def accuracy(folder, layer):
        loaded = load_pretrained(folder, "sentence_embedding")
        model = Bert(loaded.config, "sentence_embedding")
        ids, mask = (given[name].reshape(-1, given[name].shape[-1]) for name in ("input_ids", "attention_mask"))
        states = model.apply(loaded.params, ids, mask, output_hidden_states=True).hidden_states
        found = np.asarray(model.embed_hidden_state(loaded.params, states[layer], mask)).reshape(
            len(given["labels"]), 2, -1
        )
        return np.mean((found[:, 0] @ found[:, 1].T).argmax(1) == np.arange(len(found)))

    assert accuracy(tmp_path / "run" / "model", 1) > 0.8 > accuracy(start, 1)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"data.layers_per_step": 4},
            "config.data.layers_per_step: expected at most 3, the number of layers before the last, found 4",
        ),
        ({"data.loss": "tsdae"}, "config.data.layers_per_step: expected 0 for loss 'tsdae', found 2"),
    ],
)
def test_recipes_that_do_not_fit(recipe, keys, message):
    recipe.update_from_flattened_dict(keys)
    with pytest.raises(InputError, match=message):
        jobs.build(recipes.resolve(recipe))
