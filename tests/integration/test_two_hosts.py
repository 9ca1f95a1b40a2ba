"""Two processes of two devices each train as one: the same numbers, one set of files, and the number may change."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from bert_jax import recipes
from bert_jax.training.loop import train


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory, tiny_tokenizer):
    root = tmp_path_factory.mktemp("recipe")
    tiny_tokenizer.save(root)
    texts = [("cat " if i % 3 else "dog ") * (1 + i % 7) for i in range(96)]
    (root / "data.tsv").write_text("sentence\tlabel\n" + "".join(f"{text}\t{text[:3]}\n" for text in texts))
    c = recipes.classification()
    c.update_from_flattened_dict(
        {"tokenizer": str(root), "data.train": str(root / "data.tsv"), "data.dev": str(root / "data.tsv"),
         "data.length_buckets": (12,), "data.max_seq_length": 12, "global_batch_size": 16, "num_steps": 6,
         "optimizer.learning_rate": 1e-3, "model.size": "tiny", "model.hidden_size": 16, "model.intermediate_size": 32,
         "model.num_hidden_layers": 1,
         "model.max_position_embeddings": 16, "log_every": 1, "checkpoint_every": 4}
    )  # fmt: skip
    path = root / "recipe.json"
    path.write_text(recipes.to_json(c))
    return path


def start_two_hosts(recipe_file, workdir) -> list[subprocess.Popen]:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "bert_jax", "finetune", "--config", recipe_file, "--workdir", workdir]
    command += [
        "--config.mesh.data=2",
        "--config.mesh.fsdp=2",
        "--coordinator",
        f"localhost:{port}",
        "--num-processes=2",
    ]
    return [
        subprocess.Popen(
            [*command, f"--process-id={i}"],
            env=os.environ | {"JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i in range(2)
    ]


def train_on_two_hosts(recipe_file, workdir) -> None:
    hosts = start_two_hosts(recipe_file, workdir)
    said = [host.communicate(timeout=300)[0] for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0], "\n".join(said)


def numbers(workdir):
    """Losses, gradient norms and scores of all lines."""
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    chosen = ("step", "train/loss", "train/grad_norm", "eval/accuracy")
    return np.array([[line.get(name, 0.0) for name in chosen] for line in lines])


def test_two_hosts_compute_what_one_does_and_may_become_one(recipe_file, tmp_path):
    train_on_two_hosts(recipe_file, tmp_path / "two")
    recipe = recipes.load_recipe(str(recipe_file))
    train(recipe, tmp_path / "one", progress=False)
    expected = numbers(tmp_path / "one")
    assert len(expected) == 7
    np.testing.assert_allclose(numbers(tmp_path / "two"), expected, rtol=1e-4)
    # As if the two had died after step 4: one host goes on from their checkpoint.
    shutil.rmtree(tmp_path / "two" / "model")
    shutil.rmtree(tmp_path / "two" / "checkpoints" / "6")
    train(recipe, tmp_path / "two", progress=False)
    np.testing.assert_allclose(numbers(tmp_path / "two"), expected, rtol=1e-4)


@pytest.mark.parametrize(
    "seconds", [4.2, *(pytest.param(0.5 * i, marks=pytest.mark.slow) for i in range(1, 25))], ids=lambda s: f"{s}s"
)
def test_two_hosts_told_to_stop_while_they_start_end(recipe_file, tmp_path, seconds):
    """Whatever they wait for then: one another, a compilation, or data."""
    hosts = start_two_hosts(recipe_file, tmp_path / "two")
    time.sleep(seconds)
    for host in hosts:
        host.terminate()
    said = [host.communicate(timeout=30)[0] for host in hosts]
    # JAX aborts a process whose coordinator has ended before it.
    stopped = {-signal.SIGTERM, 128 + signal.SIGTERM, -signal.SIGABRT}
    assert {host.returncode for host in hosts} <= stopped, "\n".join(said)
    assert not list((tmp_path / "two").glob("model*"))
