"""A page as a browser would read it, for the tests."""

from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "img"}


class Page(HTMLParser):
    """A page's elements, checked to be closed where they should be.

    Attributes:
        tables: by id: the header and the rows, each a list of the texts of its cells.
        tags: of all elements, with their attributes.
        text: all that is read, without the style sheet.
        titles: of the sections.
    """

    def __init__(self, path: Path):
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.titles: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self._rows: list[list[str]] = []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self._rows = self.tables.setdefault(dict(attrs).get("id") or "", [])
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
        elif tag == "h2":
            self.titles.append("")

    def handle_endtag(self, tag):
        assert self._open and self._open.pop() == tag, f"</{tag}> closes nothing, in line {self.getpos()[0]}"

    def handle_data(self, data):
        if "style" in self._open:
            return
        self.text += data
        if "td" in self._open or "th" in self._open:
            self._rows[-1][-1] += data
        if "h2" in self._open:
            self.titles[-1] += data

    def column(self, table: str, name: str) -> list[str]:
        """The cells under a name."""
        header, *rows = self.tables[table]
        return [row[header.index(name)] for row in rows]


def numbers(cells):
    return [float(cell.replace(",", "")) for cell in cells]


def check_alone(page: Page) -> None:
    """That a page asks nothing of the network and runs nothing."""
    for tag, attributes in page.tags:
        assert tag not in ("script", "iframe", "link", "object"), tag
        assert not [name for name in attributes if name.startswith("on")], attributes
        for name in ("src", "href"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:image/png;base64,", "#")), value
    assert any("default-src 'none'" in (attributes.get("content") or "") for _, attributes in page.tags)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {attributes["href"] for tag, attributes in page.tags if tag == "a"} <= {f"#{name}" for name in ids}
