"""Sparse embeddings are learned: the loss against sentence-transformers, in parts, and a whole run."""

import importlib
import json

import jax
import numpy as np
import pytest

from bert_jax import BertConfig, jobs, recipes
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline
from bert_jax.metrics.retrieval import ranks_among
from bert_jax.modeling import Bert
from bert_jax.tasks.embedding.sparse.task import SparseEmbeddingTask
from bert_jax.training import train

ROWS, TEXTS, SIZE = 6, 3, 41


class Given(SparseEmbeddingTask):
    """A task whose parameters are its embeddings."""

    def embed(self, params, batch, dropout_key):
        return params[:, 0], params[:, 1:]


CONFIG = BertConfig.named("tiny", vocab_size=SIZE, num_hidden_layers=1, hidden_size=16, num_attention_heads=2)
MODEL = Bert(CONFIG.replace(max_position_embeddings=8), "sparse_embedding")


def batch(real=ROWS):
    random, weights = np.random.default_rng(1), (np.arange(ROWS) < real).astype(np.float32)
    queries, documents = (
        random.integers(1, SIZE, shape).astype(np.int32) for shape in ((ROWS, 4), (ROWS, TEXTS - 1, 4))
    )
    return {"query_ids": queries, "query_mask": np.ones_like(queries), "query_scored": np.ones_like(queries),
            "input_ids": documents, "attention_mask": np.ones_like(documents), "example_weights": weights,
            "labels": np.eye(1, TEXTS - 1, dtype=np.float32).repeat(ROWS, 0)}  # fmt: skip


def vectors():
    found = np.random.default_rng(0).normal(size=(ROWS, TEXTS, SIZE)).astype(np.float32)
    return np.maximum(found, 0)


@pytest.mark.oracle
@pytest.mark.parametrize("real", [ROWS, 4])
def test_the_loss_is_that_of_sentence_transformers(real):
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    losses = pytest.importorskip("sentence_transformers.sparse_encoder.losses", reason="the oracle")
    similarity = importlib.import_module("sentence_transformers.util")
    task = Given(MODEL, query_flops=0.03, document_flops=0.02, scale=0.7)
    given = torch.tensor(vectors()[:real], requires_grad=True)
    ranking = losses.SparseMultipleNegativesRankingLoss(None, scale=0.7, similarity_fct=similarity.dot_score)
    columns = [given[:, i] for i in range(TEXTS)]
    flops = losses.FlopsLoss(None)
    regularisers = 0.03 * flops.compute_loss_from_embeddings(columns[0])
    regularisers = regularisers + 0.02 * flops.compute_loss_from_embeddings(torch.cat(columns[1:]))
    expected = ranking.compute_loss_from_embeddings(columns, None) + regularisers
    expected.backward()

    def loss(params):
        return task.loss(params, batch(real), None, task.weights(batch(real)))[0]

    found, gradients = jax.value_and_grad(loss)(vectors())
    assert found == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(gradients[:real], given.grad.numpy(), rtol=1e-4, atol=1e-6)
    assert not np.asarray(gradients[real:]).any()


@pytest.mark.slow
def test_in_parts_it_is_the_same_loss():
    params, given, found = jax.jit(MODEL.init)(jax.random.key(0)), batch(5), []
    for parts in (1, 3):
        task = SparseEmbeddingTask(MODEL, query_flops=0.1, document_flops=0.1, parts=parts)
        loss = jax.value_and_grad(lambda p, task=task: task.loss(p, given, None, task.weights(given))[0])
        found.append(jax.jit(loss)(params))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found[0][1], found[1][1])


def test_scores_are_ranks_of_dot_products():
    task = Given(MODEL)
    predictions = [{name: np.asarray(value) for name, value in task.predict(vectors(), batch()).items()}]
    products = vectors()[:4, 0] @ vectors()[:4, 1:].reshape(-1, SIZE).T
    own = products[np.arange(4), np.arange(4) * (TEXTS - 1)]
    ranks = 1 + (products > own[:, None]).sum(1)
    scores = task.score(predictions, [batch(4)])
    assert scores == {"retrieval_accuracy": np.mean(ranks == 1), "mrr": pytest.approx(np.mean(1 / ranks))}
    same = ranks_among(lambda rows: np.ones((5, 5))[rows], np.arange(5), relative=True)
    assert same.tolist() == [3] * 5  # a model that tells nothing apart


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, write_small):
    place = tmp_path_factory.mktemp("sparse")
    write_small(place / "start", "masked_lm")
    words = ["cat", "dog", "bird", "fish", "house", "tree", "river", "stone"]
    rows = [{"query": f"the {w}", "document": f"a big {w} sat on a {w}", "other": f"{o} by day"}
            for w, o in zip(words * 8, (words[3:] + words[:3]) * 8, strict=True)]  # fmt: skip
    for name, part in (("train", rows), ("dev", rows[:8])):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    c = recipes.sparse_embedding()
    c.update_from_flattened_dict({
        "init_from": str(place / "start"), "data.train": str(place / "train.jsonl"),
        "data.dev": str(place / "dev.jsonl"), "data.text_column": "query", "data.pair_column": "document",
        "data.max_seq_length": 16, "global_batch_size": 8, "num_epochs": 6.0, "optimizer.learning_rate": 3e-3,
        "data.length_buckets": (16,), "accumulation_steps": 2,
    })  # fmt: skip
    return c


def test_a_run_learns_to_find_documents(recipe, tmp_path):
    results = train(recipe, str(tmp_path / "run"))
    assert results["eval/retrieval_accuracy"] > 0.8
    model = from_pretrained(tmp_path / "run" / "model")
    assert model.head == "sparse_embedding" and model.settings.max_length == 16 and model.missing == ()
    found = pipeline("search", model)("the bird", ["a big dog sat", "a big bird sat on a bird"], top_k=1)
    assert found[0]["corpus_id"] == 1


@pytest.mark.slow
def test_weights_of_the_regulariser_make_vectors_sparser(recipe):
    job = jobs.build(recipes.resolve(recipe.copy_and_resolve_references()))
    given = job.train_source.batch(0)
    params = load_pretrained(recipe.init_from, "sparse_embedding").params
    gradients = []
    for weight in (0.0, 100.0):
        task = SparseEmbeddingTask(job.task.model, query_flops=weight, document_flops=weight)
        gradients.append(jax.grad(lambda p, task=task: task.loss(p, given, None, task.weights(given))[0])(params))
    assert np.asarray(gradients[1]["mlm"]["bias"] - gradients[0]["mlm"]["bias"]).sum() > 0  # biases go down


def test_the_weights_of_the_regulariser_rise_with_the_square_of_the_step(recipe):
    c = recipe.copy_and_resolve_references()
    c.data.flops_warmup, c.num_steps = 0.5, 16
    job = jobs.build(recipes.resolve(c))
    shares = [job.train_source.batch(step, slice(2))["flops_share"].tolist() for step in (0, 3, 7, 15)]
    assert shares == [[1 / 64] * 2, [0.25] * 2, [1.0] * 2, [1.0] * 2]
    task, terms = Given(MODEL, query_flops=2.0, document_flops=3.0), []
    for share in (0.25, 1.0):
        given = batch() | {"flops_share": np.full(ROWS, share, np.float32)}
        terms.append(task.regularise(vectors()[:, 0], vectors()[:, 1:], given)[0])
    assert terms[0] == pytest.approx(0.25 * terms[1]) and terms[1] > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.pair_column": ""}, "config.data.pair_column: expected a column, found none"),
        ({"data.metrics": ("mr",)}, "'mr' is not a metric of search; did you mean 'mrr'"),
        ({"distillation.teacher": "x", "distillation.weights.soft_labels": 1.0, "accumulation_steps": 1},
         "config.distillation"),
        ({"global_batch_size": 1, "accumulation_steps": 1}, "expected at least 2 for loss 'in_batch_negatives'"),
    ],
)  # fmt: skip
def test_recipes_that_do_not_fit(recipe, changes, message):
    c = recipe.copy_and_resolve_references()
    with c.unlocked():
        c.update_from_flattened_dict(changes)
    with pytest.raises(InputError, match=message):
        jobs.build(recipes.resolve(c))
