"""Lists of documents with scores: the losses against sentence-transformers, and dense models that learn from them."""

import importlib
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax import jobs, recipes
from bert_jax.data.finetuning.ranked_passages import MISSING
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained
from bert_jax.modeling.score_losses import SCORE_LOSSES, ScoreLoss
from bert_jax.tasks.embedding.dense.ranked_documents import RankedDocumentsTask
from bert_jax.tasks.embedding.sparse.task import SparseEmbeddingTask
from bert_jax.tasks.embedding.teacher_term import TeacherTerm
from bert_jax.training import train

ROWS, DOCUMENTS, SIZE = 5, 4, 12
TASKS = {"dense": RankedDocumentsTask, "sparse": SparseEmbeddingTask}


def given(cls, name, **options):
    """A task whose parameters are its embeddings `[B, 1 + K, D]`."""
    embed = {"embed": lambda self, params, batch, dropout_key: (params[:, 0], params[:, 1:])}
    return type("Given", (cls,), embed)(None, name, **options)


def batch(labels, real=ROWS):
    texts = np.zeros((ROWS, DOCUMENTS, 3), np.int32)
    names = ("query_ids", "query_mask", "query_scored", "input_ids", "attention_mask")
    weights = (np.arange(ROWS) < real).astype(np.float32)
    return dict.fromkeys(names, texts) | {"labels": labels, "example_weights": weights}


def vectors(seed=0):
    return np.maximum(np.random.default_rng(seed).normal(size=(ROWS, 1 + DOCUMENTS, SIZE)), 0)


def teachers(seed=1):
    return np.random.default_rng(seed).normal(0, 3, (ROWS, DOCUMENTS))


def loss_and_gradients(task, params, rows):
    def loss(params):
        return task.loss(params, rows, None, task.weights(rows))

    (value, metrics), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    return float(value), np.asarray(grads), {name: float(total / count) for name, (total, count) in metrics.items()}


@pytest.mark.oracle
@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize(
    ("name", "temperatures"),
    [("in_batch_negatives", ()), ("margin_mse", ()), ("kl_divergence", (1.0, None)), ("kl_divergence", (0.5, 2.0))],
)
@pytest.mark.parametrize("real", [ROWS, 3])
def test_the_losses_are_those_of_sentence_transformers(kind, name, temperatures, real):
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    package = "sentence_transformers.sentence_transformer.losses"
    losses = importlib.import_module(package if kind == "dense" else "sentence_transformers.sparse_encoder.losses")
    prefix, similarity = ("", "cos_sim") if kind == "dense" else ("Sparse", "dot_score")
    leaf = torch.tensor(vectors()[:real], requires_grad=True)
    columns, scores = [leaf[:, i] for i in range(1 + DOCUMENTS)], torch.tensor(teachers()[:real])
    match name:
        case "in_batch_negatives":
            score = getattr(importlib.import_module("sentence_transformers.util"), similarity)
            loss = getattr(losses, f"{prefix}MultipleNegativesRankingLoss")(None, scale=7.0, similarity_fct=score)
            expected = loss.compute_loss_from_embeddings(columns, None)
        case "margin_mse":
            expected = getattr(losses, f"{prefix}MarginMSELoss")(None).compute_loss_from_embeddings(columns, scores)
        case _:
            loss = getattr(losses, f"{prefix}DistillKLDivLoss")(
                None, student_temperature=temperatures[0], teacher_temperature=temperatures[1] or temperatures[0]
            )
            expected = loss.compute_loss_from_embeddings(columns, scores)
    expected.backward()
    options = dict(zip(("temperature", "teacher_temperature"), temperatures, strict=False))
    task = given(TASKS[kind], name, scale=7.0, **options)
    with jax.enable_x64():
        value, grads, metrics = loss_and_gradients(task, vectors(), batch(teachers(), real))
    assert value == pytest.approx(expected.item(), rel=1e-9)
    np.testing.assert_allclose(grads[:real], leaf.grad.numpy(), rtol=1e-7, atol=1e-10)
    assert not grads[real:].any()
    assert metrics["cross_entropy" if name == "in_batch_negatives" else name] == pytest.approx(value)


def test_mse_is_the_mean_over_documents():
    labels = teachers()
    labels[1:, 3] = labels[2, 1] = MISSING
    task = given(RankedDocumentsTask, "mse")
    value, grads, metrics = loss_and_gradients(task, vectors().astype(np.float32), batch(labels.astype(np.float32), 4))
    products = np.einsum("bd,bkd->bk", vectors()[:, 0], vectors()[:, 1:])
    kept = (labels > MISSING) & (np.arange(ROWS) < 4)[:, None]
    assert value == pytest.approx(np.square(products - labels)[kept].mean(), rel=1e-5) == metrics["mse"]
    assert not grads[:, 1:][~kept].any()


@pytest.mark.parametrize("name", SCORE_LOSSES)
def test_degenerate_lists_have_finite_gradients(name):
    """Equal scores, one document, and padding alone."""
    labels = np.zeros((ROWS, DOCUMENTS), np.float32)
    labels[1, 1:] = MISSING
    for params in (np.zeros((ROWS, 1 + DOCUMENTS, SIZE), np.float32), np.full((ROWS, 1 + DOCUMENTS, SIZE), 9.0)):
        value, grads, _ = loss_and_gradients(given(RankedDocumentsTask, name), params, batch(labels, 3))
        assert np.isfinite(value) and np.isfinite(grads).all() and not grads[3:].any()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SCORE_LOSSES)
@pytest.mark.parametrize("own", ["in_batch_negatives", "mse"])
def test_the_term_of_a_teacher_is_added(name, own):
    labels, params = np.eye(1, DOCUMENTS).repeat(ROWS, 0).astype(np.float32), vectors().astype(np.float32)
    labels[2, 3] = MISSING
    scores = {"teacher_scores": teachers().astype(np.float32)}

    def loss(name, labels, **options):
        task = given(RankedDocumentsTask, name, temperature=2.0, **options)
        return loss_and_gradients(task, params, batch(labels, 4) | scores)

    of_labels = loss(own, labels)[0]
    of_teacher = loss(name, np.where(labels > MISSING, scores["teacher_scores"], MISSING))[0]
    for weight in (0.0, 0.3):
        term = TeacherTerm(ScoreLoss(name, 2.0), 1.5, weight)
        value, _, metrics = loss(own, labels, teacher_term=term)
        assert value == pytest.approx(1.5 * of_teacher + weight * of_labels, rel=1e-5)
        assert metrics["soft_labels_loss"] == pytest.approx(of_teacher, rel=1e-5) and (len(metrics) > 1) == bool(weight)


def test_micro_batches_sum_to_the_loss_of_the_batch():
    labels = teachers().astype(np.float32)
    labels[1:, 3] = MISSING
    rows, params = batch(labels, 4) | {"teacher_scores": teachers(2).astype(np.float32)}, vectors().astype(np.float32)
    task = given(RankedDocumentsTask, "margin_mse", teacher_term=TeacherTerm(ScoreLoss("mse"), 0.5, 1.0))
    weights = task.weights(rows)
    parts = [
        task.loss(params[part], {name: value[part] for name, value in rows.items()}, None, weights)[0]
        for part in (slice(0, 2), slice(2, None))
    ]
    assert float(sum(parts)) == pytest.approx(float(task.loss(params, rows, None, weights)[0]), rel=1e-5)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, write_small):
    place = tmp_path_factory.mktemp("ranked")
    write_small(place / "start", "sentence_embedding")
    words = ["cat", "dog", "bird", "fish", "house", "tree", "river", "stone"]
    rows = [{"query": f"the {word}", "passages": [f"a big {word} sat.", f"{other} by day", "old time"][: 2 + i % 2],
             "scores": [5.0, -1.0, -5.0][: 2 + i % 2], "pair": f"a {word}"}
            for i, (word, other) in enumerate(zip(words * 8, (words[3:] + words[:3]) * 8, strict=True))]  # fmt: skip
    for name, part in (("train", rows), ("dev", rows[:8])):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    c = recipes.sentence_embedding()
    c.update_from_flattened_dict({
        "init_from": str(place / "start"), "data.train": str(place / "train.jsonl"), "data.text_column": "query",
        "data.dev": str(place / "dev.jsonl"), "data.passages_column": "passages", "data.label_column": "scores",
        "data.max_seq_length": 16, "global_batch_size": 8, "num_epochs": 6.0, "optimizer.learning_rate": 3e-3,
        "data.length_buckets": (16,), "data.loss": "kl_divergence", "model.normalize_embeddings": False,
    })  # fmt: skip
    return c


def changed(recipe, **keys):
    c = recipe.copy_and_resolve_references()
    with c.unlocked():
        c.update_from_flattened_dict({name.replace("__", "."): value for name, value in keys.items()})
    return c


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["in_batch_negatives", "margin_mse", "kl_divergence", "mse"])
def test_a_dense_model_learns_from_lists(recipe, tmp_path, loss):
    keys = {"data__label_column": ""} if loss == "in_batch_negatives" else {}
    results = train(changed(recipe, data__loss=loss, accumulation_steps=2, **keys), str(tmp_path / "run"))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["train/loss"] for line in lines if "train/loss" in line]
    assert losses[-1] < 0.6 * losses[0] and (loss != "in_batch_negatives" or results["eval/mrr"] > 0.8)
    model = from_pretrained(tmp_path / "run" / "model")
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer(str(tmp_path / "run/model"), device="cpu")
    texts = ["the bird", "a big bird sat."]
    np.testing.assert_allclose(model.encode(texts), theirs.encode(texts), atol=1e-5)


@pytest.mark.slow
def test_training_embeds_texts_as_inference_does(recipe, tmp_path):
    job = jobs.build(recipes.resolve(changed(recipe, num_steps=1)))
    params = jax.device_get(jax.jit(job.init_params)(jax.random.key(3)))
    job.save(tmp_path / "model", params)
    model, rows = from_pretrained(tmp_path / "model"), job.eval_source.batch(0)
    found = {name: np.asarray(value) for name, value in job.task.predict(params, rows).items()}
    for row, number in enumerate(job.eval_source.order[: len(rows["labels"])]):
        line = json.loads(Path(recipe.data.dev).read_text().splitlines()[number])
        np.testing.assert_allclose(found["queries"][row], model.encode_query(line["query"]), atol=1e-5)
        np.testing.assert_allclose(found["documents"][row, 0], model.encode_document(line["passages"][0]), atol=1e-5)


def test_a_plan_has_lists():
    c = recipes.sentence_embedding()
    c.num_steps, c.data.loss = 5, "kl_divergence"
    (stage,) = jobs.abstract_task(recipes.resolve(c)).stages
    assert stage.batch["labels"].shape == (32, 2)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"data__passages_column": ""}, "data.passages_column: expected a column, which loss 'kl_divergence' needs"),
        ({"data__loss": "cosine"}, "data.loss: expected one of in_batch_negatives, mse, margin_mse, kl_divergence for"),
        ({"data__matryoshka_dims": (8,)}, r"data.matryoshka_dims: expected \(\) with passages_column, found \(8,\)"),
        ({"data__guide": "x"}, "data.guide: expected '' with passages_column, found 'x'"),
        ({"data__label_column": ""}, "data.label_column: expected the column of a teacher's scores for loss 'kl_diver"),
        ({"data__label_column": "pair"}, "line 1: expected a list of 2 numbers in 'pair', found a cat"),
    ],
)  # fmt: skip
def test_recipes_that_do_not_fit(recipe, keys, message):
    with pytest.raises(InputError, match=message):
        jobs.build(recipes.resolve(changed(recipe, **keys)))
