"""Each notebook runs from its first cell to its last; the tests' copy does everything in small."""

import os
from pathlib import Path

import nbclient
import nbformat
import pytest

COLAB = Path(__file__).parent.parent / "colab"
NOTEBOOKS = sorted(COLAB.glob("*.ipynb"))
FULL = "BERT_JAX_NOTEBOOK_FULL" in os.environ  # `make notebooks`: as a user runs it


def test_there_is_a_notebook():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, monkeypatch):
    if not FULL:
        monkeypatch.setenv("BERT_JAX_NOTEBOOK_QUICK", "1")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=3600, kernel_name="python3", resources={"metadata": {"path": COLAB}}
    ).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in shown), "no curves"
    printed = "".join(output.get("text", "") for output in shown)
    assert "mlm_accuracy: " in printed and "accuracy of this BERT: " in printed
    if FULL:
        print(printed)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        assert not cell.get("outputs") and not cell.get("execution_count"), f"clear the outputs of {path.name}"
