"""A run killed again and again ends where one that was never killed does: same files, same metrics, bit for bit."""

import json
import os
import signal

import pytest
from kill_moments import kill_moments
from small import STEPS, assert_alike, metrics_of, recipe, train_in_processes

from bert_jax.errors import InputError
from bert_jax.tasks.classification.task import ClassificationTask
from bert_jax.training.loop import Preempted, train

pytestmark = pytest.mark.curves


@pytest.mark.slow  # test_killed_runs.py kills one
@pytest.mark.parametrize(("task", "kills"), [("pretraining", 1), ("pretraining", 5), ("classification", 5)])
def test_killed_and_never_killed_end_alike(tmp_path, data, task, kills):
    steps = sorted(kill_moments(f"{task} {kills}").sample(range(2, STEPS - 3), kills))
    train_in_processes(recipe(data, task), tmp_path / "whole", [{}])
    train_in_processes(recipe(data, task), tmp_path / "killed", [*({"kill_at": step} for step in steps), {}])
    assert_alike(tmp_path / "whole", tmp_path / "killed")


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
    card = (workdir / "model" / "README.md").read_text()
    assert "| accuracy | 0.9 |" in card and "| train | 200 rows |" in card and "| yes | " in card
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
        ({"mesh.tensor": 3}, "mesh: expected sizes with a product of "),
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
