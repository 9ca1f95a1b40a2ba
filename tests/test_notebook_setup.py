"""The first cell of the notebooks: where bert_jax comes from, what it installs beside JAX, and what it checks."""

import importlib.metadata
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from bert_jax import notebook
from bert_jax.errors import InputError

COLAB = Path(__file__).parent.parent / "colab"
SETUP_CELL = COLAB / "setup_cell.py"
# What bert-jax and JAX require here, as their metadata write it.
REQUIRED = {
    "bert-jax": ["jax>=0.7", "flax>=0.12", 'scikit-learn; extra == "demo"', 'jax[cuda12]; extra == "cuda"',
                 'jax[tpu]; extra == "tpu"', 'gcsfs>=2025.3; extra == "tpu"'],
    "jax": ['jax-cuda12-plugin[with-cuda]<={0},>={0}; extra == "cuda12"', 'libtpu==0.0.20.*; extra == "tpu"'],
}  # fmt: skip
COLAB_JAX = {"bert-jax": "0.1.0", "jax": "0.7.2", "jaxlib": "0.7.2", "flax": "0.10.7"}
PLUGIN = {"jax-cuda12-plugin": "0.7.2"}


class Runtime:
    """A machine with packages and devices; `pip` holds what pip is told to install, and installs `new`."""

    def __init__(self, monkeypatch, folder):
        self.folder, self.pip, self.new, self.status = folder, [], {}, 0
        self.packages = dict(COLAB_JAX)
        self.platform, self.error = "cpu", ""
        monkeypatch.setattr(notebook, "_DEVICES", folder / "dev")
        monkeypatch.setattr(notebook, "_replaced", {})
        monkeypatch.setattr(importlib.metadata, "distributions", lambda: map(self.distribution, self.packages))
        monkeypatch.setattr(importlib.metadata, "distribution", self.distribution)
        monkeypatch.setattr(importlib.metadata, "version", lambda name: self.distribution(name).version)
        monkeypatch.setattr(importlib.metadata, "requires", self.requires)
        monkeypatch.setattr(notebook.subprocess, "run", self.run)
        for name in (*notebook._TPU_VARIABLES, "JAX_PLATFORMS"):
            monkeypatch.delenv(name, raising=False)

    def with_nvidia(self):
        (self.folder / "dev").mkdir()
        (self.folder / "dev" / "nvidia0").touch()

    def distribution(self, name):
        if name not in self.packages:
            raise importlib.metadata.PackageNotFoundError(name)
        files = [SimpleNamespace(locate=lambda: self.folder / name / "__init__.py")]
        return SimpleNamespace(metadata={"Name": name}, version=self.packages[name], files=files)

    def requires(self, name):
        return [line.format(self.packages["jax"]) for line in REQUIRED[name]]

    def run(self, command, **_):
        if command[1] == "-c":  # JAX is asked for its devices
            answer = json.dumps([self.platform, f"kind of {self.platform}", 1])
            return SimpleNamespace(returncode=0, stdout=answer, stderr=self.error)
        self.pip.append([word for word in command[4:] if not word.startswith("--")])
        self.packages |= self.new
        return SimpleNamespace(returncode=self.status)


@pytest.fixture
def runtime(monkeypatch, tmp_path):
    return Runtime(monkeypatch, tmp_path)


def test_the_jax_of_a_runtime_is_kept(runtime, capsys):
    notebook.setup("demo")
    assert runtime.pip == [["flax>=0.12", "scikit-learn", "jax==0.7.2", "jaxlib==0.7.2"]]
    assert "jax 0.7.2, jaxlib 0.7.2: JAX uses the CPU" in capsys.readouterr().out


def test_nothing_is_installed_where_nothing_is_missing(runtime):
    runtime.packages |= {"flax": "0.12.1"}
    notebook.setup()
    assert runtime.pip == []


def test_a_cuda_plugin_of_jaxlibs_version_is_kept(runtime, capsys):
    runtime.with_nvidia()
    runtime.packages |= PLUGIN
    runtime.platform = "gpu"
    notebook.setup()
    assert runtime.pip == [["flax>=0.12", "jax==0.7.2", "jaxlib==0.7.2"]]
    assert "jax-cuda12-plugin 0.7.2: JAX uses 1 x kind of gpu" in capsys.readouterr().out


@pytest.mark.parametrize("plugin", [{}, {"jax-cuda12-plugin": "0.6.0"}], ids=["none", "of another version"])
def test_a_gpu_without_its_plugin_gets_that_of_the_installed_jax(runtime, plugin):
    runtime.with_nvidia()
    runtime.packages |= plugin
    runtime.platform = "gpu"
    notebook.setup()
    assert runtime.pip == [["jax>=0.7", "flax>=0.12", "jax[cuda12]", "jax==0.7.2", "jaxlib==0.7.2"]]


def test_a_jax_that_is_too_old_is_replaced_together_with_its_plugin(runtime):
    runtime.with_nvidia()
    runtime.packages |= {"jax": "0.5.2", "jaxlib": "0.5.2", "jax-cuda12-plugin": "0.5.2"}
    runtime.platform = "gpu"
    notebook.setup()
    assert runtime.pip == [["jax>=0.7", "flax>=0.12", "jax[cuda12]"]]


@pytest.mark.parametrize("variable", ["TPU_ACCELERATOR_TYPE", "COLAB_TPU_1VM"])
def test_a_tpu_gets_its_extra(runtime, monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    runtime.platform = "tpu"
    runtime.packages |= {"libtpu": "0.0.20.1"}
    notebook.setup()
    assert runtime.pip == [["flax>=0.12", "gcsfs>=2025.3", "jax==0.7.2", "jaxlib==0.7.2"]]
    del runtime.packages["libtpu"]
    notebook.setup()
    assert "jax[tpu]" in runtime.pip[1]


def test_an_accelerator_that_jax_does_not_use_is_an_error(runtime, monkeypatch):
    runtime.with_nvidia()
    runtime.packages |= PLUGIN
    runtime.error = "something\nthe plugin will not be used"
    message = (
        r"expected JAX to use the NVIDIA GPU of this runtime, found cpu \(.*plugin 0.7.2\). JAX says: the plugin will"
    )
    with pytest.raises(InputError, match=message):
        notebook.setup()
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    notebook.setup()


def test_a_package_that_the_kernel_has_imported_asks_for_a_restart(runtime, monkeypatch):
    runtime.packages |= {"numpy": "2.0.2", "scipy": "1.16.3"}
    runtime.new = {"numpy": "2.4.6", "scipy": "1.17.1", "flax": "0.12.0", "tqdm": "4.70.1"}
    loaded = SimpleNamespace(__file__=str(runtime.folder / "numpy" / "__init__.py"))
    monkeypatch.setitem(sys.modules, "numpy_of_this_kernel", loaded)
    message = r"restart the session .*: this kernel had imported numpy 2.0.2, now 2.4.6$"
    with pytest.raises(InputError, match=message):
        notebook.setup()
    assert len(runtime.pip) == 1
    with pytest.raises(InputError, match=message):  # again, without a restart
        notebook.setup()


def test_a_failure_of_pip_names_what_it_was_told(runtime):
    runtime.status = 1
    with pytest.raises(InputError, match=r"pip could not install flax>=0.12 jax==0.7.2 jaxlib==0.7.2"):
        notebook.setup()


def test_from_its_source_nothing_is_installed(runtime):
    del runtime.packages["bert-jax"]
    notebook.setup("demo")
    assert runtime.pip == []


@pytest.mark.parametrize("path", sorted(COLAB.glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_first_cell_is_the_same_in_all_notebooks(path):
    content = nbformat.read(path, as_version=4)
    first = next(cell for cell in content.cells if cell.cell_type == "code")
    assert first.source == SETUP_CELL.read_text().rstrip("\n")
    assert first.metadata["cellView"] == "form"
    shown = [line for line in first.source.splitlines() if "# @" in line]  # what Colab shows of a form
    assert shown[0].startswith("# @title ") and len(shown) <= 6
    assert content.metadata["accelerator"] == ("TPU" if path.stem == "tpu" else "GPU")


class FirstCell:
    """Runs the first cell in a folder where bert_jax is not installed; `pip` holds what is installed."""

    def __init__(self, monkeypatch):
        self.monkeypatch, self.pip, self.extras, self.status = monkeypatch, [], [], 0
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        monkeypatch.setattr("subprocess.run", self.run)
        monkeypatch.setattr(notebook, "setup", lambda *extras: self.extras.append(extras))

    def run(self, command, **_):
        assert command[:4] == [sys.executable, "-m", "pip", "install"] and "--no-deps" in command
        self.pip.append(command[-1])
        return SimpleNamespace(returncode=self.status)

    def __call__(self, folder, source=""):
        self.monkeypatch.chdir(folder)
        written = re.compile(r'^SOURCE = ".*"(?=  # @param {type: "string"}$)', re.MULTILINE)  # by the form
        code, count = written.subn(f"SOURCE = {source!r}", SETUP_CELL.read_text())
        assert count == 1
        exec(code, {})
        return self.pip.pop()


@pytest.fixture
def first_cell(monkeypatch):
    return FirstCell(monkeypatch)


def test_where_bert_jax_comes_from(first_cell, tmp_path):
    assert first_cell(COLAB) == str(COLAB.parent)
    assert first_cell(tmp_path, "https://example.org/a/bert_jax ") == "git+https://example.org/a/bert_jax"
    assert first_cell(tmp_path, "git+https://example.org/a/b") == "git+https://example.org/a/b"
    assert first_cell(tmp_path, "https://example.org/b.zip") == "https://example.org/b.zip"
    assert first_cell(tmp_path, "bert_jax-0.1-py3-none-any.whl") == "bert_jax-0.1-py3-none-any.whl"
    assert first_cell.extras == [("demo", "hub")] * 5
    with pytest.raises(RuntimeError, match="expected a wheel, a zip or the address of a repository in SOURCE"):
        first_cell(tmp_path)
    first_cell.status = 1
    with pytest.raises(RuntimeError, match=r"pip could not install 'b.whl': write another wheel"):
        first_cell(tmp_path, "b.whl")


def test_in_colab_a_button_uploads_the_wheel_once(first_cell, monkeypatch, tmp_path):
    wheel = tmp_path / "bert_jax-0.1.0-py3-none-any.whl"

    def upload():
        wheel.touch()
        return {wheel.name: b""}

    files = SimpleNamespace(upload=upload)
    for name in ("google", "google.colab"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(files=files))
    assert first_cell(tmp_path) == wheel.name
    files.upload = dict  # nothing was chosen
    assert first_cell(tmp_path) == str(wheel)
    wheel.unlink()
    with pytest.raises(RuntimeError, match="in SOURCE, found nothing"):
        first_cell(tmp_path)
