"""Plot the curves of a run."""

import io
import math
from typing import Any

from bert_jax import storage
from bert_jax.errors import printable
from bert_jax.extras import how_to_install
from bert_jax.training.metrics import read_metrics
from bert_jax.training.workdir import Workdir

# Panel -> suffixes of its curves' names. A panel without a curve is left out.
_PANELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("loss", ("/loss", "_loss", "/cross_entropy", "/mse")),
    ("accuracy and other scores", ("accuracy", "/f1", "/matthews", "/pearson", "/spearman", "/exact", "/exact_match")),
    ("share of spans found", ("/spans_found",)),
    ("learning rate", ("/learning_rate",)),
    ("gradient norm", ("/grad_norm",)),
    ("sequences per second", ("/sequences_per_second",)),
    ("parameter norm", ("/param_norm",)),
)


def write_report(workdir: Workdir, title: str) -> str:
    """Plot `metrics.jsonl` as `report.png`: one panel per kind of metric, training as a line, evaluation as dots.

    Returns:
        A message for the user: where the curves are, or how to install matplotlib.
    """
    try:
        from matplotlib.figure import Figure  # imported here, as the import takes half a second
    except ImportError:
        return f"for curves: {how_to_install('plots')}"

    curves = _curves(read_metrics(workdir.metrics))
    panels = [(name, _of(curves, ends)) for name, ends in _PANELS]
    panels = [(name, chosen) for name, chosen in panels if chosen]
    columns = min(2, len(panels)) or 1
    rows = math.ceil(len(panels) / columns) or 1
    width, height = 6 * columns, 3.2 * rows
    figure = Figure(figsize=(width, height))
    figure.suptitle(_plain(title), y=1 - 0.1 / height, va="top")
    # The margins are set by hand: matplotlib's layout engines take longer than all other work here.
    figure.subplots_adjust(0.7 / width, 0.5 / height, 1 - 0.15 / width, 1 - 0.75 / height, wspace=0.18, hspace=0.4)
    for i, (name, chosen) in enumerate(panels):
        _draw(figure.add_subplot(rows, columns, i + 1), name, chosen)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    storage.write_atomically(workdir.report, picture.getvalue())
    return f"curves in {workdir.report}"


def _draw(axes: Any, name: str, curves: dict[str, list[tuple[int, float]]]) -> None:
    for label, points in curves.items():
        steps, values = zip(*points, strict=True)
        evaluated = label.startswith("eval/")
        axes.plot(
            steps, values, label=_plain(label), marker="o" if evaluated or len(points) == 1 else None, markersize=3.5
        )
    axes.set_title(name, fontsize=10)
    axes.set_xlabel("step")
    axes.ticklabel_format(axis="y", scilimits=(-3, 4))  # labels that fit the margin
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


def _plain(text: str) -> str:
    """Escape text so that matplotlib does not read $ as the start of a formula."""
    return printable(text).replace("$", r"\$")


def _curves(lines: list[dict[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    curves: dict[str, list[tuple[int, float]]] = {}
    for line in lines:
        for name, value in line.items():
            if name != "step" and isinstance(value, int | float):
                curves.setdefault(name, []).append((line["step"], value))
    return curves


def _of(curves: dict[str, list[tuple[int, float]]], ends: tuple[str, ...]) -> dict[str, list[tuple[int, float]]]:
    return {name: points for name, points in curves.items() if name.endswith(ends)}
