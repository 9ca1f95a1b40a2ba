"""What a person watching a run sees: a live bar in a terminal, now and then a line elsewhere, or nothing."""

import sys
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from bert_jax.training.throughput import Chrono

_SHOWN = ("loss", "mlm_accuracy", "accuracy", "learning_rate", "sequences_per_second", "tokens_per_second", "mfu")


class Bar:
    """Shows how far a run is.

    Args:
        total: steps of the whole run.
        start: steps done already.
        show: False shows nothing at all.
        chrono: of the run; starting and compiling are left out when the time left is reckoned.
    """

    def __init__(self, total: int, start: int, show: bool, chrono: Chrono):
        self._total, self._start, self._show, self._chrono = total, start, show, chrono
        self._console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self._live: Progress | None = None
        self._task: TaskID | None = None
        if show and self._console.is_terminal:
            columns = (
                TextColumn("{task.completed}/{task.total}"),
                BarColumn(bar_width=20),
                TextColumn("{task.fields[text]}"),
            )
            self._live = Progress(*columns, console=self._console, refresh_per_second=4, transient=True)
            self._task = self._live.add_task("", total=total, completed=start, text="compiling")
            self._live.start()

    def update(self, step: int, values: Mapping[str, float]) -> None:
        """Moves the live bar to `step` with the latest values (names without `train/`); cheap enough for every step."""
        if self._live is not None and self._task is not None:
            self._live.update(self._task, completed=step, text=f"{describe(values)}  {self._left(step)}")

    def line(self, step: int, values: Mapping[str, float]) -> None:
        """Says the values of a window of steps, where there is no live bar to show them."""
        if self._live is None:
            self.say(f"step {step}/{self._total}  {describe(values)}  {self._left(step)}")

    def say(self, text: str) -> None:
        """Prints a line (above the bar)."""
        if self._show:
            (self._live.console if self._live else self._console).print(text, markup=False)

    def close(self) -> None:
        """Takes the bar away."""
        if self._live is not None:
            self._live.stop()

    def _left(self, step: int) -> str:
        if step <= self._start:
            return ""
        totals = self._chrono.totals()
        seconds = sum(value for name, value in totals.items() if name not in ("start", "compile"))
        return f"{clock(seconds / (step - self._start) * (self._total - step))} left"


def describe(values: Mapping[str, float]) -> str:
    """The values worth watching, as `loss 3.214  mlm accuracy 0.310  lr 1.00e-04  512 sequences/s`."""
    return "  ".join(_phrases(values))


def clock(seconds: float) -> str:
    """`75.2 -> "1:15"`, `3675 -> "1:01:15"`."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _phrases(values: Mapping[str, float]) -> Iterable[str]:
    for name in _SHOWN:
        if name not in values:
            continue
        value = values[name]
        if name == "learning_rate":
            yield f"lr {value:.2e}"
        elif name == "mfu":
            yield f"MFU {value:.1%}"
        elif name.endswith("_per_second"):
            yield f"{_short(value)} {name.removesuffix('_per_second')}/s"
        else:
            yield f"{name.replace('_', ' ')} {value:.3f}"


def _short(value: float) -> str:
    for limit, scale, unit in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= limit:
            return f"{value / scale:.1f}{unit}"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
