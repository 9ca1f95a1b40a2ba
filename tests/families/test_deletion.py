"""A family's file can be deleted: the package imports whole, computes BERT, and says what it lacks in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.families import FAMILIES

ROOT = Path(__file__).parents[2]
FILES = [file for file in FAMILIES._files if file != "bert"]
FEW = ("roberta",)  # that from which most others differ little


def delete(folder, files, oracle=""):
    script = Path(__file__).with_name("without_a_family.py")
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)])}
    command = [sys.executable, script, folder, oracle, *files]
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]


def test_there_is_a_file_for_each():
    assert len(FILES) >= 20 and {*FEW} <= {*FILES}


@pytest.mark.slow
def test_few_can_be_deleted(tmp_path):
    delete(tmp_path, FEW)


@pytest.mark.slow
def test_every_family_can_be_deleted(tmp_path):
    pytest.importorskip("transformers", reason="BERT's oracle; installed on Python 3.11 only")
    delete(tmp_path, FILES, str(ROOT / "tests" / "conversion" / "test_hf_parity.py"))


def test_a_lookup_imports_one_family():
    code = (
        "import sys; from bert_jax.families import FAMILIES; FAMILIES['bert'];"
        "print(*sorted(m for m in sys.modules if m.startswith('bert_jax.families.')))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split() == [f"bert_jax.families.{name}" for name in ("base", "bert", "names")]
