"""A run of the tests leaves no temporary files behind: those of its many models would fill a disk in a few runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LEAVING = """
import subprocess, sys, tempfile
from pathlib import Path

def leave(folder):
    Path(folder, "file").touch()
    Path(tempfile.mkdtemp(), "file").touch()
    subprocess.run([sys.executable, "-c", "import tempfile; tempfile.mkdtemp()"], check=True)

def test_passes(tmp_path):
    leave(tmp_path)
"""
FAILING = "\ndef test_fails(tmp_path):\n    leave(tmp_path)\n    assert False\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("processes", [(), ("-n", "1")], ids=["one_process", "xdist"])
@pytest.mark.parametrize("kept", [(), ("test_fails0",)], ids=["passed", "failed"])
def test_temporary_files_go_with_the_run(kept, processes, tmp_path):
    file, temporary = tmp_path / "test_leaving.py", tmp_path / "temporary"
    file.write_text(LEAVING + FAILING * bool(kept))
    temporary.mkdir()
    of_this_run = {"JAX_COMPILATION_CACHE_DIR", "PYTEST_DEBUG_TEMPROOT", "PYTEST_XDIST_WORKER"}
    environment = {name: value for name, value in os.environ.items() if name not in of_this_run}
    environment |= {"PYTHONPATH": str(TESTS), "TMPDIR": str(temporary)}
    settings = ("-p", "conftest", "-c", TESTS.parent / "pyproject.toml", "--rootdir", tmp_path)
    words = [sys.executable, "-m", "pytest", *settings, *processes, file]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == len(kept), done.stdout + done.stderr
    assert {path.parent.name for path in temporary.rglob("*") if path.is_file() and path.name == "file"} == set(kept)
    assert all(path.name.startswith("pytest-of-") for path in temporary.iterdir())
