"""Distillation from beginning to end: runs that are killed, students that come closer to their teacher, the verb."""

import json
import random
import shlex

import numpy as np
import pytest
from kill_moments import kill_moments
from small import STEPS, assert_alike, recipe, sentence, train_in_processes

from bert_jax import from_pretrained
from bert_jax.cli import main
from bert_jax.training.loop import train

TERMS = ("soft_labels", "hidden_states", "attentions", "relations")
SIZES = {"hidden_size": 24, "num_hidden_layers": 4, "intermediate_size": 48, "initializer_range": 0.3}


@pytest.fixture(scope="session")
def teachers(tmp_path_factory, write_small):
    """A classifier and an encoder, wider and deeper than the students."""
    root = tmp_path_factory.mktemp("teachers")
    write_small(root / "classifier", "sequence_classification", seed=1, id2label=("no", "yes"), **SIZES)
    write_small(root / "encoder", seed=2, **SIZES)
    return root


def distilling(data, teachers, task="classification", **changes):
    usual = {"distillation.teacher": str(teachers / "classifier"), "distillation.weights.labels": 0.5}
    return recipe(data, task, **(usual | changes))


@pytest.mark.slow  # test_killed_runs.py kills one with a cache
def test_killed_and_never_killed_end_alike(tmp_path, data, teachers):
    made = distilling(data, teachers, eval_every=0, **{f"distillation.weights.{term}": 1.0 for term in TERMS})
    train_in_processes(made, tmp_path / "whole", [{}])
    kills = sorted(kill_moments("distillation").sample(range(2, STEPS - 3), 3))
    train_in_processes(made, tmp_path / "killed", [*({"kill_at": step} for step in kills), {}])
    assert_alike(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.slow  # three runs
def test_a_resumed_run_with_another_teacher_is_refused(tmp_path, data, teachers, write_small, capsys):
    changes = {"distillation.weights.soft_labels": 1.0, "eval_every": 0, "num_steps": 2, "checkpoint_every": 1}
    made = distilling(data, teachers, **changes)
    train(made, tmp_path / "workdir", progress=False)
    write_small(tmp_path / "other", "sequence_classification", seed=9, id2label=("no", "yes"), **SIZES)
    made.distillation.teacher, made.num_steps = str(tmp_path / "other"), 4
    (tmp_path / "workdir" / "model" / "config.json").unlink()
    with pytest.raises(Exception, match="teacher: the run began with"):
        train(made, tmp_path / "workdir", progress=False)


def logits(model, texts):
    return from_pretrained(model)(texts).logits


@pytest.mark.slow
def test_a_student_of_soft_labels_alone_comes_closer_to_its_teacher(tmp_path, data, teachers):
    """From texts without labels: the divergence from the teacher on other texts is less than half of that at first."""
    rng = random.Random(1)
    (tmp_path / "texts.tsv").write_text("sentence\n" + "".join(f"{sentence(rng)}\n" for _ in range(400)))
    held, found = [sentence(rng) for _ in range(64)], []
    for steps in (1, 100):
        changes = {
            "distillation.weights.soft_labels": 1.0, "distillation.weights.labels": 0.0, "eval_every": 0,
            "data.train": str(tmp_path / "texts.tsv"), "data.dev": "", "num_steps": steps, "checkpoint_every": 0,
            "data.length_buckets": (16,), "accumulation_steps": 1, "global_batch_size": 32,
            "optimizer.bias_correction": True,
        }  # fmt: skip
        train(distilling(data, teachers, **changes), tmp_path / str(steps), progress=False)
        student = from_pretrained(tmp_path / str(steps) / "model")
        assert student.config.label_names == ("no", "yes") and student.config.hidden_size == 16
        ours, theirs = logits(tmp_path / str(steps) / "model", held), logits(teachers / "classifier", held)
        difference = ours[:, 1] - ours[:, 0] - (theirs[:, 1] - theirs[:, 0])
        found.append(float(np.mean(np.square(difference))))
    assert found[1] < 0.7 * found[0]


@pytest.mark.slow  # docs/distillation.md runs it too
def test_vectors_from_plain_text_by_the_verb(tmp_path, data, teachers, monkeypatch, capsys):
    """One column of texts is enough; a student of fewer dimensions learns the cosines between its teacher's vectors."""
    rng = random.Random(2)
    (tmp_path / "texts.tsv").write_text("text\n" + "".join(f"{sentence(rng)}\n" for _ in range(1000)))
    monkeypatch.chdir(tmp_path)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
             "max_position_embeddings": 32}  # fmt: skip
    keys = {f"model.{name}": value for name, value in sizes.items()} | {
        "distillation.teacher": teachers / "encoder", "distillation.student_layers": "()",
        "distillation.embedding_distance": "similarities", "data.max_seq_length": 32, "data.length_buckets": "(16,)",
        "global_batch_size": 32, "optimizer.learning_rate": 5e-3, "log_every": 1, "num_epochs": 0.0,
    }  # fmt: skip
    given = " ".join(shlex.quote(f"--config.{name}={value}") for name, value in keys.items())
    held, found = [sentence(rng) for _ in range(32)], []
    for steps in (1, 150):
        verb = f"distill --config distil_text:texts.tsv,text --workdir {steps} --quiet"
        assert main(shlex.split(f"{verb} --config.num_steps={steps} {given}")) == 0, capsys.readouterr().err
        teacher = from_pretrained(teachers / "encoder", head="sentence_embedding")
        models = (from_pretrained(f"{steps}/model"), teacher)
        vectors = [model.encode(held, normalize_embeddings=True) for model in models]
        assert vectors[0].shape == (32, 16)
        found.append(float(np.mean(np.square(vectors[0] @ vectors[0].T - vectors[1] @ vectors[1].T))))
    lines = [json.loads(line) for line in (tmp_path / "150" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["train/embeddings_loss"] < lines[0]["train/embeddings_loss"]
    assert found[1] < 0.7 * found[0]


def test_the_verb_needs_a_teacher(capsys):
    assert main(["distill", "--config", "distil_sst2", "--workdir", "nowhere"]) == 2
    expected = "config.distillation.teacher: expected the model directory of a teacher, found none"
    assert expected in capsys.readouterr().err


@pytest.mark.slow
def test_relations_are_learned_in_pretraining(tmp_path, data, teachers):
    """General distillation: a student of another width and number of heads, on prepared text without labels."""
    changes = {
        "distillation.teacher": str(teachers / "encoder"), "distillation.weights.labels": 0.0,
        "distillation.weights.relations": 1.0, "distillation.relation_heads": 8, "model.num_attention_heads": 4,
        "stages": (), "num_steps": 40, "global_batch_size": 16, "data.sequence_length": 32, "best_metric": "",
        "eval_every": 0, "log_every": 5, "optimizer.bias_correction": True, "checkpoint_every": 0,
        "data.mask_replace_prob": 0.0, "data.random_replace_prob": 0.0,
    }  # fmt: skip
    train(distilling(data, teachers, "pretraining", **changes), tmp_path / "workdir", progress=False)
    lines = [json.loads(line) for line in (tmp_path / "workdir" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["train/relations_loss"] for line in lines if "train/relations_loss" in line]
    assert losses[-1] < 0.7 * losses[0]
