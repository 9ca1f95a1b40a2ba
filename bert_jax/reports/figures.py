"""Figures of reports. They show no text from the data: fonts may lack letters, and matplotlib reads $ as a formula."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_jax.reports.measures import Calibration

_DOTS = 4000  # more points than this are drawn as a hexbin plot
_INK, _BLUE, _GREY = "#1d1d1f", "#2667c4", "#9a9aa2"
_PANELS = 6  # small maps per row


def calibration_figure(calibration: Calibration, probability: str, share: str) -> Any:
    """Draw a reliability diagram, with the number of answers per bin below it.

    Args:
        calibration: the bins.
        probability, share: names of the axes.
    """
    figure = _figure(6.0, 5.0)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    width = np.diff(calibration.edges)
    full = calibration.count > 0
    places = calibration.edges[:-1][full]
    above.bar(places, calibration.share[full], width[full], align="edge", color=_BLUE, alpha=0.35, edgecolor=_BLUE)
    above.plot([0, 1], [0, 1], "--", color=_GREY, linewidth=1)
    above.plot(calibration.probability[full], calibration.share[full], "o-", color=_BLUE, markersize=4, linewidth=1)
    above.set(ylim=(0, 1.02), ylabel=share)
    below.bar(places, calibration.count[full], width[full], align="edge", color=_GREY, edgecolor="white")
    below.set(xlim=(0, 1), xlabel=probability, ylabel="count")
    _calm(above, below)
    return figure


def heat(shares: np.ndarray) -> Any:
    """Draw a confusion matrix of the shares [C, C] of each class's rows, without class names."""
    figure = _figure(7.0, 6.2)
    axes = figure.subplots()
    image = axes.imshow(np.sqrt(shares), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    axes.set(xlabel="answer (number of the class)", ylabel="class")
    bar = figure.colorbar(image, ax=axes, shrink=0.8, label="share of the class's rows")
    ticks = [0, 0.01, 0.05, 0.1, 0.25, 0.5, 1]
    bar.set_ticks(np.sqrt(ticks).tolist(), labels=[f"{tick:g}" for tick in ticks])
    return figure


def scatter(x: np.ndarray, y: np.ndarray, x_name: str, y_name: str, diagonal: bool) -> Any:
    """Draw `y` [n] against `x` [n], with the line of equality if `diagonal`."""
    figure = _figure(6.2, 5.2)
    axes = figure.subplots()
    if diagonal:
        ends = [float(min(x.min(), y.min())), float(max(x.max(), y.max()))]
        axes.plot(ends, ends, "--", color=_GREY, linewidth=1)
    if len(x) > _DOTS:
        cells = axes.hexbin(x, y, gridsize=50, mincnt=1, bins="log", cmap="Blues", linewidths=0.1)
        figure.colorbar(cells, ax=axes, shrink=0.8, label="rows")
    else:
        axes.plot(x, y, "o", color=_BLUE, markersize=3.5, alpha=max(0.25, min(0.7, 6 / math.sqrt(len(x) + 1))),
                  markeredgewidth=0)  # fmt: skip
    axes.set(xlabel=x_name, ylabel=y_name)
    _calm(axes)
    return figure


def histogram(sets: Mapping[str, np.ndarray], name: str, edges: np.ndarray, at: float | None = None) -> Any:
    """Draw a histogram of one or two sets of values; values beyond the edges are counted in the outermost bars.

    Args:
        sets: name -> values [n]; the names must not come from the data.
        name: name of the values.
        edges: edges of the bars.
        at: value at which a line is drawn.
    """
    figure = _figure(6.2, 3.2)
    axes = figure.subplots()
    clipped = [np.clip(values, edges[0], edges[-1]) for values in sets.values()]
    colours = [_BLUE, "#d98324"][: len(clipped)]
    axes.hist(clipped, bins=edges, label=list(sets), color=colours, edgecolor="white", linewidth=0.5)
    if at is not None:
        axes.axvline(at, color=_INK, linestyle="--", linewidth=1)
    axes.set(xlabel=name, ylabel="count")
    if len(sets) > 1:
        axes.legend(frameon=False)
    _calm(axes)
    return figure


def small_maps(maps: Mapping[str, np.ndarray]) -> Any:
    """Draw small attention maps [S, S] with their titles, shaded by the square root of the attention."""
    rows = -(-len(maps) // _PANELS)
    columns = min(len(maps), _PANELS)
    figure = _figure(1.6 * columns, 1.75 * rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (title, shares) in zip(grid, maps.items(), strict=False):
        axes.imshow(np.sqrt(shares), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(title, fontsize=8)
        axes.set(xticks=[], yticks=[])
    for axes in grid[len(maps) :]:
        axes.set_axis_off()
    return figure


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure  # imported here, as the import takes half a second

    return Figure(figsize=(width, height), layout="constrained")


def _calm(*panels: Any) -> None:
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
