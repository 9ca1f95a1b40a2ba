"""A run killed again and again ends where one that was never killed does: same files, same metrics, bit for bit."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys

import pytest
from safetensors.numpy import load_file

from bert_jax import recipes
from bert_jax.data.prepare import prepare
from bert_jax.errors import InputError
from bert_jax.tasks.classification import ClassificationTask
from bert_jax.training.loop import Preempted, train

STEPS = 20
KILLS = sorted(random.SystemRandom().sample(range(2, STEPS - 3), 5))  # anew in every test run: any steps must do
WORDS = ["the", "a", "cat", "dog", "bird", "fish", "house", "tree", "old", "young", "big", "small", "sat", "eats", "on"]


def sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(3, 12))) + "."


@pytest.fixture(scope="module")
def data(tmp_path_factory, tiny_tokenizer):
    """A prepared corpus, a vocabulary, and labelled tables (is there a fish in it?)."""
    root, rng = tmp_path_factory.mktemp("data"), random.Random(0)
    documents = ["\n".join(sentence(rng) for _ in range(6)) for _ in range(60)]
    (root / "corpus.txt").write_text("\n\n".join(documents))
    prepare(str(root / "corpus.txt"), tiny_tokenizer, root / "prepared", max_seq_length=32, dupe_factor=2,
            validation_fraction=0.1, num_workers=1)  # fmt: skip
    (root / "tokenizer").mkdir()
    tiny_tokenizer.save(root / "tokenizer")
    for name, rows in (("train", 200), ("dev", 40)):
        texts = [sentence(rng) for _ in range(rows)]
        lines = [f"{text}\t{'yes' if 'fish' in text else 'no'}" for text in texts]
        (root / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    return root


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
    if task == "pretraining":
        c.update_from_flattened_dict(
            {
                "data.prepared": str(data / "prepared"),
                "optimizer.warmup_steps": 4,
                "best_metric": "mlm_loss",
                "stages": ((12, 24, 16), (STEPS - 12, 32, 8)),
            }
        )
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
    return [{name: value for name, value in line.items() if "second" not in name} for line in lines]


@pytest.mark.parametrize("task", ["pretraining", "classification"])
def test_killed_five_times_and_never_killed_end_alike(tmp_path, data, task):
    config = tmp_path / "config.json"
    config.write_text(recipes.to_json(recipes.resolve(recipe(data, task))))
    script = pathlib.Path(__file__).with_name("killed_runs.py")
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    quick = {"XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"}
    for name, kills in (("whole", []), ("killed", KILLS)):
        command = [sys.executable, script, config, tmp_path / name, *map(str, kills)]
        result = subprocess.run(command, env=os.environ | cache | quick, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert result.stdout.count("killed") == len(kills), result.stdout
        assert "Traceback" not in result.stderr
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert metrics_of(whole) == metrics_of(killed)
    for file in (whole / "model").iterdir():
        assert file.read_bytes() == (killed / "model" / file.name).read_bytes(), file.name
    names = load_file(whole / "model" / "model.safetensors")
    assert len(names) > 30
    assert sorted(os.listdir(whole / "checkpoints")) == sorted(os.listdir(killed / "checkpoints"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory, data):
    """A short run that is finished: its directory and its result. Of its three evaluations the second is the best."""
    workdir, scores = tmp_path_factory.mktemp("run") / "workdir", iter([0.7, 0.9, 0.8])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClassificationTask, "score", lambda *_: {"accuracy": next(scores)})
        return workdir, train(short(data), workdir, progress=False)


def short(data, **changes):
    few = {"num_steps": 3, "checkpoint_every": 0, "keep_checkpoints": 1, "eval_every": 1, "best_metric": "accuracy",
           "data.length_buckets": (16,), "accumulation_steps": 1}  # fmt: skip
    return recipe(data, "classification", **(few | changes))


def test_what_a_run_leaves(finished):
    workdir, result = finished
    assert {path.name for path in workdir.iterdir()} >= {
        "config.json",
        "checkpoints",
        "metrics.jsonl",
        "model",
        "report.png",
    }
    assert json.loads((workdir / "config.json").read_text())["dtype"] in ("float32", "bfloat16")
    assert result["train/loss"] > 0
    assert not [path for path in workdir.iterdir() if path.name.endswith(".partial")]


def test_the_best_by_its_metric_is_kept_and_becomes_the_model(finished):
    workdir, result = finished
    assert (result["step"], result["eval/accuracy"]) == (2, 0.9)
    assert sorted(os.listdir(workdir / "checkpoints")) == ["2", "3"]


def test_a_finished_run_is_left_as_it_is(finished, data):
    workdir, result = finished
    before = {path: path.stat().st_mtime_ns for path in workdir.rglob("*")}
    assert train(short(data, log_every=1), workdir, progress=False) == result
    assert {path: path.stat().st_mtime_ns for path in workdir.rglob("*")} == before


def test_another_recipe_is_refused(finished, data):
    with pytest.raises(InputError, match=r"belongs to another config: seed was 0, is now 1; use another --workdir"):
        train(short(data, seed=1), finished[0], progress=False)


def test_bad_data_leaves_no_working_directory_behind(tmp_path, data):
    with pytest.raises(InputError, match=r"nowhere\.tsv"):
        train(short(data, **{"data.train": "nowhere.tsv"}), tmp_path / "workdir", progress=False)
    assert not (tmp_path / "workdir").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"best_metric": "acuracy"}, "config.best_metric: 'acuracy' is not measured; did you mean 'accuracy'?"),
        ({"data.dev": ""}, "config.best_metric: 'accuracy' needs data to evaluate on"),
        ({"mesh.tensor": 3}, "mesh: expected sizes that multiply to the "),
        (
            {"optimizer.warmup_ratio": 0.0, "optimizer.warmup_steps": 5},
            "warmup_steps: expected at most num_steps 3, found 5",
        ),
    ],
)
def test_recipes_that_do_not_fit(tmp_path, data, change, message):
    with pytest.raises(InputError) as error:
        train(short(data, **change), tmp_path / "workdir", progress=False)
    assert message in str(error.value)


def test_a_run_told_to_stop_saves_and_goes_on_when_started_again(tmp_path, data, finished, monkeypatch):
    scores = iter([0.7, 0.9, 0.8])

    def score(*_):
        if (value := next(scores)) == 0.7:
            os.kill(os.getpid(), signal.SIGTERM)
        return {"accuracy": value}

    monkeypatch.setattr(ClassificationTask, "score", score)
    with pytest.raises(Preempted) as stopped:
        train(short(data), tmp_path / "workdir", progress=False)
    assert stopped.value.code == 143
    assert sorted(os.listdir(tmp_path / "workdir" / "checkpoints")) == ["2"]
    train(short(data), tmp_path / "workdir", progress=False)
    weights = [
        (workdir / "model" / "model.safetensors").read_bytes() for workdir in (finished[0], tmp_path / "workdir")
    ]
    assert weights[0] == weights[1]
    assert metrics_of(finished[0]) == metrics_of(tmp_path / "workdir")
