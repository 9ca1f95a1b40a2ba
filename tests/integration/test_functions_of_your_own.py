"""The optimizer, schedule, metrics and format of tables of docs/extend.md, by a recipe file and by entry point."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.metrics import balanced_accuracy_score, hamming_loss
from small import assert_alike, recipe, train_in_processes

from bert_jax import recipes
from bert_jax.errors import InputError

PAGE = (Path(__file__).parents[2] / "docs" / "extend.md").read_text().partition("\n## A metric, a schedule,")[2]
ENTRY_POINT, LION, METRICS, READER = re.findall(r"```\w+\n(.*?)```", PAGE, re.DOTALL)
EXAMPLE = ["--config.num_steps=4", "--config.global_batch_size=8", "--config.data.max_seq_length=16", "--quiet"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with a package whose entry point the page shows."""
    site = tmp_path_factory.mktemp("site")
    (site / "my_package").mkdir()
    (site / "my_package" / "bert_plugins.py").write_text("\n".join([LION, METRICS, READER]))
    info = site / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    group, module = re.search(r'entry-points\."(.*)"\]\nmine = "([\w.]+)"', ENTRY_POINT).groups()
    (info / "entry_points.txt").write_text(f"[{group}]\nmine = {module}\n")
    return site


@pytest.fixture
def installed(site, monkeypatch):
    """Processes that the test starts find the package."""
    paths = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", paths)


def run_verb(folder, *words):
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, "-m", "bert_jax", *map(str, words)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def to_sqlite(table, path):
    rows = [line.split("\t") for line in table.read_text().splitlines()[1:]]
    with sqlite3.connect(path) as connection:
        connection.execute("create table texts (sentence text, label text)")
        connection.executemany("insert into texts values (?, ?)", rows)
    return rows


@pytest.mark.slow
def test_installed_they_train_resume_and_evaluate(tmp_path, data, installed):
    rows = {name: to_sqlite(data / f"{name}.tsv", tmp_path / f"{name}.sqlite") for name in ("train", "dev")}
    changes = {"optimizer.name": "lion", "optimizer.schedule": "one_cycle", "optimizer.warmup_ratio": 0.0,
               "optimizer.learning_rate": 1e-3, "best_metric": "balanced_accuracy", "num_steps": 6,
               "checkpoint_every": 2, "eval_every": 3}  # fmt: skip
    changes |= {f"data.{name}": str(tmp_path / f"{name}.sqlite") for name in rows}
    changes["data.metrics"] = ("balanced_accuracy", "hamming_loss")
    (tmp_path / "mine.json").write_text(recipes.to_json(recipe(data, "classification", **changes)))
    train_in_processes(tmp_path / "mine.json", tmp_path / "whole", [{}])
    train_in_processes(tmp_path / "mine.json", tmp_path / "killed", [{"kill_at": 3}, {}])
    assert_alike(tmp_path / "whole", tmp_path / "killed")
    model = tmp_path / "whole/model"
    answers = run_verb(tmp_path, "predict", "--model", model, "--data", "dev.sqlite", "--out", "answers.jsonl")
    assert answers.returncode == 0, answers.stderr
    labels = [json.loads(line)["label"] for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    gold = [label for _, label in rows["dev"]]
    names = "hamming_loss,balanced_accuracy"
    done = run_verb(tmp_path, "evaluate", "--model", model, "--data", "dev.sqlite", "--metrics", names, "--json")
    assert done.returncode == 0, done.stderr
    expected = {"hamming_loss": hamming_loss(gold, labels), "balanced_accuracy": balanced_accuracy_score(gold, labels)}
    assert json.loads(done.stdout) == pytest.approx(expected | {"examples": len(gold)})


def test_a_recipe_file_registers_them(tmp_path, data, write_small):
    (tmp_path / "lion.py").write_text(LION)
    write_small(tmp_path / "reviews/bert")
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "reviews" / name).symlink_to(data / name)
    [command] = re.findall(r"^# lion\.py: bert-jax (.*)$", LION, re.MULTILINE)
    done = run_verb(tmp_path, *command.split(), *EXAMPLE)
    assert done.returncode == 0 and "eval/accuracy" in done.stdout, done.stderr
    saved = json.loads((tmp_path / "runs/lion/config.json").read_text())["optimizer"]
    assert (saved["name"], saved["schedule"]) == ("lion", "one_cycle")
    with pytest.raises(InputError, match=r"config\.optimizer\.name: 'lion' is not registered"):
        recipes.load_recipe(str(tmp_path / "runs/lion"))
