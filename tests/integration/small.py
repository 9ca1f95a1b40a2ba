"""Small recipes and sentences, and running them in processes that may be killed."""

import json
import os
import pathlib
import random
import subprocess
import sys

from kill_moments import kill_moments

from bert_jax import recipes

STEPS = 20
WORDS = ["the", "a", "cat", "dog", "bird", "fish", "house", "tree", "old", "young", "big", "small", "sat", "eats", "on"]


def sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(3, 12))) + "."


def recipe(data: pathlib.Path, task: str, **changes):
    c = recipes.RECIPES[task]()
    c.tokenizer = str(data / "tokenizer")
    c.model.size = "tiny"
    c.update_from_flattened_dict(
        {
            "model.hidden_size": 16,
            "model.intermediate_size": 32,
            "model.max_position_embeddings": 32,
            "num_steps": STEPS,
            "optimizer.learning_rate": 5e-3,
            "log_every": 3,
            "checkpoint_every": 4,
            "eval_every": 8,
        }
    )
    if recipes.is_pretraining(recipes.RECIPES[task]()):
        c.update_from_flattened_dict(
            {
                "data.prepared": str(data / "prepared"),
                "optimizer.warmup_steps": 4,
                "best_metric": "mlm_loss",
                "stages": ((12, 24, 16), (STEPS - 12, 32, 8)),
            }
        )
        if task == "electra":
            c.model.embedding_size, c.model.num_attention_heads, c.model.generator_size = 12, 4, 0.5
    else:
        c.update_from_flattened_dict(
            {
                "data.train": str(data / "train.tsv"),
                "data.dev": str(data / "dev.tsv"),
                "num_epochs": 0.0,
                "data.length_buckets": (8, 16),
                "accumulation_steps": 2,
                "data.max_seq_length": 32,
            }
        )
    c.update_from_flattened_dict(changes)
    return c


def metrics_of(workdir: pathlib.Path) -> list[dict]:
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    of_the_process = ("second", "compilations", "storage")
    return [{k: v for k, v in line.items() if not any(name in k for name in of_the_process)} for line in lines]


def train_in_processes(recipe, workdir, runs: list[dict], folder: pathlib.Path | None = None) -> str:
    """Trains in one run after another (see runs.py), and returns what they said; `folder` is for the arguments.

    The recipe may be a file, for what only the processes of the runs know.
    """
    folder = folder or workdir.parent
    config, plan = folder / "recipe.json", folder / "runs.json"
    if isinstance(recipe, pathlib.Path):
        config = recipe
    else:
        config.write_text(recipes.to_json(recipes.resolve(recipe)))
    plan.write_text(json.dumps(runs))
    kill_moments("")  # prints the seed, from which the processes draw
    result = _script("runs.py", config, workdir, plan)
    expected = ["killed" if "kill_at" in run else "stopped" if "stop_at" in run else "finished" for run in runs]
    assert result.stdout.split() == expected, result.stdout + result.stderr
    assert "Traceback" not in result.stderr or any(run.get("processes", 1) > 1 for run in runs), result.stderr
    return result.stderr


def train_all(runs: dict[pathlib.Path, object]) -> None:
    """Trains each recipe in its working directory, one after the other."""
    words = []
    for workdir, made in runs.items():
        config = workdir.with_suffix(".json")
        config.write_text(recipes.to_json(recipes.resolve(made)))
        words += [config, workdir]
    _script("train_all.py", *words)


def _script(name: str, *words) -> subprocess.CompletedProcess:
    """Runs a script of this folder."""
    command = [sys.executable, pathlib.Path(__file__).with_name(name), *words]
    result = subprocess.run(command, env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result


def assert_alike(one: pathlib.Path, other: pathlib.Path) -> None:
    """Both working directories hold the same metrics, the same model bit for bit, and checkpoints of the same steps."""
    assert metrics_of(one) == metrics_of(other)
    for file in filter(pathlib.Path.is_file, (one / "model").rglob("*")):
        assert file.read_bytes() == (other / file.relative_to(one)).read_bytes(), file.name
    assert (one / "model" / "model.safetensors").stat().st_size > 20_000
    steps = [sorted(filter(str.isdigit, os.listdir(workdir / "checkpoints"))) for workdir in (one, other)]
    assert steps[0] == steps[1]
