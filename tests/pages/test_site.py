"""The documentation site: builds without a warning, holds every page, and loads nothing from another host."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from blocks import PAGES, ROOT

pytest.importorskip("mkdocs", reason="needs MkDocs: pip install 'bert-jax[docs]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder that `make site` would write."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stdout + done.stderr
    return folder


_LOADING = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src", "video": "src"}


class Loads(HTMLParser):
    """What a page has a browser load.

    Attributes:
        urls: of scripts, style sheets, pictures, fonts and frames.
        text: of the page, without what scripts and styles hold.
    """

    def __init__(self, page: str):
        super().__init__()
        self.urls: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if (url := found.get(_LOADING.get(tag, ""))) and found.get("rel") not in ("next", "prev", "canonical"):
            self.urls.append(url)


def test_every_page_is_built_and_in_the_search_index(site):
    built = {path.parent.relative_to(site).as_posix() for path in site.rglob("index.html")}
    names = {Path(page).relative_to("docs").with_suffix("").as_posix() for page in PAGES if page.startswith("docs/")}
    assert names - {"index"} <= built
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0].rstrip("/") for entry in index["docs"]}
    assert built - {"."} <= found
    texts = " ".join(entry["title"] + entry["text"] for entry in index["docs"])
    for word in ("from_pretrained", "RESOURCE_EXHAUSTED", "--null-threshold", "optimizer.layer_decay", "segment_ids"):
        assert word in texts, word


def test_no_page_loads_anything_from_another_host(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        for url in Loads(page.read_text()).urls:
            assert not re.match(r"(https?:)?//", url), f"{page}: {url}"
    for sheet in site.rglob("*.css"):
        for url in re.findall(r"(?:url\(|@import )['\"]?([^'\")]+)", sheet.read_text()):
            assert url.startswith(("data:", "#")) or not re.match(r"(https?:)?//", url), f"{sheet}: {url}"


def test_every_public_name_is_in_the_reference(site):
    import bert_jax

    text = "".join(page.read_text() for page in (site / "api").rglob("*.html"))
    for name in bert_jax.__all__:
        assert f'id="bert_jax.{name}"' in text, name


def test_arguments_and_attributes_of_the_reference_are_described(site):
    """A name that the docstring parser misreads would hold a comma."""
    names = []
    for page in (site / "api").rglob("*.html"):
        for item in re.findall(r'field-body">\s*<b><code>(.*?)</code></b>', page.read_text()):
            names.append(re.sub("<.*?>", "", item))
    assert {"in_json", "prompt_name", "workdir"} <= set(names)
    assert "<td><code>attention_bias</code></td>" in (site / "api" / "config" / "index.html").read_text()
    assert not [name for name in names if "," in name]


def test_the_first_page_shows_the_learning_picture_the_installation_and_three_doors(site):
    page = (site / "index.html").read_text()
    [picture] = re.findall(r'<img alt="The loss[^>]* src="([^"]+)"', page)
    assert (site / picture).read_bytes() == (ROOT / "docs" / "learning.png").read_bytes()  # benchmarks/ has a namesake
    assert page.index("<img alt") < page.index("<strong>Install<") < page.index("grid cards doors")
    doors = page.partition("grid cards doors")[2].partition("</ul>")[0].split("<li>")[1:]
    assert [re.findall("<strong>(.*?)</strong>", door) for door in doors] == [
        ["I have a table"], ["I have PyTorch weights"], ["I have a TPU"],
    ]  # fmt: skip
    targets = [re.findall('href="([^"#]+)', door) for door in doors]
    assert [len(links) for links in targets] == [3, 3, 3]
    assert all((site / link / "index.html").exists() for links in targets for link in links), targets
    assert "weights/" in targets[1] and "tpu/" in targets[2]
    assert re.search('data-md-type="navigation" *hidden', page) and re.search('data-md-type="toc" *hidden', page)


def test_the_page_of_benchmarks_shows_its_own_pictures(site):
    """Two of the repository's pictures are called learning.png."""
    folder = site / "benchmarks"
    pictures = re.findall(r'<img [^>]*src="([^"]+png)"', (folder / "index.html").read_text())
    assert len(pictures) == 4
    for picture in pictures:
        assert (folder / picture).read_bytes() == (ROOT / "benchmarks" / Path(picture).name).read_bytes()


def test_the_search_knows_pages_by_the_words_of_their_readers(site):
    """`site_in_browser.py` types them into the search."""
    index = json.loads((site / "search" / "search_index.json").read_text())
    tags = {entry["location"].partition("#")[0]: entry["tags"] for entry in index["docs"] if entry.get("tags")}
    assert tags == {"weights/": ["state_dict", "PyTorch weights"]}
