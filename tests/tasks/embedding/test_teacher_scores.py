"""A teacher's scores for the lists of dense, sparse and multi-vector models: what they are, the cache, and refusals."""

import json

import jax
import numpy as np
import pytest

from bert_jax import from_pretrained, jobs, recipes
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.tasks.embedding import teacher_scores
from bert_jax.training.loop import train

WORDS = ("cat", "dog", "bird", "fish", "house", "tree", "river", "stone")
ROWS = [
    {"query": f"the {word}", "passages": [f"a big {word} sat", f"a {other} by day", "old time"][: 2 + i % 2]}
    for i, (word, other) in enumerate(zip(WORDS, WORDS[3:] + WORDS[:3], strict=True))
]


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("scores")
    (root / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    write_small(root / "cross_encoder", "sequence_classification", num_labels=1, pooler=True, initializer_range=0.9)
    write_small(root / "dense", "sentence_embedding", initializer_range=0.5)
    write_small(root / "sparse", "sparse_embedding", initializer_range=0.5, pooling="splade_max")
    write_small(root / "tags", "token_classification")
    write_small(root / "start", "masked_lm")
    return root


def recipe(place, task="sentence_embedding", teacher="cross_encoder", cache="", **changes):
    c = recipes.RECIPES[task]()
    c.init_from, c.data.train = str(place / "start"), str(place / "train.jsonl")
    c.data.text_column, c.data.passages_column, c.data.max_seq_length = "query", "passages", 16
    c.data.length_buckets, c.global_batch_size, c.num_steps, c.num_epochs = (16,), 4, 2, 0.0
    c.distillation.teacher, c.distillation.weights.soft_labels = str(place / teacher), 1.0
    c.distillation.cache = str(cache)
    c.update_from_flattened_dict(changes)
    return recipes.resolve(c)


def scores_of(job):
    """The query and scores of each row, in the order of the training batches."""
    found = {}
    for step in range(2):
        batch = job.train_source.batch(step)
        for ids, labels, row in zip(batch["query_ids"], batch["labels"], batch["teacher_scores"], strict=True):
            found[job.tokenizer.decode(ids, skip_special_tokens=True)] = row[np.isfinite(labels)]
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("teacher", ["cross_encoder", "dense", "sparse"])
def test_the_scores_are_those_of_the_teacher(place, tmp_path, teacher):
    found = scores_of(jobs.build(recipe(place, teacher=teacher, cache=tmp_path)))
    assert len(found) == len(ROWS)
    if teacher == "cross_encoder":
        rerank = pipeline("rerank", place / teacher)
        expected = {row["query"]: rerank.logits([row["query"]] * len(row["passages"]), row["passages"]) for row in ROWS}
    else:
        model = from_pretrained(place / teacher)
        expected = {
            row["query"]: model.similarity(model.encode_query([row["query"]]), model.encode_document(row["passages"]))[
                0
            ]
            for row in ROWS
        }
    for query, scores in expected.items():
        np.testing.assert_allclose(found[query], scores, atol=1e-5)


@pytest.mark.slow
def test_a_multi_vector_teacher(place, tmp_path):
    c = recipe(place, "multi_vector", cache=tmp_path / "first", **{"data.query_length": 8, "data.token_dim": 8})
    train(c, tmp_path / "run", progress=False)
    found = scores_of(jobs.build(recipe(place, teacher=tmp_path / "run" / "model", cache=tmp_path / "second")))
    model = from_pretrained(tmp_path / "run" / "model")
    for row in ROWS:
        expected = model.similarity(model.encode_query([row["query"]]), model.encode_document(row["passages"]))[0]
        np.testing.assert_allclose(found[row["query"]], expected, atol=1e-4)


def test_an_interrupted_cache_is_completed_and_a_complete_one_read(place, tmp_path, monkeypatch):
    monkeypatch.setattr(teacher_scores, "_ROWS", 3)
    computed, logits = [], teacher_scores._logits
    monkeypatch.setattr(teacher_scores, "_logits", lambda *given: computed.append(1) or logits(*given))
    first = scores_of(jobs.build(recipe(place, cache=tmp_path)))
    (home,) = tmp_path.iterdir()
    assert len(computed) == 3
    (home / "manifest.json").unlink()
    (home / "outputs-00001.npy").unlink()  # as after a kill
    again = scores_of(jobs.build(recipe(place, "sparse_embedding", cache=tmp_path)))  # another student, the same texts
    assert len(computed) == 4 and len(list(tmp_path.iterdir())) == 1
    for query, scores in first.items():
        np.testing.assert_array_equal(again[query], scores)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("task", ["sentence_embedding", "sparse_embedding", "multi_vector"])
def test_a_plan_computes_no_scores(place, tmp_path, task):
    c = recipe(place, task, cache=tmp_path / "cache")
    (stage,) = jobs.abstract_task(c).stages
    assert stage.batch["teacher_scores"].shape == (4, 3) and not (tmp_path / "cache").exists()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["sentence_embedding", "sparse_embedding", "multi_vector"])
@pytest.mark.parametrize("labels", [0.0, 1.0])
def test_students_learn_the_scores(place, tmp_path, task, labels):
    keys = {"distillation.weights.labels": labels, "distillation.score_loss": "kl_divergence", "num_steps": 40,
            "optimizer.learning_rate": 3e-3, "global_batch_size": 8}  # fmt: skip
    c = recipe(place, task, cache=tmp_path / "cache", **keys)
    train(c, tmp_path / "run", progress=False)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    name = "train/cross_entropy" if labels else "train/soft_labels_loss"
    losses = [line[name] for line in lines if name in line]
    assert losses[-1] < 0.6 * losses[0] and any("train/cross_entropy" in line for line in lines) == bool(labels)
    assert from_pretrained(tmp_path / "run" / "model").missing == ()


@pytest.mark.slow
def test_a_student_of_layers_of_an_embedding_model(place, tmp_path, write_small):
    write_small(tmp_path / "teacher", "sentence_embedding", num_hidden_layers=4)
    keys = {"init_from": "", "distillation.student_layers": (1, 3)}
    job = jobs.build(recipe(place, teacher=tmp_path / "teacher", cache=tmp_path / "cache", **keys))
    assert job.task.model.config.num_hidden_layers == 2
    teacher = from_pretrained(tmp_path / "teacher").params["encoder"]["layers"]
    jax.tree.map(
        lambda ours, theirs: np.testing.assert_array_equal(ours, theirs[np.array([1, 3])]),
        job.pretrained["encoder"]["layers"], jax.tree.map(np.asarray, teacher),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("teacher", "changes", "message"),
    [
        (
            "cross_encoder",
            {"distillation.cache": ""},
            "cache: expected a directory for the teacher's scores",
        ),
        (
            "cross_encoder",
            {"distillation.weights.hidden_states": 1.0},
            "expected soft_labels as the only term",
        ),
        (
            "cross_encoder",
            {"init_from": "", "distillation.student_layers": (0,)},
            r"student_layers: expected \(\) for",
        ),
        (
            "tags",
            {},
            "expected a cross-encoder or a model of embeddings, found one of head 'token",
        ),
    ],
)
def test_teachers_that_do_not_fit(place, tmp_path, teacher, changes, message):
    with pytest.raises(InputError, match=message):
        jobs.build(recipe(place, teacher=teacher, cache=tmp_path, **changes))
