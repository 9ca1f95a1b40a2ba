"""A task can be deleted: the package imports whole, trains a classifier, and says what it lacks in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.tasks import TASKS

ROOT = Path(__file__).parents[2]
BASE = ("pretraining", "classification")  # on which others may build
FEW = ("relation_extraction",)


def delete(folder, names):
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)])}
    command = [sys.executable, Path(__file__).with_name("without_a_task.py"), folder, *names]
    run = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]


def test_there_is_a_folder_for_each():
    folders = {path.name for path in (ROOT / "bert_jax" / "tasks").iterdir() if (path / "__init__.py").exists()}
    assert folders == {*TASKS} and len(folders) >= 12 and {*BASE, *FEW} <= folders


@pytest.mark.slow
def test_few_can_be_deleted(tmp_path):
    delete(tmp_path, FEW)


@pytest.mark.slow
def test_every_task_can_be_deleted(tmp_path):
    delete(tmp_path, [name for name in TASKS if name not in BASE])
