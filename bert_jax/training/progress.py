"""The progress of a run: a live bar in a terminal, periodic lines elsewhere, or nothing."""

import sys
from collections.abc import Iterable, Mapping

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bert_jax.errors import printable
from bert_jax.training.monitoring import Timer

_SHOWN = ("loss", "mlm_accuracy", "accuracy", "learning_rate", "sequences_per_second", "tokens_per_second", "mfu")


class Bar:
    """Progress bar of a run.

    Args:
        total: steps of the whole run.
        start: number of steps done in earlier calls.
        show: whether to show anything at all.
        timer: the clock of the run; the estimated time left does not count start and compilation.
        console: the console to write to; None = stderr.
    """

    def __init__(self, total: int, start: int, show: bool, timer: Timer, console: Console | None = None):
        self._total, self._start, self._show, self._timer = total, start, show, timer
        self._step, self._values = start, dict[str, float]()
        self._console = console or Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self._live: Live | None = None
        if show and self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True, get_renderable=self._picture)
            self._live.start()

    def update(self, step: int, values: Mapping[str, float]) -> None:
        """Set the step and the latest values (names without `train/`) for the next refresh."""
        self._step, self._values = step, dict(values)

    def line(self, step: int, values: Mapping[str, float]) -> None:
        """Print the values of a window of steps, if there is no live bar."""
        if self._live is None:
            self.say(f"step {step}/{self._total}  {describe(values)}  {self._left(step)}")

    def say(self, text: str) -> None:
        """Print a line (above the bar)."""
        if self._show:
            self._console.print(printable(text), markup=False)

    def close(self) -> None:
        """Remove the bar."""
        if self._live is not None:
            self._live.stop()

    def _picture(self) -> Group:
        """Return the bar, and below it the latest values, which wrap in a narrow terminal."""
        bar = ProgressBar(total=self._total, completed=self._step, width=30)
        far = Table.grid(padding=(0, 1))
        far.add_row(f"step {self._step}/{self._total}", bar, self._left(self._step))
        return Group(far, Text(describe(self._values) or "compiling"))

    def _left(self, step: int) -> str:
        if step <= self._start:
            return ""
        totals = self._timer.totals()
        seconds = sum(value for name, value in totals.items() if name not in ("start", "compile"))
        return f"{clock(seconds / (step - self._start) * (self._total - step))} left"


def describe(values: Mapping[str, float]) -> str:
    """Format the main values: `loss 3.214  mlm accuracy 0.310  lr 1.00e-04  512 sequences/s`."""
    return "  ".join(_phrases(values))


def clock(seconds: float) -> str:
    """Format seconds as a clock does: `75.2 -> "1:15"`, `3675 -> "1:01:15"`."""
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
