"""The metric saved with each checkpoint, which decides which checkpoint is the best."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import PreservationPolicy

from bert_jax import storage
from bert_jax.errors import InputError, logger, printable
from bert_jax.training.metrics import merit

MERIT_FILE = "merit"  # name of a directory in each checkpoint, and of the file in this directory
FORMER_FILE = ocp.checkpoint_manager.METRIC_ITEM_NAME  # its name in earlier versions; Orbax reads it when it opens

log = logger(__name__)


class BestMetric:
    """One metric's value for each checkpoint, signed so that higher is better (`metrics.merit`).

    Args:
        directory: the directory of the checkpoints.
        metric: the name of the metric, a key of the metrics given to `add`.
    """

    def __init__(self, directory: storage.Path, metric: str):
        self._directory, self._metric = directory, metric
        self._values: dict[int, float] = {}  # step -> merit

    def read(self, steps: Iterable[int]) -> None:
        """Read the values saved with the checkpoints of `steps`."""
        self._values = {step: value for step in steps if (value := self._read(step)) is not None}

    def add(self, step: int, metrics: dict[str, float]) -> dict[str, Any]:
        """Add the value of a checkpoint that is about to be saved; return the content of its merit file."""
        value = merit(self._metric, metrics[self._metric])
        self._values[step] = value
        return {"metric": self._metric, "merit": value if math.isfinite(value) else None}

    def best(self, steps: Iterable[int]) -> tuple[float, int] | None:
        """Return the merit and the step of the best of `steps` (the later in a tie); None when no merit is known."""
        return max(((self._values[step], step) for step in steps if step in self._values), default=None)

    def policy(self) -> PreservationPolicy:
        """Return an Orbax policy that keeps the best checkpoint."""
        return _KeepBest(self.best)

    def _read(self, step: int) -> float | None:
        """Return the value saved with a checkpoint, or None; warn if its file is damaged."""
        paths = [self._directory / str(step) / name / name for name in (MERIT_FILE, FORMER_FILE)]
        path = next((path for path in paths if path.exists()), None)
        if path is None:
            return None
        try:
            content = storage.read_json(path)
            value = content["merit"]
            if not (value is None or isinstance(value, int | float)):
                raise InputError(f"{path}: expected a number, found {printable(repr(value), 80)}")
        except (InputError, KeyError, OSError) as error:
            log.warning("the metric of checkpoint %d is damaged, so it cannot be the best (%s)", step, error)
            return None
        if content.get("metric", self._metric) != self._metric:
            return None  # the file has the value of another metric
        return -math.inf if value is None or math.isnan(value) else float(value)


@dataclasses.dataclass(frozen=True)
class _KeepBest(PreservationPolicy):  # type: ignore[misc]
    """Policy that keeps the best checkpoint.

    Orbax's own policy reads the metrics files when the manager opens, and fails on a damaged one.
    """

    best: Callable[[Iterable[int]], tuple[float, int] | None]

    def should_preserve(self, checkpoints: Any, *, context: Any) -> list[bool]:
        steps = [checkpoint.step for checkpoint in checkpoints]
        _, best_step = self.best(steps) or (None, None)
        return [step == best_step for step in steps]
