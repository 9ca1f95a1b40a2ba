"""Attention maps of a few rows."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from bert_jax.reports import figures
from bert_jax.reports.page import Html, Section, cell, joined, note, picture, shade, tagged

ROWS = 3  # that are shown
_TOKENS = 48  # of a row that are shown
_ALL_HEADS = 36  # as many maps as this are all shown; of more, means


class Attention(NamedTuple):
    """A row's tokens, and how they attend to one another.

    Attributes:
        tokens: S of them.
        maps: float `[L, N, S, S]` by layer and head: the share that each token (third axis) takes of each (last axis).
    """

    tokens: list[str]
    maps: np.ndarray


Attend = Callable[[int], Attention | None]  # by the number of a row; None where it would be too large


def sections(rows: Iterable[tuple[str, int]], attend: Attend) -> list[Section]:
    """The maps of some rows.

    Args:
        rows: of each, what it is called and its number; none gives no section.
        attend: finds the maps.
    """
    parts = [joined([tagged("h3", title), *_of_row(attend(number))]) for title, number in rows]
    if not parts:
        return []
    words = (
        "How much the token of a row takes from the token of a column: the darker, the more, by the root of the share. "
        "Every row of a whole map adds up to 1."
    )
    return [Section("Attention in the worst of them", joined([note(words), *parts]))]


def _of_row(attention: Attention | None) -> list[Html]:
    if attention is None:
        return [note("Left out: the maps of this number of tokens would be too large.")]
    tokens, maps = attention.tokens[:_TOKENS], attention.maps[..., :_TOKENS, :_TOKENS].astype(np.float64)
    layers, heads = maps.shape[:2]
    parts = []
    if len(attention.tokens) > len(tokens):
        parts.append(note(f"The first {len(tokens)} of {len(attention.tokens)} tokens."))
    if layers * heads <= _ALL_HEADS:
        small = {f"layer {i + 1}, head {j + 1}": maps[i, j] for i in range(layers) for j in range(heads)}
        caption = "Every head of every layer."
    else:
        small = {f"layer {i + 1}": maps[i].mean(0) for i in range(layers)}
        small |= {f"layer {layers}, head {j + 1}": maps[-1, j] for j in range(heads)}
        caption = f"The mean over the {heads} heads of each layer, then each head of the last."
    caption += " Tokens run from left to right and from top to bottom."
    parts += [
        note(f"The last layer, the mean over its {heads} heads:"),
        _map(tokens, maps[-1].mean(0)),
        picture(figures.small_maps(small), "maps of the attention of layers and heads"),
        note(caption),
    ]
    return parts


def _map(tokens: list[str], shares: np.ndarray) -> Html:
    """One map as a table, whose letters are those of the reader's machine."""
    head = tagged("tr", cell("", "th"), *(tagged("th", tagged("span", token)) for token in tokens))
    lines = [
        tagged("tr", tagged("th", token), *(tagged("td", class_=shade(float(share) ** 0.5)) for share in row))
        for token, row in zip(tokens, shares, strict=True)
    ]
    inside = tagged("thead", head) + "\n" + tagged("tbody", joined(lines, "\n"))
    return tagged("div", tagged("table", Html(inside), class_="map"), class_="wide")
