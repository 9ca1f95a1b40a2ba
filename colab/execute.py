"""Execute notebooks from a clean kernel, in full, and save their outputs: `python colab/execute.py [NAME ...]`.

The solutions of their exercises, which a reader sees folded, are executed too, after the cell that holds them.
"""

import hashlib
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import nbclient
import nbformat

ROOT = Path(__file__).resolve().parent.parent
COLAB = ROOT / "colab"
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")  # a terminal's colours and bold type, which a web page would show as text
_SOLUTION = re.compile(r"<details><summary>Solution</summary>\n\n```python\n(.*?)```\n.*?</details>", re.DOTALL)


def is_setup(cell: nbformat.NotebookNode) -> bool:
    """Return whether a cell is the one that installs bert_jax (colab/setup_cell.py)."""
    return cell.metadata.get("cellView") == "form"


def fingerprint(notebook: nbformat.NotebookNode) -> str:
    """Return a hash of the code that the saved outputs came from; where bert_jax is installed from changes none."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code" and not is_setup(cell)]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()


def solutions(notebook: nbformat.NotebookNode) -> list[str]:
    """Return the code of the solutions of a notebook's exercises."""
    return [code for cell in notebook.cells if cell.cell_type == "markdown" for code in _SOLUTION.findall(cell.source)]


def execute(path: Path) -> nbformat.NotebookNode:
    """Run every cell of a notebook, and the solutions where they are, in the folder of the notebooks.

    Temporary files are deleted.

    Returns:
        The notebook with its outputs.
    """
    notebook = nbformat.read(path, as_version=4)
    cells = []
    for cell in notebook.cells:
        code = _SOLUTION.findall(cell.source) if cell.cell_type == "markdown" else []
        cells += [cell, *(nbformat.v4.new_code_cell(each, metadata={"tags": ["solution"]}) for each in code)]
    notebook.cells = cells
    resources = {"metadata": {"path": COLAB}}
    client = nbclient.NotebookClient(
        notebook, timeout=3600, kernel_name="python3", resources=resources, record_timing=False
    )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        client.execute(env=os.environ | {"TMPDIR": folder})
    notebook.cells = [cell for cell in notebook.cells if "solution" not in cell.metadata.get("tags", [])]
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
