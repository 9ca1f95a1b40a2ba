"""Hooks of MkDocs: pages from elsewhere in the repository, the notebooks as pages, and links between all of them.

A page is read on the site and in a checkout alike, so its links are paths of the repository. A link to a file that the
site does not have, such as a module, becomes its text alone.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
# Page of the site -> its file in the repository; all others are in docs/.
ELSEWHERE = {
    "launch.md": "launch/README.md",
    "gke.md": "launch/gke/README.md",
    "architecture.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "benchmarks.md": "benchmarks/RESULTS.md",
}
NOTEBOOKS = {f"notebooks/{path.stem}.md": f"colab/{path.name}" for path in sorted((ROOT / "colab").glob("*.ipynb"))}
# What the site has in place of a file.
_INSTEAD = {"README.md": "index.md", "configs": "recipes.md"}
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
_DOCS_LINK = re.compile(r"\[([^\]]*)\]\((\.\./(?:docs|launch)/[^)\s]+)\)")  # of a notebook
_ON_GITHUB = re.compile(r"\]\(https://github\.com/[\w.-]+/[\w.-]+/blob/main/(?=docs/|launch/)")  # `make release`
_BADGE = re.compile(r"\[!\[Open in Colab\]\([^)]*\)\]\(([^)]*)\)")  # whose picture would come from another host
_FENCE = re.compile(r"^ *```")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of `ELSEWHERE`, the notebooks, and the pictures of both."""
    pictures = [f"benchmarks/{path.name}" for path in (ROOT / "benchmarks").glob("*.png")]
    for name, source in (ELSEWHERE | dict(zip(pictures, pictures, strict=True))).items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    import nbformat
    from nbconvert import MarkdownExporter  # slow to import, and the tests read the tables of this file alone

    for name, source in NOTEBOOKS.items():
        naming = {"unique_key": Path(name).stem, "output_files_dir": "pictures"}
        notebook = nbformat.read(ROOT / source, as_version=4)
        for cell in notebook.cells:
            if cell.metadata.get("cellView") == "form":  # as Colab shows it: without its code
                cell.source = "\n".join(line for line in cell.source.splitlines() if "# @" in line)
        markdown, exported = MarkdownExporter().from_notebook_node(notebook, naming)
        files.append(File.generated(config, name, content=markdown))
        for picture, content in exported["outputs"].items():
            files.append(File.generated(config, f"notebooks/{picture}", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Makes links that are paths of the repository links of the site."""
    here = posixpath.dirname(page.file.src_uri)
    if notebook := NOTEBOOKS.get(page.file.src_uri):  # outputs may look like links; pictures are those of the page
        markdown = _BADGE.sub(r"[Open in Colab](\1)", markdown.replace("<details>", '<details markdown="1">'))
        markdown = _ON_GITHUB.sub("](../", markdown)
        return _DOCS_LINK.sub(lambda link: _site_link(link, notebook, here), markdown)
    source = ELSEWHERE.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    lines, fenced = [], False
    for line in markdown.splitlines():
        fenced ^= bool(_FENCE.match(line))
        lines.append(line if fenced else _LINK.sub(lambda link: _site_link(link, source, here), line))
    return "\n".join(lines) + "\n"


def _site_link(link: re.Match[str], source: str, here: str) -> str:
    """A link in the file `source` of the repository, for a page in the folder `here` of the site.

    One that leads nowhere stays as it is, which the build reports.
    """
    text, target = link.groups()
    path, _, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", target):
        return link[0]
    found = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    pages = {file: name for name, file in (ELSEWHERE | NOTEBOOKS).items()} | _INSTEAD
    page = found.removeprefix("docs/") if found.startswith("docs/") else pages.get(found)
    if page is None and found.endswith(".png"):
        page = found
    if page is None:
        return text if (ROOT / found).exists() else link[0]
    return f"[{text}]({posixpath.relpath(page, here or '.')}{'#' + anchor if anchor else ''})"


# Page -> words by which the search finds it before all others.
FOUND_BY = {"weights.md": ["state_dict", "PyTorch weights"]}


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Gives pages their words for the search, and the first page its whole width, for three doors side by side."""
    page.meta["tags"] = FOUND_BY.get(page.file.src_uri, [])
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
    return html
