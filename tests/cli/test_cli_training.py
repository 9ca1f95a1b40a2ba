"""The command line's whole road: a vocabulary, prepared text, pretraining, fine-tuning, questions."""

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.training import loop

SUBJECTS = ["the cat", "a dog", "my film", "this book", "the song"]
GOOD, BAD = ["good", "funny", "bright", "warm"], ["bad", "dull", "grey", "cold"]

PRETRAIN = """
from bert_jax import recipes

def get_config(steps="2"):
    c = recipes.pretraining()
    c.num_steps = int(steps)
    c.optimizer.warmup_steps = 1
    c.global_batch_size = 8
    c.data.sequence_length = 32
    c.model.size = "tiny"
    c.model.hidden_size, c.model.intermediate_size, c.model.max_position_embeddings = 16, 32, 32
    return c
"""
FINETUNE = """
from bert_jax import recipes

def get_config():
    c = recipes.classification()
    c.num_steps = 2
    c.global_batch_size = 8
    c.data.max_seq_length, c.data.length_buckets = 16, (16,)
    return c
"""


def run(line):
    """The exit status of a command line."""
    return main(shlex.split(line))


def sentence(rng):
    label = rng.choice(["pos", "neg"])
    words = [rng.choice(GOOD if label == "pos" else BAD) for _ in range(3)]
    return f"{rng.choice(SUBJECTS)} was {words[0]}, {words[1]} and {words[2]}.", label


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a corpus, a labelled table, two recipes, and all that leads up to a pretrained model."""
    root = tmp_path_factory.mktemp("road")
    rng = random.Random(0)
    documents = ["\n".join(sentence(rng)[0] for _ in range(8)) for _ in range(60)]
    (root / "corpus.txt").write_text("\n\n".join(documents))
    rows = [sentence(rng) for _ in range(40)]
    (root / "table.tsv").write_text("sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    (root / "pretrain.py").write_text(PRETRAIN)
    (root / "finetune.py").write_text(FINETUNE)
    before = os.getcwd()
    os.chdir(root)
    yield root
    os.chdir(before)


@pytest.fixture(scope="module")
def prepared(place):
    assert run("train-tokenizer corpus.txt --vocab-size 120 --out tokenizer") == 0
    flags = "--tokenizer tokenizer --out prepared --max-seq-length 32 --validation-fraction 0.1 --num-workers 1"
    assert run(f"prepare corpus.txt {flags}") == 0
    return place / "prepared"


@pytest.fixture(scope="module")
def pretrained(place, prepared):
    trace = "--config.profile=(2,1)"
    assert (
        run(f"pretrain --config pretrain.py --workdir pretrained --config.data.prepared=prepared --quiet '{trace}'")
        == 0
    )
    return place / "pretrained" / "model"


def refused(capsys, command):
    capsys.readouterr()
    assert run(command) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    return captured.err


def test_pretraining_leaves_a_model_that_fills_masks(pretrained, place, capsys):
    assert load_pretrained(pretrained).head == "pretraining"
    left = {path.name for path in (place / "pretrained").iterdir()}
    assert left >= {"config.json", "checkpoints", "metrics.jsonl", "model", "profile"}
    assert list((place / "pretrained" / "profile").rglob("*.xplane.pb"))
    assert main(["fill-mask", str(pretrained), "the [MASK] was good.", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["masks"][0]) == 5


@pytest.mark.parametrize(
    ("objective", "head"),
    [
        pytest.param("mlm", "masked_lm", marks=pytest.mark.slow),
        pytest.param("sop", "pretraining", marks=pytest.mark.slow),
        pytest.param("nsp --pack", "pretraining", marks=pytest.mark.slow),
    ],
)
def test_other_examples(prepared, place, objective, head, capsys):
    flags = f"--objective {objective} --tokenizer tokenizer --max-seq-length 32 --validation-fraction 0.1"
    objective = objective.removesuffix(" --pack")
    assert run(f"prepare corpus.txt {flags} --out {objective} --num-workers 1") == 0
    command = f"pretrain --config pretrain.py --workdir run-{objective} --config.data.prepared={objective} --quiet"
    capsys.readouterr()
    assert run(command) == 0
    shown = capsys.readouterr().out
    assert "eval/mlm_loss" in shown
    assert "train/packing" in (place / f"run-{objective}" / "metrics.jsonl").read_text()
    assert {name for name in ("nsp", "sop") if f"eval/{name}_accuracy" in shown} == {objective} - {"mlm"}
    assert load_pretrained(place / f"run-{objective}" / "model").head == head


def test_stages_of_different_objectives(prepared, place, capsys):
    flags = "--tokenizer tokenizer --max-seq-length 16 --validation-fraction 0.1 --num-workers 1"
    for length, objective in ((16, "mlm"), (32, "nsp")):
        out = f"staged-{length}"
        assert run(f"prepare corpus.txt {flags} --objective {objective} --max-seq-length {length} --out {out}") == 0
    stages = "--config.stages=((1, 16, 8), (1, 32, 8))"
    data = "--config.data.prepared=staged-{sequence_length}"
    message = refused(capsys, f"pretrain --config pretrain.py --workdir refused '{stages}' {data}")
    assert "staged-32: expected objective mlm, as in staged-16, found nsp" in message


def test_finetuning_starts_from_it_and_is_scored(pretrained, capsys):
    data = "--config.data.train=table.tsv --config.data.dev table.tsv"
    finetune = f"finetune --config finetune.py --workdir tuned --config.init_from={pretrained} {data} --quiet"
    assert run(finetune) == 0
    assert "eval/accuracy" in capsys.readouterr().out
    assert run("evaluate --model tuned/model --data table.tsv --json") == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 40
    assert main(["classify", "tuned/model", "the cat was good"]) == 0
    assert "pos" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("--config.optimizer.learnig_rate=1", "learnig_rate"),
        ("--config.optimizer.learnig_rate=1", "did you mean 'learning_rate'?"),
        ("--config.num_steps=many", "expected int, found 'many'"),
        ("--config.optimizer=1", "expected one of its keys"),
        ("--config.mesh.tensor=3", "3"),
        ("--config.data.prepared=nowhere", "nowhere"),
        ("--config.data.sequence_length=512", "512"),
        ("--config.seed", "expected --config.KEY=VALUE"),
        ("--coordinator here:1", "--num-processes and --process-id are needed together"),
        ("--coordinator here:1 --num-processes 2 --process-id 2", "--process-id must be in [0, 2)"),
    ],
)
def test_a_recipe_that_does_not_fit_starts_nothing(prepared, place, change, message, capsys):
    command = f"pretrain --config pretrain.py --workdir refused --config.data.prepared=prepared {change}"
    assert message in refused(capsys, command)
    assert not (place / "refused").exists()


def test_each_verb_takes_only_its_own_recipes(place, capsys):
    assert "run it with `bert-jax finetune`" in refused(capsys, "pretrain --config finetune.py --workdir refused")
    assert "run it with `bert-jax pretrain`" in refused(capsys, "finetune --config pretrain.py --workdir refused")


def test_a_workdir_belongs_to_one_config(pretrained, capsys):
    command = "pretrain --config pretrain.py:2 --workdir pretrained --config.data.prepared=prepared --config.seed=3"
    assert "seed was 0, is now 3; use another --workdir, or set it back" in refused(capsys, command)


def test_a_run_that_diverges_says_so_and_leaves_the_batch(prepared, place, capsys):
    rate = "--config.optimizer.learning_rate=1e30 --config.optimizer.warmup_steps=0 --config.max_skipped_steps=2"
    flags = f"--config.data.prepared=prepared {rate} --quiet"
    message = refused(capsys, f"pretrain --config pretrain.py:9 --workdir diverged {flags}")
    assert message.startswith("bert-jax: step 4: loss or gradient is not finite, as in the 2 steps before; its batch")
    assert np.load(place / "diverged" / "batch-4.npz")["input_ids"].shape == (8, 32)
    assert not (place / "diverged" / "model").exists()


def test_an_interrupted_run_is_saved_and_told_how_to_resume(prepared, place):
    command = "pretrain --config pretrain.py:100000 --workdir stopped --config.data.prepared=prepared --quiet"
    command += " --config.log_every=1"
    process = subprocess.Popen(
        [sys.executable, "-m", "bert_jax", *command.split()],
        stderr=subprocess.PIPE,
        text=True,
        cwd=place,
    )
    metrics = place / "stopped" / "metrics.jsonl"
    for _ in range(1200):
        if metrics.exists() and metrics.read_text().count("\n") > 3:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=300)
    (step,) = (path.name for path in (place / "stopped" / "checkpoints").iterdir() if path.name.isdigit())
    said = f"bert-jax: interrupted; step {step} is saved; resume with: bert-jax {command}"
    assert (process.returncode, process.stderr.read().splitlines()[-1]) == (130, said)
    assert json.loads(metrics.read_text().splitlines()[-1])["step"] == int(step)
    assert not (place / "stopped" / "model").exists()


@pytest.mark.parametrize(
    ("flags", "joined"),
    [
        ("", []),
        ("--distributed", [(None, None, None)]),  # JAX finds the others on Cloud TPU, Slurm and Open MPI
        ("--coordinator here:1 --num-processes 2 --process-id 1", [("here:1", 2, 1)]),
    ],
)
def test_hosts_are_joined_before_anything_is_computed(prepared, flags, joined, monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *given: calls.append(given))
    monkeypatch.setattr(loop, "train", lambda *_, **__: {"train/loss": len(calls)})
    assert run(f"pretrain --config pretrain.py --workdir joined {flags}") == 0
    assert calls == joined
    assert capsys.readouterr().out == f"joined: train/loss {len(joined)}\n"


def test_hosts_that_cannot_be_found_are_one_line(prepared, capsys, monkeypatch):
    def fail(*_):
        raise RuntimeError("no cluster environment\nwas detected")

    monkeypatch.setattr(jax.distributed, "initialize", fail)
    message = refused(capsys, "pretrain --config pretrain.py --workdir joined --distributed")
    assert "could not join the other hosts: no cluster environment" in message
