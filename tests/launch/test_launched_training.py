"""The real `bert-jax pretrain`, started by the launchers on several hosts: they find each other, train, and go on.

Each host is a process of one CPU device. What the metadata of a TPU would tell them stands in the variables of Slurm,
which JAX knows as well.
"""

import json
import os
import random
import signal
import socket
import sys

import pytest
from cloud import ROOT, eventually

from bert_jax import recipes
from bert_jax.data.pretraining.prepare import prepare

STEPS = 100


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, tiny_tokenizer):
    """A run of a few seconds, whose only checkpoints are those of its end and of a SIGTERM."""
    root, rng = tmp_path_factory.mktemp("recipe"), random.Random(0)
    animals, places = ["cat", "dog", "bird"], ["tree", "house"]
    sentences = [f"the {rng.choice(animals)} sat on a {rng.choice(places)}." for _ in range(200)]
    (root / "corpus.txt").write_text("\n\n".join("\n".join(sentences[i : i + 5]) for i in range(0, 200, 5)))
    prepare(str(root / "corpus.txt"), tiny_tokenizer, root / "prepared", max_seq_length=32, num_workers=1)
    tiny_tokenizer.save(root / "tokenizer")
    c = recipes.RECIPES["pretraining"]()
    c.update_from_flattened_dict(
        {
            "tokenizer": str(root / "tokenizer"),
            "data.prepared": str(root / "prepared"),
            "model.size": "tiny",
            "model.num_hidden_layers": 1,
            "model.hidden_size": 16,
            "model.intermediate_size": 32,
            "model.max_position_embeddings": 32,
            "stages": ((STEPS, 32, 8),),
            "num_steps": STEPS,
            "optimizer.warmup_steps": 10,
            "log_every": 10,
            "checkpoint_every": 10 * STEPS,
        }
    )
    path = root / "recipe.json"
    path.write_text(recipes.to_json(c))
    return path


@pytest.fixture
def real(cloud):
    """The cloud, with the real program installed on its hosts; gives what they need in their environment."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    program = f'#!/bin/bash\nexport SLURM_PROCID=$WORKER\nexec {sys.executable} -m bert_jax "$@"\n'
    cloud.program("installed/bert-jax", program)
    inherited = {name: value for name, value in os.environ.items() if name.startswith(("JAX_", "XLA_"))}
    return inherited | {
        "JAX_PLATFORMS": "cpu",
        "JAX_COORDINATOR_PORT": str(port),
        "PYTHONPATH": str(ROOT),
    }


def steps(workdir):
    path = workdir / "metrics.jsonl"
    return [json.loads(line)["step"] for line in path.read_text().splitlines()] if path.exists() else []


def assert_went_on_and_finished(workdir):
    """Each run logs its last step; between them, no step was lost and none taken twice."""
    logged = steps(workdir)
    assert logged == sorted(logged)
    assert set(range(10, STEPS + 1, 10)) <= set(logged)
    assert (workdir / "model" / "model.safetensors").exists()


@pytest.mark.slow  # test_two_hosts.py runs two hosts without a launcher
def test_two_hosts_of_a_slice_go_on_after_one_is_told_to_stop(cloud, real, recipe, tmp_path):
    workdir = tmp_path / "it's a workdir"
    with cloud.google() as google:
        google["host_environment"] = real | {
            "SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0",
        }  # fmt: skip
    words = ("pretrain", "--config", str(recipe), "--workdir", str(workdir), "--quiet")
    for line in (("create", "--type=v5litepod-16", "--yes"), ("setup",), ("run", *words)):
        result = cloud.launch(line[0], "my-slice", *line[1:], SETTLE_SECONDS="1", SHARED_WORKDIR="1")
        assert result.returncode == 0, result.stderr
    eventually(lambda: steps(workdir), timeout=120)
    on_hosts = [cloud.home(host) / "bert_jax_run" for host in range(2)]
    os.killpg(int((on_hosts[1] / "pid").read_text()), signal.SIGTERM)
    statuses = [eventually((run / "status").exists, timeout=120) and (run / "status").read_text() for run in on_hosts]
    assert statuses == ["143\n", "143\n"]
    assert 0 < steps(workdir)[-1] < STEPS
    result = cloud.launch("watch", "my-slice", "--yes", timeout=300, SETTLE_SECONDS="1")
    assert result.returncode == 0, result.stderr
    assert "the run has finished" in result.stdout
    assert_went_on_and_finished(workdir)


@pytest.mark.slow
def test_four_tasks_under_slurm_go_on_when_their_time_is_up(cloud, real, recipe, tmp_path):
    workdir = tmp_path / "workdir"
    (cloud.root / "time_is_up").write_text(str(workdir / "metrics.jsonl"))
    words = ("pretrain", "--config", str(recipe), "--workdir", str(workdir), "--quiet")
    result = cloud.sbatch("--nodes=2", "--gpus-per-node=2", "--ntasks-per-node=2", *words, timeout=600, **real)
    assert result.returncode == 0, result.stderr
    assert len(cloud.calls("srun")) == 2
    assert cloud.calls("scontrol") == [["scontrol", "requeue", "7"]]
    assert_went_on_and_finished(workdir)
