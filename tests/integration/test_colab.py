"""The notebooks' first cell beside the packages of Colab, on its three runtimes, executed by nbclient.

pip resolves and reports what it would install, and downloads no CUDA.
"""

import json
import os
from pathlib import Path

import nbclient
import nbformat
import pytest
from test_docs import ROOT
from test_wheel import call, pythons, wheel  # noqa: F401 (a fixture)

COLAB = ("jax==0.7.2", "jaxlib==0.7.2", "numpy==2.0.2", "flax==0.10.7", "ipykernel")
NOTEBOOKS = sorted(path.name for path in (ROOT / "colab").glob("*.ipynb"))
PLUGIN = ("jax-cuda12-plugin==0.7.2", "jax-cuda12-pjrt==0.7.2")
KERNEL = {"argv": ["", "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "", "language": "python"}
# What the kernel of the runtime has imported; the device files are those of a folder.
BEFORE = "import pathlib, numpy\nfrom bert_jax import notebook\nnotebook._DEVICES = pathlib.Path('dev')"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif((3, 12) not in pythons(), reason="needs Python 3.12, which is Colab's"),
]


@pytest.fixture(scope="module")
def colab(wheel, tmp_path_factory):  # noqa: F811
    """The Python of an environment with Colab's JAX and the wheel, which is installed without its dependencies."""
    folder = tmp_path_factory.mktemp("colab")
    call([pythons()[3, 12], "-m", "venv", folder / "venv"], folder)
    python = folder / "venv" / "bin" / "python"
    for words in (COLAB, ("--no-deps", wheel, *PLUGIN)):
        call([python, "-m", "pip", "install", "--quiet", *words], folder, PYTHONPATH="")
    return python


def first_cell(name, python, folder, monkeypatch, **variables):
    """Run the first cell of a notebook; return what it said, and what pip would install: name -> version."""
    kernel = folder / "kernels" / "colab" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text(json.dumps(KERNEL | {"argv": [str(python), *KERNEL["argv"][1:]]}))
    monkeypatch.setenv("JUPYTER_PATH", str(folder))
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    report = folder / "report.json"
    environment = os.environ | variables | {"PIP_DRY_RUN": "1", "PIP_REPORT": str(report)}
    whole = nbformat.read(ROOT / "colab" / name, as_version=4)
    first = next(cell.source for cell in whole.cells if cell.cell_type == "code")
    cells = [nbformat.v4.new_code_cell(code) for code in (BEFORE, first)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": str(folder)}}
    client = nbclient.NotebookClient(notebook, timeout=900, kernel_name="colab", resources=resources, allow_errors=True)
    client.execute(env=environment)
    said = "".join(output.get("text", output.get("evalue", "")) for output in notebook.cells[1].outputs)
    assert report.exists(), said
    installed = json.loads(report.read_text())["install"]
    return said, {each["metadata"]["name"].lower(): each["metadata"]["version"] for each in installed}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_runtime_with_an_nvidia_gpu_keeps_its_jax(colab, tmp_path, monkeypatch, name):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    said, resolved = first_cell(name, colab, tmp_path, monkeypatch)
    assert "flax" in resolved and not {"jax", "jaxlib", "numpy"} & resolved.keys()
    assert not [name for name in resolved if name.startswith(("nvidia", "jax-cuda"))]
    assert "expected JAX to use the NVIDIA GPU of this runtime, found cpu" in said  # which the file only feigns
    assert "jaxlib 0.7.2, jax-cuda12-plugin 0.7.2" in said


def test_a_runtime_with_an_nvidia_gpu_and_no_plugin_gets_that_of_its_jaxlib(colab, tmp_path, monkeypatch):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    folder = next(Path(colab).parents[1].glob("lib/python*/site-packages/jax_cuda12_plugin-*.dist-info"))
    hidden = folder.rename(folder.with_suffix(".hidden"))
    _, resolved = first_cell(NOTEBOOKS[0], colab, tmp_path, monkeypatch)
    hidden.rename(folder)
    assert resolved["jax-cuda12-plugin"] == "0.7.2" and not {"jax", "jaxlib", "numpy"} & resolved.keys()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_runtime_with_a_tpu_gets_libtpu_for_its_jax(colab, tmp_path, monkeypatch, name):
    variables = {"TPU_ACCELERATOR_TYPE": "v5litepod-1", "TPU_WORKER_HOSTNAMES": "localhost"}
    said, resolved = first_cell(name, colab, tmp_path, monkeypatch, **variables)
    assert "expected JAX to use the TPU of this runtime, found" in said
    assert resolved["libtpu"].startswith("0.0.") and "gcsfs" in resolved
    assert not {"jax", "jaxlib", "numpy"} & resolved.keys()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_runtime_without_an_accelerator_keeps_its_jax(colab, tmp_path, monkeypatch, name):
    said, resolved = first_cell(name, colab, tmp_path, monkeypatch)
    assert "jax 0.7.2, jaxlib 0.7.2, jax-cuda12-plugin 0.7.2: JAX uses the CPU" in said
    assert "flax" in resolved and not {"jax", "jaxlib", "numpy", "libtpu"} & resolved.keys()
