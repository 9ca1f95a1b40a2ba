"""The run that a work directory belongs to."""

import importlib.util
import json
import types

import jax
import pytest
from synthetic import pretraining_task

from bert_jax import recipes, storage
from bert_jax.errors import InputError
from bert_jax.sharding import make_mesh
from bert_jax.training.program import check_fits
from bert_jax.training.workdir import COPIES, Workdir


@pytest.fixture
def workdir(tmp_path):
    return Workdir(storage.Path(tmp_path))


def resolved(**changes):
    recipe = recipes.pretraining()
    recipe.update_from_flattened_dict(changes)
    return recipes.resolve(recipe)


def test_the_same_recipe_may_go_on_with_it(workdir):
    stages = ((1, 128, 4), (1, 512, 2))  # tuples are lists in JSON
    workdir.check(resolved(stages=stages))
    workdir.begin(resolved(stages=stages), {}, 2)
    workdir.check(resolved(stages=stages))
    workdir.check(resolved(stages=stages, **{"log_every": 7, "mesh.fsdp": 8, "remat": "full"}))


def test_another_recipe_may_not_and_hears_which_keys_differ(workdir):
    workdir.begin(resolved(), {}, 2)
    with pytest.raises(InputError) as error:
        workdir.check(resolved(**{"optimizer.learning_rate": 2e-4, "seed": 3}))
    assert "belongs to another config: optimizer.learning_rate was 0.0001, is now 0.0002; seed was 0, is now 3" in str(
        error.value
    )


@pytest.mark.parametrize("url", ["s3://bucket/run", "az://container/run"])
def test_a_store_that_takes_no_checkpoints_is_refused(url):
    with pytest.raises(InputError, match=f"{url}: expected a work directory on a disk or on gs://"):
        Workdir(storage.Path(url)).check(resolved())


def test_two_runs_at_once_are_one_too_many(workdir):
    with workdir.claimed():
        second = Workdir(workdir.path)
        with pytest.raises(InputError, match="another run is under way there"), second.claimed():
            pass
    with second.claimed():  # the first has ended
        pass


def with_checkpoint(workdir, step, copies):
    """Write what a checkpoint has beside the state."""
    folder = workdir.checkpoints / str(step) / COPIES
    folder.mkdir(parents=True)
    (folder / COPIES).write_text(json.dumps(copies))


DAMAGES = [b"", b"{", b"\xff", b"[]", b"{}", b'{"task": "unknown"}', b'{"num_steps": "2", "data": {}}', None]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["config", "data"])
def test_a_damaged_or_missing_file_is_read_from_the_newest_checkpoint_that_has_it(workdir, caplog, name, damage):
    workdir.begin(resolved(seed=3), {"train": {"rows": 5}}, 20)
    copies = workdir.copies()
    with_checkpoint(workdir, 5, copies)
    with_checkpoint(workdir, 10, copies | {f"{name}.json": None})
    path = getattr(workdir, name)
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    workdir.check(resolved(seed=3))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"{path}: expected ") and line.endswith("; its copy in checkpoint 5 is used")
    with pytest.raises(InputError, match="seed was 3, is now 4"):
        workdir.check(resolved(seed=4))
    assert workdir.data_record().data == {"train": {"rows": 5}}
    assert workdir.begin(resolved(seed=3), {"train": {"rows": 5}}, 20) == 20
    assert workdir.copies() == copies


@pytest.mark.parametrize(
    ("name", "way_on"),
    [("config", "put it back from a backup, or use another --workdir"),
     ("data", "remove it to resume without comparing the data")],
)  # fmt: skip
def test_a_damaged_file_without_a_copy_says_how_to_go_on(workdir, name, way_on):
    workdir.begin(resolved(), {}, 2)
    with_checkpoint(workdir, 5, {"config.json": 3})
    getattr(workdir, name).write_bytes(b"{")
    with pytest.raises(InputError) as error:
        workdir.check(resolved())
    assert str(error.value).endswith(f", and no checkpoint has a copy of it; {way_on}")
    assert "\n" not in str(error.value)


def test_before_the_first_checkpoint_damaged_data_are_written_again(workdir):
    workdir.begin(resolved(), {}, 2)
    workdir.data.write_bytes(b"{")
    workdir.check(resolved())
    assert workdir.begin(resolved(), {"train": None}, 2) is None
    assert workdir.data_record().data == {"train": None}


@pytest.mark.parametrize(
    "files",
    [
        {"model/model.safetensors": b"mine"},
        {"config.json": b'{"model_type": "bert", "hidden_size": 768}', "model.safetensors": b"mine"},
        {"checkpoints/100/_CHECKPOINT_METADATA": b"{}", "checkpoints/100/default/manifest": b"of another trainer"},
        {"metrics.jsonl": b'{"step": 1, "loss": 2.0}'},
        {"data.json": b'{"data": [1, 2]}'},
        {"thesis.txt": b"three years"},
        {"photos/1.jpg": b"mine"},
    ],
)
@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_a_directory_that_is_not_of_a_run_is_refused_and_left_as_it_is(tmp_path, bucket, files, place):
    workdir = Workdir(storage.Path(tmp_path / "mine" if place == "disk" else f"gs://{bucket.name}/mine"))
    for name, content in files.items():
        (workdir.path / name).parent.mkdir(parents=True, exist_ok=True)
        (workdir.path / name).write_bytes(content)
    with pytest.raises(InputError, match="expected") as error:
        workdir.check(resolved())
    assert str(error.value).endswith("use another --workdir") and "\n" not in str(error.value)
    found = {str(path.relative_to(workdir.path)): path.read_bytes() for path in workdir.path.files_below()}
    assert found == files


@pytest.mark.parametrize("name", [".DS_Store", "lost+found/x", "slurm-17.out", "train.log", "logs/stderr"])
def test_what_systems_and_schedulers_leave_is_no_obstacle(workdir, name):
    (workdir.path / name).parent.mkdir(exist_ok=True)
    (workdir.path / name).write_text("not ours")
    workdir.check(resolved())


def test_a_model_is_set_aside_beside_those_that_are_there(workdir, caplog):
    workdir.begin(resolved(), {}, 2)
    contents = {"model": b"of the run", "model-incomplete": b"mine", "model-incomplete-2": b"mine too"}
    for name, content in contents.items():
        (workdir.path / name).mkdir()
        (workdir.path / name / "weights").write_bytes(content)
    workdir.begin(resolved(), {}, 2)
    contents["model-incomplete-3"] = contents.pop("model")
    for name, content in contents.items():
        assert (workdir.path / name / "weights").read_bytes() == content
    assert not workdir.model.exists()


def test_weights_and_biases_must_be_there(workdir, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    job = types.SimpleNamespace(evaluations={}, task=pretraining_task())
    with pytest.raises(InputError, match=r"config\.wandb: 'berts' needs the package wandb: pip install"):
        check_fits(resolved(wandb="berts"), job, make_mesh(devices=jax.devices()[:1]))


@pytest.mark.parametrize("names", [["model.safetensors"], ["model.safetensors", "README.md", "config.json"]])
def test_a_model_whose_upload_was_killed_is_not_finished_and_leaves_nothing(bucket, names):
    """Also after its last file, while the mark is there: every reader and writer takes it for incomplete."""
    run = Workdir(storage.Path(f"gs://{bucket.name}/run"))
    for name in names:
        bucket.write(f"run/model/{name}", b"{}")
    bucket.write("run/model/.incomplete", json.dumps({"written_by": "bert_jax", "files": names}).encode())
    assert not run.is_finished
    run.begin(resolved(), {}, 2)
    assert bucket.keys("run/model") == []
    for name in names:
        bucket.write(f"run/model/{name}", b"{}")
    assert run.is_finished == ("config.json" in names)
