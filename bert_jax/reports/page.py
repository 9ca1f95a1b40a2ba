"""A self-contained HTML page: no script, no network, embedded figures, all text escaped."""

import base64
import html
import io
import numbers
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax import storage
from bert_jax.errors import InputError, printable
from bert_jax.reports.style import CSS, SHADES
from bert_jax.version import __version__

LONGEST_TEXT = 600  # maximum number of characters shown of a text
_DPI = 144
_FORMATS = (".html", ".htm")
# Characters that HTML or UTF-8 cannot represent: controls except tab and newlines, and halves of surrogate pairs; and
# characters that reverse the order of the text after them, so that a page would show a wrong label.
_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# A second defence if an escape fails: the browser runs no scripts and loads nothing from the network.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class Html(str):
    """Text that is already HTML. All other text is escaped when it is added to a page."""


class Section(NamedTuple):
    """A section of a page with a title."""

    title: str
    body: Html

    @property
    def name(self) -> str:
        """Return the id of the section, for links."""
        return "part-" + re.sub(r"\W+", "-", self.title.lower())


class Heading(NamedTuple):
    """The heading of a report: model, data and scores."""

    model: str
    data: str
    scores: Mapping[str, float]


def check_path(path: storage.PathLike | None) -> None:
    """Check before an evaluation that its report can be written; None means no report.

    Raises:
        InputError: the file is not named .html or cannot be written.
    """
    if path is None:
        return
    place = storage.Path(path)
    if not place.name.lower().endswith(_FORMATS):
        raise InputError(f"{path}: expected a file named .html to write the report to")
    storage.check_writable(place)


def as_html(value: Any) -> Html:
    """Format a value as HTML: HTML unchanged, numbers with few digits, None as a dash, other text escaped."""
    if isinstance(value, Html):
        return value
    if value is None:
        return Html("–")
    if isinstance(value, numbers.Integral):
        return Html(f"{int(value):,}")
    if isinstance(value, numbers.Real):
        number = float(value)
        return Html(f"{number:.4f}" if abs(number) < 1000 else f"{number:.6g}")
    return Html(html.escape(_UNSHOWABLE.sub("\ufffd", str(value))))


def tagged(name: str, *content: Any, **attributes: str) -> Html:
    """Return an HTML element around `content`, formatted by `as_html`; `class_` is the attribute class."""
    attribute_text = "".join(f' {key.rstrip("_")}="{as_html(value)}"' for key, value in attributes.items() if value)
    return Html(f"<{name}{attribute_text}>{''.join(map(as_html, content))}</{name}>")


def joined(parts: Iterable[Any], separator: str = "") -> Html:
    """Join parts, formatted by `as_html`, with the HTML `separator`."""
    return Html(separator.join(map(as_html, parts)))


def note(text: str) -> Html:
    """Return a paragraph of explanation."""
    return tagged("p", text, class_="note")


def shortened(text: str, limit: int = LONGEST_TEXT) -> str:
    """Cut a text to `limit` characters, followed by its length."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def cell(content: Any, kind: str = "td", class_: str = "") -> Html:
    """Return a table cell (unchanged if it is one already); numbers are right-aligned."""
    if isinstance(content, Html) and content.startswith(("<td", "<th")):
        return content
    if content is None or isinstance(content, numbers.Real):
        return tagged(kind, content, class_=f"n {class_}".strip())
    return tagged(kind, content, class_=class_)


def text_cell(text: str) -> Html:
    """Return a table cell with a text from the data, in the text's own writing direction."""
    return tagged("td", shortened(text), class_="t", dir="auto")


def line_cell(line: int) -> Html:
    """Return a table cell with a line number, without commas."""
    return tagged("td", str(line), class_="n")


def shade(share: float) -> str:
    """Return the CSS class that shades a cell by a share from 0 to 1."""
    step = round(min(max(share, 0.0), 1.0) * SHADES) if share == share else 0
    return f"s{step}" if step else ""


def html_table(name: str, header: Sequence[Any], rows: Iterable[Sequence[Any]], total: Sequence[Any] = ()) -> Html:
    """Return an HTML table.

    Args:
        name: id of the table, unique on the page.
        header: names of the columns.
        rows: the contents of each row's cells, for `cell`.
        total: the contents of a highlighted last row.
    """
    body = [[cell(content) for content in row] for row in rows]
    first = body[0] if body else [Html("")] * len(header)
    right = [content.startswith('<td class="n') for content in first]
    names = [tagged("th", title, class_="n" if is_right else "") for title, is_right in zip(header, right, strict=True)]
    lines = [tagged("tr", *cells) for cells in body]
    if total:
        lines.append(tagged("tr", *map(cell, total), class_="total"))
    inside = tagged("thead", tagged("tr", *names)) + "\n" + tagged("tbody", joined(lines, "\n"))
    return tagged("div", tagged("table", Html(inside), id=name), class_="wide")


def picture(figure: Any, what: str) -> Html:
    """Return a matplotlib figure as an embedded image with the alternative text `what`."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    width, height = (f"{inches * 96:.0f}" for inches in figure.get_size_inches())
    source = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    return tagged("figure", Html(f'<img alt="{as_html(what)}" width="{width}" height="{height}" src="{source}">'))


def write_page(path: storage.PathLike, heading: Heading, sections: Sequence[Section]) -> None:
    """Write a page atomically."""
    links = [tagged("a", part.title, href=f"#{part.name}") for part in sections]
    scores = [(name, value) for name, value in heading.scores.items()]
    title = f"{heading.model} on {heading.data}"
    body = [
        tagged("h1", "Evaluation"),
        tagged("p", tagged("code", heading.model), " on ", tagged("code", heading.data)),
        tagged("nav", joined(links, " ")),
        html_table("scores", ("score", "value"), scores),
        *(tagged("section", tagged("h2", part.title), part.body, id=part.name) for part in sections),
        tagged("footer", f"Written by bert-jax {__version__}. This page contains texts of the evaluated data."),
    ]
    storage.write_atomically(
        path,
        "<!DOCTYPE html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{as_html(printable(title))}</title>\n<style>{CSS}</style>\n</head>\n"
        f"<body>\n{joined(body, chr(10))}\n</body>\n</html>\n",
    )
