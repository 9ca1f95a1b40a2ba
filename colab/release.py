"""Write the public address of this repository wherever it belongs: `python colab/release.py OWNER/NAME`.

The repository is one of GitHub. README.md gets badges that open the notebooks in Colab, and what to install; the
notebooks get a badge, links to the documentation, and the address that they install from; the site gets a link; and
pyproject.toml gets the address, which the package's messages read from its metadata. Another call replaces what an
earlier one wrote.
"""

import re
import sys
from pathlib import Path

import nbformat
from execute import ROOT

_GITHUB = "https://github.com/"
_COLAB = "https://colab.research.google.com"
_BADGE = r"\[!\[Open in Colab\]\([^)]*\)\]\([^)]*\)"
_SOURCE = re.compile(r'^SOURCE = ".*?"  (?=# @param)', re.MULTILINE)
_DOCS_LINK = re.compile(r"\]\((?:\.\./|https://github\.com/[\w.-]+/[\w.-]+/blob/main/)((?:docs|launch)/)")


def write_setup_cell(notebook: nbformat.NotebookNode, setup_cell: str) -> None:
    """Make colab/setup_cell.py the first code cell of a notebook, a form whose code is hidden."""
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    first.source = setup_cell.rstrip("\n")
    first.metadata.update(cellView="form", jupyter={"source_hidden": True})


def badge(repository: str, name: str) -> str:
    """Return the Markdown of the badge that opens a notebook of the repository in Colab."""
    return f"[![Open in Colab]({_COLAB}/assets/colab-badge.svg)]({_COLAB}/github/{repository}/blob/main/colab/{name})"


def release_notebook(path: Path, repository: str, setup_cell: str) -> None:
    """Write the badge, the links and the first cell of a notebook; its outputs stay."""
    notebook = nbformat.read(path, as_version=4)
    write_setup_cell(notebook, setup_cell)
    title = notebook.cells[0]
    text = re.sub(_BADGE + "\n\n", "", title.source)
    title.source = f"{badge(repository, path.name)}\n\n{text}"
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _DOCS_LINK.sub(rf"]({_GITHUB}{repository}/blob/main/\1", cell.source)
    nbformat.write(notebook, path)


def release_readme(text: str, repository: str) -> str:
    """Return README.md with badges in its table of notebooks, and with commands that install from the repository."""
    row = re.compile(rf"^(\| \[[^]]*\]\(colab/(\w+\.ipynb)\))(?: {_BADGE})?", re.MULTILINE)
    text = row.sub(lambda found: f"{found[1]} {badge(repository, found[2])}", text)
    package = f"'bert-jax[demo] @ git+{_GITHUB}{repository}'"
    return _between("install", text, f"Without a checkout: `pip install {package}`, with the extra that you need.\n")


def release_mkdocs(text: str, repository: str) -> str:
    """Return mkdocs.yml with a link to the repository at the foot of each page.

    The theme would ask GitHub's servers about a `repo_url`, and no page loads anything from another host.
    """
    text = re.sub(r"^  social: .*\n", "", text, flags=re.MULTILINE)
    link = f'  social: [{{icon: fontawesome/brands/github, link: "{_GITHUB}{repository}"}}]\n'
    return re.sub(r"^extra:\n", lambda found: found[0] + link, text, flags=re.MULTILINE)


def release_project(text: str, repository: str) -> str:
    """Return pyproject.toml with the addresses of the project."""
    text = re.sub(r"^\[project\.urls\]\n(?:\w+ = .*\n)*\n", "", text, flags=re.MULTILINE)
    address = f"{_GITHUB}{repository}"
    urls = {"Repository": address, "Issues": f"{address}/issues", "Changelog": f"{address}/blob/main/CHANGELOG.md"}
    lines = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    return text.replace("[project.scripts]\n", f"[project.urls]\n{lines}\n[project.scripts]\n")


def _between(name: str, text: str, content: str) -> str:
    """Return a text with other content between the comments that begin and end a part of it."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"release: expected {begin.strip()} and {end.strip()} in README.md")
    return before + begin + content + end + after


def main(repository: str, root: Path = ROOT) -> None:
    """Write the address into all files of a checkout."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        sys.exit(f"release: expected REPOSITORY=OWNER/NAME of GitHub, found {repository!r}")
    setup_cell = root / "colab" / "setup_cell.py"
    source = f'SOURCE = "git+{_GITHUB}{repository}"  '
    setup_cell.write_text(_SOURCE.sub(source, setup_cell.read_text()))
    for path in sorted((root / "colab").glob("*.ipynb")):
        release_notebook(path, repository, setup_cell.read_text())
    texts = {"README.md": release_readme, "mkdocs.yml": release_mkdocs, "pyproject.toml": release_project}
    for name, release in texts.items():
        text = (root / name).read_text()
        if (released := release(text, repository)) != text:  # make installs again where pyproject.toml is newer
            (root / name).write_text(released)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
