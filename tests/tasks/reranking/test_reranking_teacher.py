"""Rerankers that learn from the logits of a teacher: in every step, from a cache, and from some of its layers."""

import json
import pathlib

import jax
import numpy as np
import pytest
from random_models import write_model

from bert_jax import BertConfig, jobs, recipes
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.tokenization import word_piece
from bert_jax.training.loop import steps, train

QUERIES = ("the cat", "a dog runs", "the bird", "old fish")
PASSAGES = ("a cat sat on a red house", "the old dog", "birds eat", "two fish", "a river by day", "the time")


def lists(seed=0, rows=12):
    rng = np.random.default_rng(seed)
    found = []
    for i in range(rows):
        count = int(rng.integers(2, 4))
        found.append({"query": QUERIES[i % 4], "passages": rng.permutation(PASSAGES)[:count].tolist(),
                      "labels": [1] + [0] * (count - 1)})  # fmt: skip
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small, tiny_vocab):
    root = tmp_path_factory.mktemp("teacher")
    for name in ("train", "dev"):
        rows = lists(seed=len(name))
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = {"num_hidden_layers": 4, "initializer_range": 0.5, "pooler": True, "seed": 3}
    write_small(root / "teacher", "sequence_classification", num_labels=1, **fields)
    write_small(root / "classes", "sequence_classification", id2label=("relevant", "irrelevant"), **fields)
    write_small(root / "three", "sequence_classification", num_labels=3, **fields)
    write_small(root / "encoder", num_hidden_layers=2)
    other = word_piece(tuple(reversed(tiny_vocab)), lowercase=True)
    config = BertConfig(vocab_size=other.vocab_size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=32, max_position_embeddings=32, initializer_range=0.5, num_labels=1,
                        pad_token_id=other.pad_id)  # fmt: skip
    write_model(root / "other_vocabulary", config, "sequence_classification", other)
    return root


def recipe(place, teacher="teacher", **changes):
    c = recipes.reranking()
    c.data.train, c.data.dev = str(place / "train.jsonl"), str(place / "dev.jsonl")
    c.data.passages_column, c.data.label_column, c.data.loss = "passages", "labels", "list_net"
    c.data.max_seq_length, c.data.length_buckets, c.global_batch_size, c.num_steps = 24, (24,), 4, 3
    c.num_epochs = 0.0
    c.distillation.teacher, c.distillation.weights.soft_labels = str(place / teacher), 1.0
    if "distillation.student_layers" not in changes and "init_from" not in changes:
        c.init_from = str(place / "encoder")
    c.update_from_flattened_dict(changes)
    return recipes.resolve(c)


def loss_of(job, params, batch):
    loss, metrics = jax.jit(job.task.loss)(params, batch, None, job.task.weights(batch))
    return float(loss), {name: float(total / count) for name, (total, count) in metrics.items()}


def text_of(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("loss", ["mse", "margin_mse", "kl_divergence"])
def test_a_teacher_that_runs_and_its_cache_give_one_loss(place, tmp_path, loss):
    keys = {"distillation.score_loss": loss, "distillation.weights.labels": 0.5, "distillation.temperature": 2.0}
    running, cached = (
        jobs.build(recipe(place, **keys, **{"distillation.cache": cache})) for cache in ("", str(tmp_path))
    )
    params = running.init_params(jax.random.key(0)) | {"teacher": running.pretrained["teacher"]}
    batches = [job.train_source.batch(0) for job in (running, cached)]
    assert batches[1]["teacher_outputs"].shape == (4, 3, 1) and not np.isfinite(batches[1]["labels"]).all()
    found = [loss_of(running, params, batches[0]), loss_of(cached, {"student": params["student"]}, batches[1])]
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    metrics = found[0][1]
    expected = 0.5 * metrics["list_net_loss"] + metrics["soft_labels_loss"]
    assert found[0][0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("teacher", ["classes", "teacher", "other_vocabulary"])
def test_the_scores_are_the_logits_of_the_teacher(place, tmp_path, teacher):
    job = jobs.build(recipe(place, teacher, **{"distillation.cache": str(tmp_path)}))
    rerank, rows = pipeline("rerank", place / teacher), {}
    for row in lists(seed=5):
        for passage in row["passages"]:
            rows[f"{row['query']} {passage}"] = (row["query"], passage)
    for step in range(3):
        batch = job.train_source.batch(step)
        theirs = batch["teacher_outputs"]
        scores = theirs[..., 0] - theirs[..., 1] if teacher == "classes" else theirs[..., 0]
        for i, j in np.argwhere(np.isfinite(batch["labels"])):
            query, passage = rows[text_of(job.tokenizer, batch["input_ids"][i, j])]
            assert scores[i, j] == pytest.approx(rerank.logits([query], [passage])[0], abs=1e-5)
            expected = 1 / (1 + np.exp(-scores[i, j]))
            assert rerank.relevance([query], [passage])[0] == pytest.approx(expected, abs=1e-5)
    assert job.task.task.teacher_match == 0


@pytest.mark.slow
def test_padding_passages_have_no_part_in_terms_of_tokens(place):
    keys = {"distillation.weights.hidden_states": 1.0, "distillation.weights.relations": 1.0}
    job = jobs.build(recipe(place, **keys))
    params = job.init_params(jax.random.key(0)) | {"teacher": job.pretrained["teacher"]}
    batch = job.train_source.batch(0)
    assert not np.isfinite(batch["labels"]).all()
    ids = np.where(np.isfinite(batch["labels"])[..., None], batch["input_ids"], batch["input_ids"] * 0 + 7)
    found = [loss_of(job, params, given) for given in (batch, batch | {"input_ids": ids})]
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-6)


@pytest.mark.slow
def test_a_student_of_layers_has_the_head_of_its_teacher(place, tmp_path):
    job = jobs.build(recipe(place, **{"distillation.student_layers": (1, 3)}))
    teacher = load_pretrained(place / "teacher", "sequence_classification").params
    student = job.pretrained["student"]
    assert job.task.model.config.num_hidden_layers == 2
    for name in ("embeddings", "pooler", "classifier"):
        jax.tree.map(np.testing.assert_array_equal, student[name], teacher[name])
    jax.tree.map(
        lambda ours, theirs: np.testing.assert_array_equal(ours, theirs[[1, 3]]),
        student["encoder"]["layers"], teacher["encoder"]["layers"],
    )  # fmt: skip
    job.save(tmp_path / "model", jax.tree.map(np.asarray, job.pretrained))
    reranker = pipeline("rerank", tmp_path / "model")
    assert reranker.model.missing == () and reranker.model.config.num_hidden_layers == 2
    theirs = pytest.importorskip("sentence_transformers").CrossEncoder(str(tmp_path / "model"), device="cpu")
    pairs = [(query, passage) for query in QUERIES for passage in PASSAGES]
    np.testing.assert_allclose(theirs.predict(pairs), reranker.predict(pairs), atol=1e-5)


@pytest.mark.slow
def test_lists_without_labels_have_a_teacher(place, tmp_path):
    rows = [{"query": row["query"], "passages": row["passages"]} for row in lists()]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    keys = {"distillation.weights.labels": 0.0, "data.train": str(tmp_path / "rows.jsonl")}
    job = jobs.build(recipe(place, **keys))
    params = job.init_params(jax.random.key(0)) | {"teacher": job.pretrained["teacher"]}
    loss, metrics = loss_of(job, params, job.train_source.batch(0))
    assert metrics == {"soft_labels_loss": pytest.approx(loss)} and job.eval_source.num_batches


@pytest.mark.slow
def test_a_plan_has_the_shapes_of_the_job(place, tmp_path):
    c = recipe(place, **{"distillation.cache": str(tmp_path / "cache")})
    abstract = jobs.abstract_task(c)
    assert not (tmp_path / "cache").exists()
    assert abstract.stages[0].batch["teacher_outputs"].shape == (4, 3, 1)
    c = recipe(place, **{"data.train": "", "distillation.cache": str(tmp_path / "cache")})
    assert jobs.abstract_task(c).stages[0].batch["teacher_outputs"].shape == (4, 2, 1)


@pytest.mark.slow
def test_a_distillation_that_is_left_early_resumes_to_the_bit(place, tmp_path):
    keys = {"distillation.cache": str(tmp_path / "cache"), "num_steps": 6, "optimizer.learning_rate": 1e-3}
    train(recipe(place, **keys), tmp_path / "whole", progress=False)
    for _ in zip(range(3), steps(recipe(place, **keys), tmp_path / "parts", progress=False), strict=False):
        pass
    train(recipe(place, **keys), tmp_path / "parts", progress=False)
    found = [load_pretrained(tmp_path / name / "model").params for name in ("whole", "parts")]
    jax.tree.map(np.testing.assert_array_equal, *found)


@pytest.mark.slow
def test_a_student_learns_the_order_of_its_teacher(place, tmp_path):
    c = recipe(place, **{"distillation.student_layers": (0, 1), "distillation.weights.labels": 0.0, "num_steps": 60,
                         "optimizer.learning_rate": 2e-3, "distillation.score_loss": "kl_divergence"})  # fmt: skip
    train(c, tmp_path / "run", progress=False)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["train/soft_labels_loss"] for line in lines if "train/soft_labels_loss" in line]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.slow
def test_a_batch_has_one_loss_on_any_mesh_and_in_any_number_of_parts(on_eight_devices):
    found = on_eight_devices(pathlib.Path(__file__).with_name("reranking_teacher_meshes.py"))
    for name, (values, apart) in found.items():
        assert values == pytest.approx([values[0]] * len(values), rel=1e-5), name
        assert max(apart) < 1e-4, name


@pytest.mark.parametrize(
    ("teacher", "changes", "message"),
    [
        ("three", {}, r"distillation.teacher: expected a teacher with one output or two classes, found one of 3"),
        ("encoder", {}, "expected a model with a trained sequence_classification head, found "),
        ("other_vocabulary", {}, "expected the student's vocabulary of "),
        ("teacher", {"distillation.score_loss": "mean"}, "distillation.score_loss: 'mean' is not known"),
        ("teacher", {"data.label_column": ""}, "data.label_column: expected a column, or columns of negatives, found"),
        ("teacher", {"distillation.weights.embeddings": 1.0}, "weights.embeddings: expected 0 for head 'sequence_cl"),
    ],
)
def test_teachers_that_do_not_fit(place, teacher, changes, message):
    with pytest.raises(InputError, match=message):
        jobs.build(recipe(place, teacher, **changes))
