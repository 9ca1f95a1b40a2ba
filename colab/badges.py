"""Give each notebook an "open in Colab" badge: `python colab/badges.py OWNER/REPOSITORY [BRANCH]`.

The repository is a public one of GitHub. The notebooks then install bert_jax from it where it is not installed.
Another call replaces the badges.
"""

import re
import sys
from pathlib import Path

import nbformat
from execute import COLAB, fingerprint

_BADGE = re.compile(r"\[!\[Open in Colab\]\([^)]*\)\]\([^)]*\)\n\n")
_SOURCE = re.compile(r'^SOURCE = os\.environ\.get\("BERT_JAX_SOURCE", "[^"]*"\)$', re.MULTILINE)


def add_badge(path: Path, repository: str, branch: str) -> None:
    """Write the badge of a notebook, and the repository as what it installs from; its outputs stay."""
    notebook = nbformat.read(path, as_version=4)
    current = notebook.metadata["bert_jax"]["outputs_of"] == fingerprint(notebook)
    address = f"https://colab.research.google.com/github/{repository}/blob/{branch}/{path.parent.name}/{path.name}"
    image = "https://colab.research.google.com/assets/colab-badge.svg"
    title = notebook.cells[0]
    title.source = f"[![Open in Colab]({image})]({address})\n\n{_BADGE.sub('', title.source)}"
    default = f'SOURCE = os.environ.get("BERT_JAX_SOURCE", "git+https://github.com/{repository}@{branch}")'
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source = _SOURCE.sub(lambda _: default, cell.source)
    if current:  # where bert_jax comes from changes no output
        notebook.metadata["bert_jax"]["outputs_of"] = fingerprint(notebook)
    nbformat.write(notebook, path)


def main(repository: str, branch: str = "main", *, folder: Path = COLAB) -> None:
    """Write the badges of all notebooks of a folder."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        sys.exit(f"badges: expected OWNER/REPOSITORY of GitHub, not {repository!r}")
    for path in sorted(folder.glob("*.ipynb")):
        add_badge(path, repository, branch)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
