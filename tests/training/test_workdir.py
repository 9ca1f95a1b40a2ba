"""The run that a work directory belongs to."""

import importlib.util
import types

import jax
import pytest
from synthetic import pretraining_task

from bert_jax import recipes, storage
from bert_jax.errors import InputError
from bert_jax.recipes.definitions import KEYS
from bert_jax.sharding import make_mesh
from bert_jax.training.program import check_fits
from bert_jax.training.resuming import MAY_CHANGE
from bert_jax.training.workdir import Workdir


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


def test_keys_that_may_change_exist():
    assert {key for keys in KEYS.values() for key in keys} >= MAY_CHANGE.keys()


def test_a_config_that_is_not_one(workdir):
    workdir.config.write_text('{"task": ')
    with pytest.raises(InputError, match=r"config\.json: expected JSON"):
        workdir.check(resolved())


def test_weights_and_biases_must_be_there(workdir, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    job = types.SimpleNamespace(eval_source=None, task=pretraining_task())
    with pytest.raises(InputError, match=r"config\.wandb: 'berts' needs the package wandb: pip install"):
        check_fits(resolved(wandb="berts"), job, make_mesh(devices=jax.devices()[:1]))


@pytest.mark.parametrize("names", [["model.safetensors"], ["model.safetensors", "README.md", "config.json"]])
def test_a_model_whose_upload_was_killed_is_not_finished_and_leaves_nothing(bucket, names):
    """Also after its last file, while the mark is there: every reader and writer takes it for incomplete."""
    run = Workdir(storage.Path(f"gs://{bucket.name}/run"))
    for name in (".incomplete", *names):
        bucket.write(f"run/model/{name}", b"{}")
    assert not run.is_finished
    run.begin(resolved(), {}, 2)
    assert bucket.keys("run/model") == []
    for name in names:
        bucket.write(f"run/model/{name}", b"{}")
    assert run.is_finished == ("config.json" in names)
