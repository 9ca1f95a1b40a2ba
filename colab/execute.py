"""Execute notebooks from a clean kernel, in full, and save their outputs: `python colab/execute.py [NAME ...]`."""

import hashlib
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import nbclient
import nbformat

COLAB = Path(__file__).resolve().parent
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")  # a terminal's colours and bold type, which a web page would show as text


def fingerprint(notebook: nbformat.NotebookNode) -> str:
    """Return a hash of the code that the saved outputs came from."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()


def execute(path: Path) -> nbformat.NotebookNode:
    """Run every cell of a notebook, in the folder of the notebooks, and delete its temporary files; return it with its
    outputs."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": COLAB}}
    client = nbclient.NotebookClient(
        notebook, timeout=3600, kernel_name="python3", resources=resources, record_timing=False
    )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        client.execute(env=os.environ | {"TMPDIR": folder})
    return notebook


def save(path: Path, notebook: nbformat.NotebookNode) -> None:
    """Write an executed notebook, without colours and what its cells wrote to stderr (compilers' warnings)."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                if "text" in output:
                    output.text = _ESCAPE.sub("", output.text)
    notebook.metadata["bert_jax"] = {"outputs_of": fingerprint(notebook)}
    nbformat.write(notebook, path)


def main(names: list[str]) -> None:
    """Execute the notebooks with these names, or all."""
    for path in sorted(COLAB.glob("*.ipynb")):
        if not names or path.stem in names:
            start = time.perf_counter()
            save(path, execute(path))
            print(f"{path.name}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
