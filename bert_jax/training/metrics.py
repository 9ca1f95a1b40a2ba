"""Average a run's metrics over windows of steps, write them as JSON lines, TensorBoard events and to W&B, read them."""

import collections
import contextlib
import json
import math
import re
import uuid
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax import storage
from bert_jax.errors import InputError, logger
from bert_jax.jobs.base import Metrics
from bert_jax.metrics import lower_is_better
from bert_jax.storage import PathLike
from bert_jax.training.events import EventFile
from bert_jax.training.state import State
from bert_jax.training.workdir import Workdir

log = logger(__name__)


def merit(metric: str, value: float | None) -> float:
    """Return the value of a metric, negated if lower is better (`lower_is_better`); -inf for NaN."""
    if value is None or math.isnan(value):
        return -math.inf
    return -float(value) if lower_is_better(metric) else float(value)


class MetricsWindow:
    """Metrics of the steps since the log's last line, fetched a few steps late so as not to block the devices.

    Args:
        see: called with each step's number and mean metrics, in order, as they are fetched.
        depth: the maximum number of steps that are not fetched yet; `add` waits for older ones.
    """

    def __init__(self, see: Callable[[int, dict[str, float]], None], depth: int = 2):
        self._see = see
        self._depth = depth
        self._waiting: collections.deque[tuple[int, Any]] = collections.deque()
        self._sums: dict[str, np.ndarray] = {}
        self.last: dict[str, float] = {}  # metrics of the latest step that was fetched

    def add(self, step: int, metrics: Metrics) -> None:
        """Add the (sum, count) pairs of one step, still on the devices."""
        for array in jax.tree.leaves(metrics):
            array.copy_to_host_async()
        self._waiting.append((step, metrics))
        while len(self._waiting) > self._depth:
            self._fetch()

    def close(self) -> dict[str, float]:
        """Wait for all added steps, return the means of their metrics (sum over count), and begin the next window."""
        while self._waiting:
            self._fetch()
        means, self._sums = _means(self._sums), {}
        return means

    def _fetch(self) -> None:
        step, metrics = self._waiting.popleft()
        pairs = {name: np.array(pair, np.float64) for name, pair in metrics.items()}
        self.last = _means(pairs)
        for name, pair in pairs.items():
            self._sums[name] = self._sums.get(name, 0.0) + pair
        self._see(step, self.last)


def means_of(metrics: Metrics) -> dict[str, jax.Array]:
    """Return the mean of each metric of a step, without waiting for the devices."""
    return {name: total / count for name, (total, count) in metrics.items()}


class MetricsLog:
    """Log of metrics in `metrics.jsonl`, TensorBoard's files and Weights & Biases.

    On a disk, a line of `metrics.jsonl` can be read when `write` returns; in an object store, some seconds later or
    when `flush` returns (`storage.GrowingFile`).

    A line is `{"step": 100, "train/loss": 1.5, ...}`; numbers that are not finite are null.

    Args:
        workdir: the work directory of the run.
        step: the step from which the run resumes; lines beyond it are dropped, since the run writes them again.
        wandb_project: the project of Weights & Biases; "" = none.
        config: the configuration of the run to show at Weights & Biases.

    Attributes:
        lines: the lines up to `step`.
    """

    def __init__(self, workdir: Workdir, step: int, wandb_project: str = "", config: dict[str, Any] | None = None):
        self._path = workdir.metrics
        content = _content(self._path)
        lines, damaged = _parse_lines(content)
        if damaged:
            _keep_damaged(self._path, content, damaged)
        self.lines = [line for line in lines if line["step"] <= step]
        self._file = storage.GrowingFile(self._path, "".join(map(_line, self.lines)).encode())
        with storage.naming(workdir.events):
            self._events = EventFile(workdir.events, step)
        self._wandb = _wandb_run(workdir, wandb_project, config) if wandb_project else None

    def write(self, step: int, values: dict[str, float]) -> None:
        """Write a line of metrics."""
        self._file.append(_line({"step": step} | values).encode())
        self._events.write(step, values)
        if self._wandb is not None:
            self._wandb.log(values, step=step)

    def flush(self) -> None:
        """Wait until other processes can read all written lines."""
        self._file.flush()
        self._events.flush()

    def close(self) -> None:
        """Flush and close the files."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._file.close)
            stack.callback(self._events.close)
            if self._wandb is not None:
                stack.callback(self._wandb.finish)


def read_metrics(path: PathLike) -> list[dict[str, Any]]:
    """Read a `metrics.jsonl` without its damaged lines, such as one cut short by a kill; [] if there is no file."""
    return _parse_lines(_content(storage.Path(path)))[0]


def _content(path: storage.Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _parse_lines(content: bytes) -> tuple[list[dict[str, Any]], int]:
    """Return the valid lines of a log, and the number of damaged lines; an unfinished last line is not counted."""
    parsed = [_parse_line(line) for line in content.split(b"\n")]
    return [line for line in parsed if line is not None], parsed[:-1].count(None)


def _parse_line(line: bytes) -> dict[str, Any] | None:
    """Return the metrics of a line; None if `MetricsLog` cannot have written it."""
    try:
        metrics = storage.parse_json(line.decode())
        values = [value for value in metrics.values() if value is not None]
        finite = all(isinstance(value, int | float) and math.isfinite(value) for value in values)
        return metrics if finite and type(metrics["step"]) is int else None
    except (InputError, ValueError, AttributeError, LookupError, OverflowError):
        return None


def _keep_damaged(path: storage.Path, content: bytes, damaged: int) -> None:
    """Copy a log that has damaged lines, before it is written again without them."""
    kept = storage.free_name(path.with_name(f"{path.stem}-damaged{path.suffix}"))
    storage.write_atomically(kept, content)
    log.warning("%s: damaged lines (%d) are left out; they are kept in %s", path, damaged, kept)


class Results(dict[str, float]):
    """The last training metrics (`train/...`), the evaluation metrics (`eval/...`) and the `step` of the finished
    model, by name; empty on processes other than the first.

    Attributes:
        state: parameters, optimizer state and step of the finished model; None if the run was finished before the call.
    """

    state: State | None = None


def results_of(workdir: Workdir, recipe: ConfigDict) -> Results:
    """Return the last training line and the evaluation line of the finished model, as one dict."""
    lines = read_metrics(workdir.metrics)
    trained = [line for line in lines if any(name.startswith("train/") for name in line)]
    scored = [line for line in lines if any(name.startswith("eval/") for name in line)]
    if recipe.best_metric and scored:
        metric = recipe.best_metric.removeprefix("eval/")
        scored.sort(key=lambda line: (merit(metric, line.get(f"eval/{metric}")), line["step"]))
    chosen: dict[str, float] = {}
    for lines_of_a_kind in (trained, scored):
        chosen |= lines_of_a_kind[-1] if lines_of_a_kind else {}
    return Results({name: math.nan if value is None else value for name, value in chosen.items()})


def _line(values: dict[str, Any]) -> str:
    finite = {key: value if value is not None and math.isfinite(value) else None for key, value in values.items()}
    return json.dumps(finite) + "\n"


def _means(sums: dict[str, np.ndarray]) -> dict[str, float]:
    return {name: float(total / count) if count else math.nan for name, (total, count) in sums.items()}


def _wandb_run(workdir: Workdir, project: str, config: dict[str, Any] | None) -> Any:
    """Start or resume the W&B run of this work directory; steps already logged are ignored."""
    import wandb

    if not re.fullmatch(rb"[0-9a-f]{32}", _content(workdir.wandb_id)):  # the id is missing or damaged
        storage.write_atomically(workdir.wandb_id, uuid.uuid4().hex)
    local = None if workdir.path.is_remote else str(workdir.path)
    return wandb.init(
        project=project,
        name=workdir.path.name,
        id=storage.read_text(workdir.wandb_id),
        resume="allow",
        dir=local,
        config=config,
    )
