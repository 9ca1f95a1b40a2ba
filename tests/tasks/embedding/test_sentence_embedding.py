"""Sentence embeddings: the losses by hand and beside PyTorch, learning through the loop, and the finished model."""

import dataclasses
import json
import pathlib

import embedding_meshes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from given_embeddings import loss_and_gradients, random_embeddings

from bert_jax import evaluation, jobs, recipes
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.data.finetuning.tables import Columns
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.metrics import retrieval
from bert_jax.modeling import Bert
from bert_jax.modeling.pooling import l2_normalize, pool_tokens
from bert_jax.tasks.embedding.dense.evaluation import SentenceEmbeddingEvaluator
from bert_jax.tasks.embedding.dense.task import SentenceEmbeddingTask
from bert_jax.tasks.embedding.in_batch_negatives import in_batch_negatives
from bert_jax.tasks.embedding.text_pairs import encode_pairs, read_pairs
from bert_jax.training.loop import train

# Words of one line mean the same.
TOPICS = (("cat", "dog", "bird", "fish"), ("house", "tree", "river", "stone"), ("red", "green", "blue", "old"),
          ("runs", "sat", "sleeps", "eats"), ("one", "two", "three", "time"))  # fmt: skip
OTHERS = ("the", "a", "of", "to", "in", "is", "was")
PAIRS = Columns("a", "b", "score")
REAL = embedding_meshes.ROWS - 3


def sentence(rng, topic):
    words = [*rng.choice(TOPICS[topic], 2), *rng.choice(OTHERS, rng.integers(1, 6))]
    return " ".join(rng.permutation(words))


def write_rows(path, rows, seed):
    """Pairs, half of them of one topic with score 5 and the others with score 0, and a text of another topic."""
    rng = np.random.default_rng(seed)
    lines = []
    for i in range(rows):
        topic, other = rng.choice(len(TOPICS), 2, replace=False)
        alike = i % 2
        pair = sentence(rng, topic if alike else other)
        row = {"a": sentence(rng, topic), "b": pair, "score": 5 * alike}
        lines.append(row | {"positive": sentence(rng, topic), "negative": sentence(rng, other)})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    """Tables, and an encoder with random parameters to start from."""
    root = tmp_path_factory.mktemp("embedding")
    write_rows(root / "train.jsonl", 320, seed=0)
    write_rows(root / "dev.jsonl", 61, seed=1)
    write_small(root / "encoder")
    return root


def recipe(place, loss, **changes):
    c = recipes.sentence_embedding()
    c.init_from = str(place / "encoder")
    c.data.train, c.data.dev = str(place / "train.jsonl"), str(place / "dev.jsonl")
    c.data.loss, c.data.max_seq_length, c.data.length_buckets = loss, 16, (16,)
    c.data.text_column, c.data.pair_column = "a", "b" if loss == "cosine" else "positive"
    if loss == "cosine":
        c.data.label_column, c.data.label_scale = "score", 5.0
    if loss == "triplet":
        c.data.negative_column = "negative"
    c.global_batch_size, c.num_epochs, c.optimizer.learning_rate = 32, 4.0, 2e-3
    c.update_from_flattened_dict(changes)
    return c


def job(place, loss, **changes):
    return jobs.build(recipes.resolve(recipe(place, loss, **changes)))


@pytest.fixture(scope="module")
def tuned(place):
    """What training by cosines returned, and the finished model."""
    results = train(recipe(place, "cosine"), place / "run", progress=False)
    return results, place / "run" / "model"


# The losses


@pytest.mark.parametrize("texts", [2, 3])
def test_in_batch_negatives_beside_torch(texts):
    torch = pytest.importorskip("torch")
    vectors = random_embeddings(texts)
    leaf = torch.tensor(vectors, requires_grad=True)
    units = torch.nn.functional.normalize(leaf, dim=-1)
    choices = torch.cat([units[:, i] for i in range(1, texts)])
    expected = torch.nn.functional.cross_entropy(20 * units[:, 0] @ choices.T, torch.arange(6))
    expected.backward()
    loss, grads, found = loss_and_gradients(vectors, loss_name="in_batch_negatives")
    assert loss == pytest.approx(expected.item(), rel=1e-5) and found["cross_entropy"] == pytest.approx(loss)
    np.testing.assert_allclose(grads, leaf.grad, atol=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("texts", [2, 3])
@pytest.mark.parametrize("parts", [2, 3, 6])
def test_in_parts_it_is_the_same_loss(texts, parts):
    vectors, real = random_embeddings(texts), np.array([1, 1, 1, 1, 1, 0], np.float32)
    whole = loss_and_gradients(vectors, real, loss_name="in_batch_negatives")
    loss, grads = jax.value_and_grad(lambda v: (in_batch_negatives(v, real, 20.0, parts)[0] * real).sum() / 5)(vectors)
    assert float(loss) == pytest.approx(whole[0], rel=1e-6)
    np.testing.assert_allclose(grads, whole[1], atol=1e-6)
    right = in_batch_negatives(vectors, real, 20.0, parts)[1]
    assert float((right * real).sum() / 5) == pytest.approx(whole[2]["accuracy"])


@pytest.mark.slow
def test_in_parts_dropout_is_that_of_each_part():
    """In both passes: the gradient is that of the parts, each with its key, side by side."""
    config = embedding_meshes.CONFIG.replace(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)
    task = SentenceEmbeddingTask(Bert(config, "sentence_embedding"), "in_batch_negatives", parts=4)
    batch, key = embedding_meshes.batch(), jax.random.key(3)
    params = jax.jit(task.model.init)(jax.random.key(0))

    def side_by_side(params):
        keys = jax.random.split(key, 4)
        parts = [task._embed(params, {k: v[i::4] for k, v in batch.items()}, keys[i]) for i in range(4)]
        vectors, real = jnp.concatenate(parts), np.concatenate([batch["example_weights"][i::4] for i in range(4)])
        return (in_batch_negatives(vectors, real, 20.0)[0] * real).sum() / real.sum()

    loss, grads = jax.jit(jax.value_and_grad(lambda p: task.loss(p, batch, key, task.weights(batch))[0]))(params)
    expected, wanted = jax.jit(jax.value_and_grad(side_by_side))(params)
    assert float(loss) == pytest.approx(float(expected), rel=1e-6)
    for a, b in zip(jax.tree.leaves(grads), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6 * max(1.0, float(np.abs(b).max())))


def test_in_parts_memory_does_not_grow_with_the_square_of_the_batch():
    task = SentenceEmbeddingTask(Bert(embedding_meshes.CONFIG, "sentence_embedding"), "in_batch_negatives")

    def temporary_bytes(copies):
        batch = {k: np.concatenate([v] * copies) for k, v in embedding_meshes.batch().items()}
        parts = dataclasses.replace(task, parts=copies)
        params = jax.eval_shape(task.model.init, jax.random.key(0))
        step = jax.jit(jax.grad(lambda p, b: parts.loss(p, b, None, parts.weights(b))[0]))
        return step.lower(params, batch).compile().memory_analysis().temp_size_in_bytes

    few, many = temporary_bytes(8), temporary_bytes(128)  # 128 and 2,048 rows
    vectors = 2048 * 3 * 32 * 4
    assert many - few < 12 * vectors < 2048 * 4096 * 4


def test_cosine_loss_beside_torch():
    torch = pytest.importorskip("torch")
    vectors, labels = random_embeddings(2), np.linspace(-1, 1, 6, dtype=np.float32)
    leaf = torch.tensor(vectors, requires_grad=True)
    cosines = torch.nn.functional.cosine_similarity(leaf[:, 0], leaf[:, 1])
    expected = torch.nn.functional.mse_loss(cosines, torch.tensor(labels))
    expected.backward()
    loss, grads, _ = loss_and_gradients(vectors, labels=labels, loss_name="cosine")
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(grads, leaf.grad, atol=1e-5)


@pytest.mark.parametrize(("distance", "margin"), [("euclidean", 1.0), ("cosine", 0.3)])
def test_triplet_loss_beside_torch(distance, margin):
    torch = pytest.importorskip("torch")
    vectors = random_embeddings(3)
    leaf = torch.tensor(vectors, requires_grad=True)
    text, pair, negative = leaf.unbind(1)

    def apart(other):
        if distance == "cosine":
            return 1 - torch.nn.functional.cosine_similarity(text, other)
        return (text - other).norm(dim=-1)

    losses = torch.relu(apart(pair) - apart(negative) + margin)
    assert 0 < (losses > 0).sum() < 6  # on both sides of the margin
    losses.mean().backward()
    loss, grads, found = loss_and_gradients(vectors, loss_name="triplet", distance=distance, margin=margin)
    assert loss == pytest.approx(losses.mean().item(), rel=1e-5)
    assert found["triplet_accuracy"] == pytest.approx(float((apart(pair) < apart(negative)).float().mean()))
    np.testing.assert_allclose(grads, leaf.grad, atol=1e-5)


@pytest.mark.oracle
def test_the_losses_are_those_of_sentence_transformers():
    torch = pytest.importorskip("torch")
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")

    class Model(torch.nn.Module):
        def forward(self, features):
            return features

    def theirs(loss, vectors, labels=None):
        return float(
            loss([{"sentence_embedding": torch.tensor(vectors[:, i])} for i in range(vectors.shape[1])], labels)
        )

    pairs, triplets, labels = random_embeddings(2), random_embeddings(3), np.linspace(0, 1, 6, dtype=np.float32)
    ranking = losses.MultipleNegativesRankingLoss(Model())
    for vectors in (pairs, triplets):
        ours = loss_and_gradients(vectors, loss_name="in_batch_negatives")[0]
        assert ours == pytest.approx(theirs(ranking, vectors), rel=1e-5)
    ours = loss_and_gradients(pairs, labels=labels, loss_name="cosine")[0]
    assert ours == pytest.approx(theirs(losses.CosineSimilarityLoss(Model()), pairs, torch.tensor(labels)), rel=1e-5)
    ours = loss_and_gradients(triplets, loss_name="triplet", margin=5.0)[0]
    assert ours == pytest.approx(theirs(losses.TripletLoss(Model()), triplets), rel=1e-5)


@pytest.mark.parametrize("name", ["in_batch_negatives", "cosine", "triplet"])
def test_rows_that_fill_a_batch_count_for_nothing(name):
    vectors = random_embeddings(3)
    vectors[4:] = 0  # as mean pooling makes of no tokens
    real = np.array([1, 1, 1, 1, 0, 0], np.float32)
    loss, grads, found = loss_and_gradients(vectors, real, loss_name=name)
    expected, some, wanted = loss_and_gradients(vectors[:4], loss_name=name)
    assert loss == pytest.approx(expected, rel=1e-6) and found == pytest.approx(wanted)
    np.testing.assert_allclose(grads, np.concatenate([some, np.zeros_like(grads[4:])]), atol=1e-5)
    assert not grads[4:].any()


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_pooling_no_tokens_has_a_gradient(pooling):
    x, mask = np.zeros((2, 3, 4), np.float32), np.array([[1, 1, 0], [0, 0, 0]])
    grads = jax.jit(jax.grad(lambda x: l2_normalize(pool_tokens(x, mask, (pooling,))).sum()))(x)
    assert np.isfinite(grads).all()


def test_one_text_twice_has_a_gradient():
    vectors = random_embeddings(3)
    vectors[:, 1] = vectors[:, 0]
    assert np.isfinite(loss_and_gradients(vectors, loss_name="triplet", margin=9.0)[1]).all()


@pytest.mark.slow  # test_embedding_losses.py does it with more losses
def test_one_device_or_eight_is_one_loss(on_eight_devices):
    one, others, apart = on_eight_devices(pathlib.Path(__file__).with_name("embedding_meshes.py"))
    assert others == pytest.approx([one] * 3, rel=1e-5) and max(apart) < 2e-5
    batch = embedding_meshes.batch()
    task = SentenceEmbeddingTask(Bert(embedding_meshes.CONFIG, "sentence_embedding"), "in_batch_negatives")
    params = jax.jit(task.model.init)(jax.random.key(0))
    vectors = np.asarray(jax.jit(task.predict)(params, batch)["embeddings"], np.float64)[:REAL]
    logits = 20 * vectors[:, 0] @ np.concatenate([vectors[:, 1], vectors[:, 2]]).T  # of the whole batch
    expected = np.mean(np.log(np.exp(logits).sum(1)) - np.diag(logits))
    assert one == pytest.approx(expected, rel=1e-4)


# Scores


def test_retrieval_ranks_by_hand():
    queries = np.eye(3)
    documents = np.array([[1, 0.1, 0], [1, 0.5, 0], [0, 0, 2.0]])[:, None]
    assert retrieval.retrieval_ranks(queries, documents).tolist() == [1, 1, 1]
    assert retrieval.retrieval_ranks(queries[[1, 0, 2]], documents).tolist() == [2, 2, 1]
    same = np.ones((5, 1, 3))
    assert retrieval.retrieval_ranks(same[:, 0], same).tolist() == [3] * 5  # a model that tells nothing apart
    negatives = np.stack([documents[:, 0], np.tile([[0, 0, 1.0]], (3, 1))], axis=1)
    assert retrieval.retrieval_ranks(queries, negatives).tolist() == [1, 1, 2.5]  # four alike


def test_retrieval_ranks_in_parts(monkeypatch):
    rng = np.random.default_rng(0)
    queries, documents = rng.normal(size=(50, 4)), rng.normal(size=(50, 2, 4))
    whole = retrieval.retrieval_ranks(queries, documents)
    monkeypatch.setattr(retrieval, "_ROWS", 7)
    np.testing.assert_array_equal(retrieval.retrieval_ranks(queries, documents), whole)


# Learning


@pytest.mark.slow
def test_cosines_are_learned(place, tuned):
    results, model = tuned
    assert results["step"] == 40
    assert results["eval/spearman"] > 0.8 and results["eval/pearson"] > 0.8  # ties leave Spearman at most 0.866
    before = jax.eval_shape(job(place, "cosine").init_params, jax.random.key(0)).keys()
    assert load_pretrained(model).params.keys() == before


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["in_batch_negatives", pytest.param("triplet", marks=pytest.mark.slow)])
def test_pairs_are_found_without_labels(place, tmp_path, loss):
    parts = {"accumulation_steps": 4} if loss == "in_batch_negatives" else {}
    results = train(recipe(place, loss, **parts), tmp_path / "run", progress=False)
    assert {"eval/retrieval_accuracy", "eval/mrr"} <= results.keys() and "eval/spearman" not in results
    found = evaluation.evaluate(tmp_path / "run" / "model", str(place / "dev.jsonl"), PAIRS)
    assert found["spearman"] > 0.8
    # Of 61 pairs a fifth are of the text's own topic: among 12 a random one is first once in 12 times.
    assert results["eval/mrr"] > 0.15


@pytest.mark.slow
def test_cut_embeddings_are_learned_from_ordered_labels(place, tmp_path):
    changes = {"data.matryoshka_dims": (32, 4), "data.label_column": "score", "data.pair_column": "b"}
    results = train(recipe(place, "cosent", accumulation_steps=4, **changes), tmp_path / "run", progress=False)
    assert min(results[f"eval/{name}"] for name in ("spearman", "spearman_32", "spearman_4")) > 0.7
    truncated = pipeline("similarity", tmp_path / "run" / "model")("the cat", "a dog", truncate_dim=4)
    assert 0.5 < truncated <= 1


@pytest.mark.slow
def test_several_negatives_with_a_guide(place, tmp_path, write_small):
    guide = write_small(tmp_path / "guide", "sentence_embedding", seed=3, hidden_size=16)
    changes = {"data.negative_columns": ("negative", "b"), "data.guide": str(guide), "data.guide_margin": 0.1}
    changes |= {"data.guide_cache": str(tmp_path / "cache"), "accumulation_steps": 4}
    made = job(place, "in_batch_negatives", **changes)
    batch = made.train_source.batch(0)
    assert batch["input_ids"].shape == (32, 4, 16) and batch["guide_embeddings"].shape == (32, 4, 16)
    assert made.task.guided and made.task.parts == 4 and made.task.contrast.margin == 0.1
    row = made.tokenizer.decode(batch["input_ids"][0, 3], skip_special_tokens=True)
    expected = pipeline("sentence-embedding", guide)(row)
    np.testing.assert_allclose(batch["guide_embeddings"][0, 3], expected, atol=1e-5)
    abstract = jobs.abstract_task(recipes.resolve(recipe(place, "in_batch_negatives", **changes)))
    (stage,) = abstract.stages
    assert {name: leaf.shape for name, leaf in stage.batch.items()} == {k: v.shape for k, v in batch.items()}
    results = train(recipe(place, "in_batch_negatives", num_steps=2, **changes), tmp_path / "run", progress=False)
    assert np.isfinite(results["eval/mrr"])


def test_margins_of_a_teacher_are_learned(place, tmp_path):
    changes = {"data.label_column": "score", "data.negative_column": "negative"}
    made = job(place, "margin_mse", **changes)
    batch = made.train_source.batch(0)
    assert batch["input_ids"].shape[1] == 3 and set(batch["labels"].tolist()) == {0, 5}
    assert not made.task.labelled and made.task.metrics == ("retrieval_accuracy", "mrr")
    held = {"data.dev": "", "data.validation_split": 0.2}
    assert set(job(place, "margin_mse", **changes | held).train_source.batch(0)["labels"].tolist()) == {0, 5}


@pytest.mark.slow
def test_texts_alone_are_told_apart(place, tmp_path):
    """Two passes over a text differ by their dropout alone."""
    rows = [json.loads(line) for line in (place / "train.jsonl").read_text().splitlines()]
    (tmp_path / "texts.txt").write_text("".join(f"{row['a']}\n\n" for row in rows))
    changes = {"data.train": str(tmp_path / "texts.txt"), "data.pair_column": "b", "data.label_column": "score"}
    changes |= {"model.hidden_dropout_prob": 0.2}
    made = job(place, "simcse", **changes, accumulation_steps=4)
    assert made.train_source.batch(0)["input_ids"].shape == (32, 1, 16) and made.task.parts == 4
    batch = {name: jnp.asarray(array) for name, array in made.train_source.batch(0).items()}
    task, params = dataclasses.replace(made.task, parts=1), jax.jit(made.init_params)(jax.random.key(0))
    twice = {name: jnp.repeat(array, 2, axis=1) if array.ndim == 3 else array for name, array in batch.items()}
    pairs = dataclasses.replace(task, loss_name="in_batch_negatives")
    losses = [
        float(jax.jit(each.loss)(params, rows, key, each.weights(rows))[0])
        for each, rows, key in (
            (task, batch, jax.random.key(0)),
            (pairs, twice, jax.random.key(0)),
            (task, batch, None),
        )
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6) and losses[0] > losses[2] + 0.01
    results = train(recipe(place, "simcse", num_steps=5, **changes), tmp_path / "run", progress=False)
    assert "eval/spearman" in results and results["train/accuracy"] > 0.5


def test_labels_for_evaluation_alone(place, tmp_path):
    (tmp_path / "odd.jsonl").write_text(
        '{"a": "the cat", "b": "a dog", "score": 99}\n{"a": "x", "b": "y", "score": 1}\n'
    )
    changes = {"data.label_column": "score", "data.pair_column": "b", "data.dev": str(tmp_path / "odd.jsonl")}
    made = job(place, "in_batch_negatives", **changes)
    assert made.task.labelled and not made.train_source.features.labels.any()
    assert sorted(made.eval_source.batch(0)["labels"].tolist())[-2:] == [1, 99]


def test_what_is_built(place):
    made = job(place, "triplet", **{"data.length_buckets": (8, 12), "data.metrics": ("mrr",)})
    batch = made.train_source.batch(0)
    assert batch["input_ids"].shape[:2] == (32, 3) and batch["example_weights"].sum() == 32
    assert made.task.metrics == ("mrr",)
    abstract = jobs.abstract_task(recipes.resolve(recipe(place, "triplet")))
    assert [stage.batch["input_ids"].shape for stage in abstract.stages] == [(32, 3, 16)]
    c = recipes.sentence_embedding()
    c.num_steps = 5
    (stage,) = jobs.abstract_task(recipes.resolve(c)).stages
    assert stage.batch["input_ids"].shape == (32, 2, 128)


def test_pooling_and_length_are_the_recipes(place, tmp_path):
    made = job(place, "cosine", **{"model.pooling": "max", "model.normalize_embeddings": False})
    made.save(tmp_path / "model", made.pretrained)
    loaded = load_pretrained(tmp_path / "model")
    assert (loaded.config.pooling, loaded.config.normalize_embeddings, loaded.settings.max_length) == ("max", False, 16)
    again = job(place, "cosine", init_from=str(tmp_path / "model"))
    assert again.task.model.config.pooling == "max"


def test_sentence_transformers_opens_the_finished_model(tuned):
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer(str(tuned[1]), device="cpu")
    texts = ["the cat sat", "red", "a river of stone " * 9]
    assert theirs.max_seq_length == 16
    ours = pipeline("sentence-embedding", tuned[1])(texts)
    np.testing.assert_allclose(theirs.encode(texts), ours, atol=1e-5)


# Evaluating and predicting


def test_evaluate_scores_the_finished_model_as_training_did(place, tuned):
    results, model = tuned
    assert evaluation.evaluator_class(model) is SentenceEmbeddingEvaluator
    scores = evaluation.evaluate(model, str(place / "dev.jsonl"), PAIRS, batch_size=16)
    assert scores.pop("examples") == 61
    assert scores == pytest.approx({name: results[f"eval/{name}"] for name in ("spearman", "pearson")})


@pytest.mark.parametrize("name", ["out.jsonl", "out.tsv"])
def test_predict_answers_every_row_in_its_order(place, tuned, tmp_path, monkeypatch, name):
    monkeypatch.setattr("bert_jax.evaluation.writing.CHUNK", 25)  # three parts, the last smaller
    rows = [json.loads(line) for line in (place / "dev.jsonl").read_text().splitlines()]
    count = evaluation.predict(tuned[1], str(place / "dev.jsonl"), tmp_path / name, Columns("a", "b"), batch_size=16)
    written = (tmp_path / name).read_text().splitlines()
    if name.endswith(".tsv"):
        assert written.pop(0) == "score"
        scores = [float(line) for line in written]
    else:
        answers = [json.loads(line) for line in written]
        assert [(answer["text"], answer["pair"]) for answer in answers] == [(row["a"], row["b"]) for row in rows]
        scores = [answer["score"] for answer in answers]
    assert count == len(scores) == 61
    alike = pipeline("similarity", tuned[1])
    np.testing.assert_allclose(scores, [alike(row["a"], row["b"]) for row in rows], atol=1e-5)


# What does not fit


@pytest.mark.parametrize(
    ("loss", "changes", "message"),
    [
        (
            "in_batch_negatives",
            {"accumulation_steps": 2, "distillation.teacher": "teacher", "distillation.weights.embeddings": 1.0},
            r"accumulation_steps: expected 1 .* with a teacher, .* found 2",
        ),
        ("in_batch_negatives", {"global_batch_size": 1}, r"global_batch_size: expected at least 2"),
        ("cosin", {}, r"data\.loss: 'cosin' is not known; did you mean 'cosine'"),
        ("cosine", {"data.label_scale": 0.0}, r"data\.label_scale: expected more than 0"),
        ("cosine", {"data.label_scale": 4.0}, r"train\.jsonl: line 2: expected a label from -4 to 4 .*, found 5"),
        ("cosine", {"data.label_column": ""}, r"data\.label_column: expected a column, which loss 'cosine' needs"),
        ("cosine", {"data.label_column": "a"}, r"train\.jsonl: line 1: expected a number as label, found"),
        ("cosine", {"data.label_column": "scores"}, r"expected a field 'scores'; did you mean 'score'"),
        ("cosine", {"data.metrics": ("mrr",)}, r"'mrr' is not a metric of pairs with labels"),
        ("triplet", {"data.negative_column": ""}, r"data\.negative_column: expected a column, which loss 'triplet'"),
        ("cosent", {"data.label_column": ""}, r"label_column: expected a column, which loss 'cosent' needs"),
        ("triplet", {"data.matryoshka_dims": (65,)}, r"matryoshka_dims: expected different numbers .*65"),
        ("triplet", {"data.matryoshka_dims": (4, 4)}, r"matryoshka_dims: expected different numbers"),
        (
            "triplet",
            {"data.matryoshka_dims": (4, 2), "data.matryoshka_weights": (1.0,)},
            r"matryoshka_weights: expected a weight for each of the 2 matryoshka_dims, found \(1\.0,\)",
        ),
        ("triplet", {"data.negative_columns": ("b", "a")}, r"negative_columns: expected \(\) with negative_column"),
        ("margin_mse", {"data.label_column": "score"}, r"negative_column: expected a column, which loss 'margin_mse'"),
        ("in_batch_negatives", {"data.guide": "x"}, r"guide_cache: expected a directory for the guide's embeddings"),
        ("cosine", {"data.guide": "x"}, r"data\.guide: expected loss 'in_batch_negatives' and no teacher, .*'cosine'"),
        ("simcse", {"data.validation_split": 0.1, "data.dev": ""}, r"validation_split: expected 0 for loss 'simcse'"),
        (
            "simcse",
            {"distillation.teacher": "x", "distillation.weights.embeddings": 1.0, "data.dev": ""},
            r"distillation\.teacher: expected none for loss 'simcse', found x",
        ),
        ("simcse", {"data.train_columns": ("a", "b")}, r"train_columns: expected one column for loss 'simcse'"),
        (
            "simcse",
            {"model.hidden_dropout_prob": 0.0, "model.attention_probs_dropout_prob": 0.0},
            r"hidden_dropout_prob: expected dropout above 0 for loss 'simcse', found 0",
        ),
        ("triplet", {"data.margin": 0.0}, r"data\.margin: expected more than 0"),
        ("triplet", {"data.distance": "manhattan"}, r"data\.distance: 'manhattan' is not known"),
        ("triplet", {"data.pair_column": ""}, r"data\.pair_column: expected a column"),
        ("triplet", {"data.train": ""}, r"config\.data\.train: expected a file"),
        ("triplet", {"data.max_seq_length": 64}, r"max_seq_length: expected at most the model's 32 positions"),
    ],
)
def test_recipes_that_do_not_fit(place, loss, changes, message):
    with pytest.raises(InputError, match=message):
        job(place, loss, **changes)


def test_one_row_has_no_negatives(place, tmp_path):
    row = (place / "train.jsonl").read_text().splitlines()[0]
    (tmp_path / "one.jsonl").write_text(row + "\n")
    with pytest.raises(InputError, match=r"one\.jsonl: expected at least 2 rows"):
        job(place, "in_batch_negatives", **{"data.train": str(tmp_path / "one.jsonl")})


def test_refused_by_evaluate_and_predict(place, tuned, tmp_path):
    dev = str(place / "dev.jsonl")
    with pytest.raises(InputError, match="expected a model for sentence_embedding, found one for encoder"):
        SentenceEmbeddingEvaluator(place / "encoder")
    with pytest.raises(InputError, match=r"line 1: expected a number as label, found '.*'"):
        evaluation.evaluate(tuned[1], dev, Columns("a", "b", "negative"))
    with pytest.raises(InputError, match="'mrr' is not a metric of pairs with labels"):
        evaluation.evaluate(tuned[1], dev, PAIRS, metric_names=("mrr",))
    with pytest.raises(InputError, match="expected labels of 0 and 1 for metrics with a threshold, found 5"):
        evaluation.evaluate(tuned[1], dev, PAIRS, metric_names=("accuracy",))
    with pytest.raises(InputError, match=r"expected a file named \.jsonl or \.tsv"):
        evaluation.predict(tuned[1], dev, tmp_path / "out.txt", PAIRS)
    with pytest.raises(InputError, match="expected a field 'c'"):
        evaluation.predict(tuned[1], dev, tmp_path / "out.tsv", Columns("a", "c"))
    assert not any(tmp_path.iterdir())


def test_real_pairs_are_read(shared_data, tiny_tokenizer):
    config = pathlib.Path(__file__).parents[3] / "configs" / "stsb_embedding.py"
    c = recipes.resolve(recipes.load_recipe(f"{config}:{shared_data / 'glue' / 'STS-B'}"))
    columns = Columns(c.data.text_column, c.data.pair_column, c.data.label_column)
    scale = c.data.label_scale
    rows = encode_pairs(tiny_tokenizer, read_pairs(c.data.dev, columns, scale), columns, 128, scale)
    assert len(rows) == 1500 and rows.size == 2 and rows.labels.max() == 1
