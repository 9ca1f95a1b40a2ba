"""Late interaction is learned: losses against sentence-transformers, in parts, rows as in inference, and a run."""

import dataclasses
import importlib
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax import BertConfig, jobs, recipes
from bert_jax.config.values import EmbeddingLayer
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline
from bert_jax.inference.similarity import max_similarities
from bert_jax.modeling import Bert
from bert_jax.tasks.embedding.multi_vector.task import MultiVectorTask
from bert_jax.training import train

ROWS, DOCUMENTS, QUERY, LENGTH, SIZE = 4, 3, 5, 7, 16
VOCABULARY = 41


class Given(MultiVectorTask):
    """A task whose parameters are its embeddings."""

    def embed(self, params, batch, dropout_key):
        scored = batch["query_scored"] > 0, batch["attention_mask"] > 0
        return (params["queries"], scored[0]), (params["documents"], scored[1])


def vectors():
    random = np.random.default_rng(0)
    shapes = {"queries": (ROWS, QUERY, SIZE), "documents": (ROWS, DOCUMENTS, LENGTH, SIZE)}
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def batch(real=ROWS, labels=None):
    random = np.random.default_rng(1)
    ids = {"query_ids": (ROWS, QUERY), "input_ids": (ROWS, DOCUMENTS, LENGTH)}
    given = {name: random.integers(1, VOCABULARY, shape).astype(np.int32) for name, shape in ids.items()}
    query_lengths, lengths = random.integers(2, QUERY + 1, ROWS), random.integers(2, LENGTH + 1, (ROWS, DOCUMENTS))
    mask = (np.arange(QUERY) < query_lengths[:, None]).astype(np.int32)
    given |= {"query_mask": mask, "query_scored": mask}
    given["attention_mask"] = (np.arange(LENGTH) < lengths[..., None]).astype(np.int32)
    labels = np.eye(1, DOCUMENTS).repeat(ROWS, 0) if labels is None else labels
    return given | {"labels": labels.astype(np.float32), "example_weights": (np.arange(ROWS) < real).astype(np.float32)}


class Oracle:
    """A model of sentence-transformers whose outputs are given."""

    def __call__(self, features, task=None):
        return features


def columns(torch, given, real):
    """The query, and each of its documents, as features of sentence-transformers' losses; and the leaves."""
    leaves = {name: torch.tensor(array, requires_grad=True) for name, array in vectors().items()}
    mask = torch.tensor(given["attention_mask"])
    features = [
        {"token_embeddings": leaves["queries"][:real], "attention_mask": torch.tensor(given["query_scored"])[:real]}
    ]
    for i in range(DOCUMENTS):
        features.append({"token_embeddings": leaves["documents"][:real, i], "attention_mask": mask[:real, i]})
    return features, leaves


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["in_batch_negatives", "margin_mse", "kl_divergence"])
@pytest.mark.parametrize("real", [ROWS, 3])
def test_the_loss_is_that_of_sentence_transformers(name, real):
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    losses = importlib.import_module("sentence_transformers.multi_vector_encoder.losses")
    labels = np.random.default_rng(2).normal(size=(ROWS, DOCUMENTS)) * 3
    given = batch(real, None if name == "in_batch_negatives" else labels)
    features, leaves = columns(torch, given, real)
    scores = torch.tensor(labels[:real], dtype=torch.float32)
    match name:
        case "in_batch_negatives":
            expected = losses.MultiVectorMultipleNegativesRankingLoss(Oracle(), scale=0.7)(features)
        case "margin_mse":
            expected = losses.MultiVectorMarginMSELoss(Oracle())(features, scores)
        case _:
            expected = losses.MultiVectorDistillKLDivLoss(Oracle(), temperature=0.7)(features, scores)
    expected.backward()
    task = Given(None, name, scale=0.7, temperature=0.7)

    def loss(params):
        return task.loss(params, given, None, task.weights(given))[0]

    found, gradients = jax.value_and_grad(loss)(vectors())
    assert found == pytest.approx(expected.item(), rel=1e-5)
    for part, leaf in leaves.items():
        np.testing.assert_allclose(gradients[part], leaf.grad.numpy(), rtol=1e-4, atol=1e-5)


def small(head="multi_vector"):
    config = BertConfig.named("tiny", vocab_size=VOCABULARY, num_hidden_layers=1, hidden_size=16, num_attention_heads=2)
    layer = EmbeddingLayer("dense", 16, 8, bias=False)
    return Bert(config.replace(max_position_embeddings=8, embedding_layers=(layer,), normalize_embeddings=True), head)


@pytest.mark.slow
def test_in_parts_it_is_the_same_loss():
    model, given, found = small(), batch(3), []
    params = jax.jit(model.init)(jax.random.key(0))
    for parts in (1, 2):
        task = MultiVectorTask(model, parts=parts, skipped_in_documents=(3, 4))
        loss = jax.value_and_grad(lambda p, task=task: task.loss(p, given, None, task.weights(given))[0])
        found.append(jax.jit(loss)(params))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found[0][1], found[1][1])


def test_missing_documents_count_nowhere():
    labels = np.array([[1, 0, -np.inf]] * ROWS)
    given, changed = batch(labels=labels), vectors()
    changed["documents"][:, 2] += 1
    for name in ("in_batch_negatives", "margin_mse", "kl_divergence"):
        task = Given(None, name)
        found = [task.loss(params, given, None, task.weights(given))[0] for params in (vectors(), changed)]
        assert np.isfinite(found[0]) and found[0] == found[1]


def test_scores_are_ranks_by_late_interaction():
    task, given = Given(None), batch(3)
    found = {name: np.asarray(value) for name, value in task.predict(vectors(), given).items()}
    own = vectors()
    queries = [own["queries"][i][given["query_scored"][i] > 0] for i in range(3)]
    documents = [own["documents"][i, j][given["attention_mask"][i, j] > 0] for i in range(3) for j in range(DOCUMENTS)]
    scores = max_similarities("maxsim", queries, documents)
    ranks = 1 + (scores > scores[np.arange(3), np.arange(3) * DOCUMENTS][:, None]).sum(1)
    assert task.score([found], [given]) == {"retrieval_accuracy": np.mean(ranks == 1), "mrr": np.mean(1 / ranks)}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, write_small):
    place = tmp_path_factory.mktemp("late")
    write_small(place / "start", "masked_lm")
    words = ["cat", "dog", "bird", "fish", "house", "tree", "river", "stone"]
    rows = [{"query": f"the {w}", "document": f"a big {w} sat on a {w}.", "other": f"{o} by day", "margin": 2.0,
             "passages": [f"a big {w} sat.", f"{o} by day"], "scores": [3.0, 1.0]}
            for w, o in zip(words * 8, (words[3:] + words[:3]) * 8, strict=True)]  # fmt: skip
    for name, part in (("train", rows), ("dev", rows[:8])):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    c = recipes.multi_vector()
    c.update_from_flattened_dict({
        "init_from": str(place / "start"), "data.train": str(place / "train.jsonl"),
        "data.dev": str(place / "dev.jsonl"), "data.text_column": "query", "data.pair_column": "document",
        "data.max_seq_length": 16, "global_batch_size": 8, "num_epochs": 6.0, "optimizer.learning_rate": 3e-3,
        "data.length_buckets": (16,), "accumulation_steps": 2, "data.query_length": 8, "data.token_dim": 12,
    })  # fmt: skip
    return c


def changed(recipe, **keys):
    c = recipe.copy_and_resolve_references()
    with c.unlocked():
        c.update_from_flattened_dict({name.replace("__", "."): value for name, value in keys.items()})
    return c


def test_a_run_learns_to_find_documents(recipe, tmp_path):
    results = train(recipe, str(tmp_path / "run"))
    assert results["eval/retrieval_accuracy"] > 0.8
    model = from_pretrained(tmp_path / "run" / "model")
    settings = model.settings.multi_vector
    assert (model.head, model.missing, settings.query_length, settings.document_length) == ("multi_vector", (), 8, 16)
    assert settings.expansion.length == 8 and "." in settings.skipped_words
    assert model.encode_query(["the cat"])[0].shape == (8, 12)
    found = pipeline("search", model)("the bird", ["a big dog sat.", "a big bird sat on a bird."], top_k=1)
    assert found[0]["corpus_id"] == 1
    again = changed(recipe, init_from=str(tmp_path / "run" / "model"), data__token_dim=None, data__query_length=None)
    job = jobs.build(recipes.resolve(again))
    assert job.train_source.features.expansion.length == 8 and job.task.model.config.sentence_embedding_size == 12
    with pytest.raises(InputError, match=r"config.data.token_dim: expected 12, as in the model of init_from, found 6"):
        jobs.build(recipes.resolve(changed(again, data__token_dim=6)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("keys", [{}, {"query_expansion": False}, {"attend_to_expansion": True, "query_prefix": "the "},
                                  {"document_prefix": "[MASK] ", "skip_punctuation": False}])  # fmt: skip
def test_training_embeds_texts_as_inference_does(recipe, tmp_path, keys):
    c = changed(recipe, num_steps=1, **{f"data__{name}": value for name, value in keys.items()})
    job = jobs.build(recipes.resolve(c))
    params = jax.device_get(jax.jit(job.init_params)(jax.random.key(3)))
    job.save(tmp_path / "model", params)
    model = from_pretrained(tmp_path / "model")
    given = job.eval_source.batch(0)
    found = {name: np.asarray(value) for name, value in job.task.predict(params, given).items()}
    lines = [json.loads(line) for line in Path(c.data.dev).read_text().splitlines()]
    for row, number in enumerate(job.eval_source.order[: len(given["labels"])]):
        query = found["queries"][row][found["query_scored"][row]]
        document = found["documents"][row, 0][found["document_scored"][row, 0]]
        np.testing.assert_allclose(query, model.encode_query([lines[number]["query"]])[0], atol=1e-5)
        np.testing.assert_allclose(document, model.encode_document([lines[number]["document"]])[0], atol=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "keys",
    [
        {"data__loss": "margin_mse", "data__negative_column": "other", "data__label_column": "margin"},
        {"data__loss": "margin_mse", "data__passages_column": "passages", "data__label_column": "scores"},
        {"data__loss": "kl_divergence", "data__passages_column": "passages", "data__label_column": "scores"},
    ],
)
def test_scores_of_a_teacher_are_learned(recipe, tmp_path, keys):
    results = train(changed(recipe, num_steps=24, **keys), str(tmp_path / "run"))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    first, *_, last = [line[f"train/{keys['data__loss']}"] for line in lines if f"train/{keys['data__loss']}" in line]
    assert last < first and results["eval/mrr"] > 0.3


def test_a_token_that_is_skipped_is_not_scored():
    model, given = small(), batch()
    params = jax.jit(model.init)(jax.random.key(0))
    skipped = int(given["input_ids"][0, 0, 0])
    task = MultiVectorTask(model, skipped_in_documents=(skipped,))
    _, (_, scored) = task.embed(params, given, None)
    ids, mask = given["input_ids"], given["attention_mask"] > 0
    np.testing.assert_array_equal(scored, mask & (ids != skipped))
    assert (ids[mask] == skipped).any()
    assert dataclasses.replace(task, skipped_in_documents=()).embed(params, given, None)[1][1].sum() > scored.sum()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"data__pair_column": ""}, "config.data.pair_column: expected a column, found none"),
        ({"data__metrics": ("mr",)}, "'mr' is not a metric of search; did you mean 'mrr'"),
        ({"data__loss": "margin_mse"}, "config.data.label_column: expected the column of a teacher's scores"),
        ({"data__loss": "kl_divergence", "data__label_column": "margin", "data__negative_column": "other"},
         "config.data.passages_column: expected a column of lists for loss 'kl_divergence', found none"),
        ({"data__negative_column": "other", "data__passages_column": "passages"}, "expected none with negatives"),
        ({"data__negative_column": "other", "data__negative_columns": ("a",)}, r"expected \(\) with negative_column"),
        ({"global_batch_size": 1, "accumulation_steps": 1}, "expected at least 2 for loss 'in_batch_negatives'"),
        ({"data__query_length": 600}, "config.data.query_length: expected at most the model's"),
    ],
)  # fmt: skip
def test_recipes_that_do_not_fit(recipe, keys, message):
    with pytest.raises(InputError, match=message):
        jobs.build(recipes.resolve(changed(recipe, **keys)))
