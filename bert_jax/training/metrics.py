"""Numbers of a run over its steps: averaged over windows of steps, written as JSON lines and for TensorBoard."""

import collections
import json
import math
from typing import Any

import jax
import numpy as np
from etils import epath

from bert_jax import files
from bert_jax.files import PathLike
from bert_jax.training.workdir import Workdir


class Window:
    """Metrics of the steps since the last line, fetched from the devices some steps late so as not to hold them up.

    Args:
        depth: steps that may be under way at once; `add` waits for the one before these.
    """

    def __init__(self, depth: int = 2):
        self._depth = depth
        self._waiting: collections.deque[Any] = collections.deque()
        self._sums: dict[str, np.ndarray] = {}
        self.last: dict[str, float] = {}  # of the latest step whose metrics are here

    def add(self, metrics: Any) -> None:
        """Takes the (sum, count) pairs of one step, still on the devices."""
        for array in jax.tree.leaves(metrics):
            array.copy_to_host_async()
        self._waiting.append(metrics)
        while len(self._waiting) > self._depth:
            self._fetch()

    def close(self) -> dict[str, float]:
        """Waits for all steps added, returns their means (sum over sum), and begins the next window."""
        while self._waiting:
            self._fetch()
        means, self._sums = _means(self._sums), {}
        return means

    def _fetch(self) -> None:
        pairs = {name: np.array(pair, np.float64) for name, pair in self._waiting.popleft().items()}
        self.last = _means(pairs)
        for name, pair in pairs.items():
            self._sums[name] = self._sums.get(name, 0.0) + pair


class MetricsLog:
    """Appends to `metrics.jsonl` and to TensorBoard's files; every line is there when `write` returns.

    A line is `{"step": 100, "train/loss": 1.5, ...}`; numbers that are not finite are null.

    Args:
        workdir: where they lie.
        step: what the files hold beyond this step is dropped: a run that goes on from there writes it again.
    """

    def __init__(self, workdir: Workdir, step: int):
        self._path = workdir.metrics
        kept = [line for line in read_lines(self._path) if line["step"] <= step]
        files.write_atomically(self._path, "".join(_line(line) for line in kept))
        self._file = self._path.open("a")
        self._events = _event_writer(workdir.events, step)

    @property
    def has_events(self) -> bool:
        """Whether TensorBoard's files are written: the writer is an optional extra."""
        return self._events is not None

    def write(self, step: int, values: dict[str, float]) -> None:
        """Adds a line."""
        self._file.write(_line({"step": step} | values))
        self._file.flush()
        if self._events is not None:
            for name, value in values.items():
                self._events.add_scalar(name, value, step)

    def close(self) -> None:
        """Closes the files."""
        self._file.close()
        if self._events is not None:
            self._events.close()


def read_lines(path: PathLike) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl` ([] when there is none); a last line cut short by a kill is left out."""
    if not epath.Path(path).exists():
        return []
    lines = []
    for line in files.read_text(path).splitlines():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return lines


def _line(values: dict[str, Any]) -> str:
    finite = {key: value if value is not None and math.isfinite(value) else None for key, value in values.items()}
    return json.dumps(finite) + "\n"


def _means(sums: dict[str, np.ndarray]) -> dict[str, float]:
    return {name: float(total / count) if count else math.nan for name, (total, count) in sums.items()}


def _event_writer(directory: PathLike, step: int) -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(directory), purge_step=step + 1)
