"""`make clean` removes what make made, and nothing else."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("marked", [True, False])
def test_clean_leaves_what_make_did_not_make(tmp_path, marked):
    shutil.copy(ROOT / "Makefile", tmp_path)
    ours = ["dist/bert_jax-0.1-py3-none-any.whl", "dist/bert_jax-0.1.tar.gz", "build/lib/bert_jax/a.py",
            ".mypy_cache/a", ".ruff_cache/a", ".pytest_cache/a"]  # fmt: skip
    theirs = ["dist/thesis.pdf", "build/results.csv", "bert_jax/a.py", "model/config.json", "notes.txt"]
    (ours if marked else theirs).extend(["environment/bin/python", "site/index.html"])
    for name in ours + theirs:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for folder in ("environment", "site") if marked else ():
        (tmp_path / folder / ".made-by-make").touch()
    command = ["make", "--no-print-directory", "clean", "VENV=environment"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"Makefile", *theirs}
