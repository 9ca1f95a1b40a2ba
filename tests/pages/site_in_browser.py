"""Opens the built site in Chromium: python tests/pages/site_in_browser.py [OUT]

Builds the site, serves it on this machine alone, and opens pages at the width of a desktop and of a phone, light and
dark. Exits 1, saying why, when a page asks another host for something, reports an error or is wider than the screen,
when code is clipped on a desktop, or when the search finds another page first. Saves pictures in OUT (default: a new
folder). Needs playwright and a Chromium.
"""

import contextlib
import functools
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[2]
PAGES = ("", "get_started/", "command_line/", "recipes/", "api/inference/", "api/config/", "coming_from/", "packing/",
         "troubleshooting/", "tpu/", "attention/", "architecture/", "benchmarks/")  # fmt: skip
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}
# Words -> the page that the search finds first; None: any.
SEARCHES = {"layer_decay": None, "from_pretrained": None, "the vocabulary does not fit": None, "null-threshold": None,
            "state_dict": "weights/", "TPU price": "tpu/", "own table": "notebooks/own_table/"}  # fmt: skip
# The longest line of each block of code that is wider than its place.
CLIPPED = """[...document.querySelectorAll(".md-typeset pre > code")]
    .filter(code => code.scrollWidth > code.clientWidth + 1)
    .map(code => code.innerText.split("\\n").sort((a, b) => b.length - a.length)[0])"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of `folder`, on this machine alone."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def watched(page: Page, address: str, errors: list[str]) -> Page:
    """The page, whose errors and requests to other hosts are added to `errors`."""
    page.on("console", lambda said: errors.append(f"{page.url}: {said.text}") if said.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(f"{page.url}: {error}"))
    page.on("request", lambda asked: _note_host(asked.url, address, errors))
    page.on("response", lambda got: errors.append(f"{got.url}: {got.status}") if got.status >= 400 else None)
    return page


def _note_host(url: str, address: str, errors: list[str]) -> None:
    if urlparse(url).scheme in ("http", "https") and not url.startswith(address):
        errors.append(f"another host is asked: {url}")


def look(browser: Browser, address: str, out: Path) -> list[str]:
    """Opens all pages; returns what is wrong."""
    errors: list[str] = []
    for width, (w, h) in WIDTHS.items():
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport={"width": w, "height": h}, color_scheme=scheme)
            page = watched(context.new_page(), address, errors)
            for name in PAGES:
                page.goto(address + name)
                page.wait_for_load_state("networkidle")
                page.screenshot(path=out / f"{name.strip('/').replace('/', '_') or 'index'}-{width}-{scheme}.png")
                wide = page.evaluate("document.documentElement.scrollWidth") - w
                if wide > 0:
                    errors.append(f"{name} is {wide} pixels wider than a {width}")
                if width == "desktop":
                    errors += [f"{name} clips {line!r}" for line in page.evaluate(CLIPPED)]
            context.close()
    return errors + search(watched(browser.new_page(), address, errors), address, out)


def search(page: Page, address: str, out: Path) -> list[str]:
    """Types into the search; returns what was not found, or not first."""
    missing = []
    page.goto(address)
    field = page.locator("input.md-search__input")
    field.click()
    page.wait_for_load_state("networkidle")  # the index is there
    for words, first in SEARCHES.items():
        field.fill("")
        field.press_sequentially(words, delay=50)
        page.wait_for_timeout(2000)  # until the results are those of the last letter
        found = page.locator(".md-search-result__item a")
        where = (
            found.first.get_attribute("href").removeprefix(address).partition("?")[0] if found.count() else "nothing"
        )
        if where == "nothing" or first not in (None, where):
            missing.append(f"the search finds {where} for {words!r}, expected {first or 'a page'}")
        page.screenshot(path=out / f"search-{words.strip('-').replace(' ', '_')}.png")
    return missing


def main() -> int:
    """Builds and looks."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="site_"))
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as site, sync_playwright() as playwright:
        build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", site]
        subprocess.run(build, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True)
        installed = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        with served(Path(site)) as address:
            browser = playwright.chromium.launch(executable_path=installed, args=["--no-sandbox"])
            errors = look(browser, address, out)
            browser.close()
    print("\n".join(errors) or f"{len(PAGES)} pages are well; pictures in {out}")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
