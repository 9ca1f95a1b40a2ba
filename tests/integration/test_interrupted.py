"""Ctrl-C at any moment of a run: what it learned is saved, the same call resumes, and it ends as if undisturbed."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from kill_moments import kill_moments
from small import metrics_of, recipe

from bert_jax import jobs, recipes
from bert_jax.jobs import setup
from bert_jax.tasks.classification.task import ClassificationTask
from bert_jax.training import loop
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.loop import Interrupted, train


def small(data, **changes):
    few = {"num_steps": 4, "checkpoint_every": 0, "eval_every": 2, "data.length_buckets": (16,), "log_every": 1,
           "accumulation_steps": 1, "best_metric": "accuracy", "model.num_hidden_layers": 1}  # fmt: skip
    return recipe(data, "classification", **(few | changes))


@pytest.fixture(scope="module")
def whole(tmp_path_factory, data):
    workdir = tmp_path_factory.mktemp("whole") / "workdir"
    train(small(data), workdir, progress=False)
    return workdir


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("owner", "function", "saved"),
    [
        (jobs, "build", None),  # reads the data
        pytest.param(loop, "initial_state", None, marks=pytest.mark.slow),
        (ClassificationTask, "score", 3),  # after step 2: noted, and answered after the next step
        (Checkpoints, "save", 3),
        pytest.param(loop, "write_report", 4, marks=pytest.mark.slow),  # of the finished run
        (setup, "save_pretrained", 4),
    ],
)
def test_interrupted_at_a_moment_it_ends_as_if_it_never_was(tmp_path, data, whole, owner, function, saved, monkeypatch):
    original = getattr(owner, function)

    def interrupted(*given, **named):
        monkeypatch.undo()
        os.kill(os.getpid(), signal.SIGINT)
        return original(*given, **named)

    monkeypatch.setattr(owner, function, interrupted)
    workdir = tmp_path / "workdir"
    with pytest.raises(Interrupted):
        train(small(data), workdir, progress=False)
    assert not (workdir / "model").exists()
    steps = [int(path.name) for path in (workdir / "checkpoints").glob("[0-9]*")]
    assert max(steps, default=None) == saved
    train(small(data), workdir, progress=False)
    assert metrics_of(whole) == metrics_of(workdir)
    weights = [(place / "model" / "model.safetensors").read_bytes() for place in (whole, workdir)]
    assert weights[0] == weights[1]


def test_a_run_killed_after_its_last_save_deletes_older_checkpoints_when_it_resumes(tmp_path, data, whole):
    workdir = tmp_path / "workdir"
    shutil.copytree(whole, workdir)
    shutil.rmtree(workdir / "model")
    before = sorted(path.name for path in (workdir / "checkpoints").iterdir())
    train(small(data, keep_checkpoints=1), workdir, progress=False)
    assert (before, [path.name for path in (workdir / "checkpoints").iterdir()]) == (["2", "4"], ["4"])


@pytest.mark.slow  # test_resume.py stops other runs
def test_an_extended_run_with_a_constant_schedule_ends_as_one_of_that_length(tmp_path, data):
    constant = {"optimizer.schedule": "constant", "optimizer.warmup_ratio": 0.0}
    train(small(data, num_steps=2, **constant), tmp_path / "extended", progress=False)
    for place in ("extended", "whole"):
        train(small(data, num_steps=4, **constant), tmp_path / place, progress=False)
    weights = [(tmp_path / place / "model" / "model.safetensors").read_bytes() for place in ("extended", "whole")]
    assert weights[0] == weights[1]
    earlier = (tmp_path / "extended" / "model-2" / "model.safetensors").read_bytes()
    assert earlier != weights[0]


@pytest.mark.slow
@pytest.mark.parametrize("twice", [False, True])
def test_twenty_interrupts_of_processes_at_random_moments(tmp_path, data, twice):
    config = tmp_path / "recipe.json"
    config.write_text(recipes.to_json(recipes.resolve(recipe(data, "classification", num_steps=300, log_every=50))))
    command = [sys.executable, "-m", "bert_jax", "finetune", "--config", str(config), "--workdir"]
    began = time.monotonic()
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    longest, last, moments = time.monotonic() - began, 0, kill_moments(f"interrupts {twice}")
    for _ in range(20):
        process = subprocess.Popen([*command, str(tmp_path / "killed")], stderr=subprocess.PIPE, text=True)
        time.sleep(moments.uniform(0.2, longest))
        process.send_signal(signal.SIGINT)
        if twice:
            time.sleep(0.05)
            process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        _, said = process.communicate(timeout=60)
        if process.returncode == 0:  # it had finished
            break
        assert process.returncode == 130 or (process.returncode == -signal.SIGINT and "bert_jax" not in said), said
        assert "Traceback" not in said or "bert_jax/training" not in said, said
        if twice:
            assert time.monotonic() - sent < 1.5
        elif step := re.search(r"step (\d+) is saved", said):
            assert int(step[1]) >= last  # nothing is lost
            last = int(step[1])
            assert shlex_quoted(command, tmp_path) in said
    subprocess.run([*command, str(tmp_path / "killed")], check=True, capture_output=True)
    models = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert models[0] == models[1]


def shlex_quoted(command: list[str], folder: pathlib.Path) -> str:
    """How the resuming command must read."""
    return " ".join(["resume with: bert-jax", *command[3:], str(folder / "killed")])
