"""The section of a report with attention maps of a few rows."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from bert_jax.reports import figures
from bert_jax.reports.page import Html, Section, cell, joined, note, picture, shade, tagged

ROWS = 3  # number of rows whose attention is shown
_TOKENS = 48  # maximum number of tokens shown per row
_ALL_HEADS = 36  # maximum number of maps for which every head is shown; with more, means over heads are shown


class Attention(NamedTuple):
    """The tokens of a row and their attention maps.

    Attributes:
        tokens: the S tokens.
        maps: attention probabilities, float `[L, N, S, S]`: layer, head, query, key.
    """

    tokens: list[str]
    maps: np.ndarray


Attend = Callable[[int], Attention | None]  # row number -> attention of the row; None if it would be too large


def sections(rows: Iterable[tuple[str, int]], attend: Attend) -> list[Section]:
    """Return the section with the attention maps of some rows; no section if there are no rows.

    Args:
        rows: (title, number) of each row.
        attend: function from the number of a row to its attention.
    """
    parts = [joined([tagged("h3", title), *_of_row(attend(number))]) for title, number in rows]
    if not parts:
        return []
    words = (
        "The attention probability of each key (column) for each query (row); its square root is the shade. "
        "Every row of a complete map sums to 1."
    )
    return [Section("Attention in the worst mistakes", joined([note(words), *parts]))]


def _of_row(attention: Attention | None) -> list[Html]:
    if attention is None:
        return [note("Left out: the maps of this many tokens would be too large.")]
    tokens, maps = attention.tokens[:_TOKENS], attention.maps[..., :_TOKENS, :_TOKENS].astype(np.float64)
    layers, heads = maps.shape[:2]
    parts = []
    if len(attention.tokens) > len(tokens):
        parts.append(note(f"The first {len(tokens)} of {len(attention.tokens)} tokens."))
    if layers * heads <= _ALL_HEADS:
        maps_by_title = {f"layer {i + 1}, head {j + 1}": maps[i, j] for i in range(layers) for j in range(heads)}
        caption = "Every head of every layer."
    else:
        maps_by_title = {f"layer {i + 1}": maps[i].mean(0) for i in range(layers)}
        maps_by_title |= {f"layer {layers}, head {j + 1}": maps[-1, j] for j in range(heads)}
        caption = f"The mean over the {heads} heads of each layer, then each head of the last layer."
    caption += " Tokens run from left to right and from top to bottom."
    parts += [
        note(f"The last layer, mean over its {heads} heads:"),
        _map(tokens, maps[-1].mean(0)),
        picture(figures.small_maps(maps_by_title), "maps of the attention of layers and heads"),
        note(caption),
    ]
    return parts


def _map(tokens: list[str], shares: np.ndarray) -> Html:
    """Return a map as an HTML table, so that the reader's browser renders the tokens."""
    head = tagged("tr", cell("", "th"), *(tagged("th", tagged("span", token)) for token in tokens))
    lines = [
        tagged("tr", tagged("th", token), *(tagged("td", class_=shade(float(share) ** 0.5)) for share in row))
        for token, row in zip(tokens, shares, strict=True)
    ]
    inside = tagged("thead", head) + "\n" + tagged("tbody", joined(lines, "\n"))
    return tagged("div", tagged("table", Html(inside), class_="map"), class_="wide")
