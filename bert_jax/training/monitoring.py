"""Monitor the time of a run: seconds by activity, throughput, a warning when it hangs, and traces of its steps."""

import contextlib
import faulthandler
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import Mesh

from bert_jax import storage
from bert_jax.data.batches import sub_batches
from bert_jax.errors import logger
from bert_jax.training.peaks import peak_flops

if TYPE_CHECKING:
    from bert_jax.modeling import Bert, Electra

log = logger(__name__)


class Timer:
    """Clock that splits a run's seconds into training and its interruptions: compilation, input, evaluation etc.

    Attributes:
        paused: name -> seconds of each interruption.
        at: the current interruption, or "training".
    """

    def __init__(self) -> None:
        self.paused: dict[str, float] = {}
        self.at = "training"
        self._start = time.perf_counter()

    @contextlib.contextmanager
    def pause(self, name: str) -> Iterator[None]:
        """Count the seconds of the block as `name` instead of training."""
        start = time.perf_counter()
        self.at = name
        try:
            yield
        finally:
            self.at = "training"
            self.paused[name] = self.paused.get(name, 0.0) + time.perf_counter() - start

    @property
    def training(self) -> float:
        """The seconds since the start, minus all pauses."""
        return time.perf_counter() - self._start - sum(self.paused.values())

    def totals(self) -> dict[str, float]:
        """Return name -> seconds of training and of each interruption."""
        return {"training": self.training} | self.paused


class Throughput:
    """The throughput of the steps since the last line of metrics.

    Args:
        timer: the clock of the run.
        mesh: the devices of the run.
        tokens_seen: the number of tokens in earlier steps.
    """

    def __init__(self, timer: Timer, mesh: Mesh, tokens_seen: int = 0):
        self._timer = timer
        self._tokens_seen = tokens_seen
        peak = peak_flops(mesh.devices.flat[0])
        self._peak = None if peak is None else peak * mesh.size
        self._restart()

    def add(self, model: "Bert | Electra", batch: Mapping[str, Any]) -> None:
        """Count the (global) batch of a step."""
        self._steps += 1
        for part in sub_batches(dict(batch)).values():
            *rows, length = part["input_ids"].shape
            self._sequences += rows[0]
            self._tokens += math.prod(rows) * length
            self._tokens += math.prod(part["query_ids"].shape) if "query_ids" in part else 0
        if self._peak is not None:
            from bert_jax.training.flops import step_flops

            self._flops += step_flops(model, batch)

    def close(self) -> dict[str, float]:
        """Return the throughput and the seconds by activity since the last call, and `tokens_seen` in the whole run.

        Rates are per second of training, without interruptions. Padding counts as tokens. `mfu` is included when the
        chip's peak is known, and this process's `storage_requests_per_step` and `storage_retries` when it uses an
        object store.
        """
        now = self._timer.totals()
        spent = {name: total - self._before.get(name, 0.0) for name, total in now.items()}
        seconds = max(spent["training"], 1e-9)
        self._tokens_seen += self._tokens
        rates = {
            "sequences_per_second": self._sequences / seconds,
            "tokens_per_second": self._tokens / seconds,
            "tokens_seen": float(self._tokens_seen),
            **{f"{name}_seconds": value for name, value in spent.items()},
        }
        if self._peak is not None:
            rates["mfu"] = self._flops / seconds / self._peak
        counted = storage.request_counts()
        if counted.requests:
            rates["storage_requests_per_step"] = (counted.requests - self._counted.requests) / max(1, self._steps)
            rates["storage_retries"] = float(counted.retries - self._counted.retries)
        self._restart()
        return rates

    def _restart(self) -> None:
        self._before, self._counted, self._steps = self._timer.totals(), storage.request_counts(), 0
        self._sequences, self._tokens, self._flops = 0, 0, 0.0


class Watchdog:
    """Log a warning when no step has ended for a number of seconds, with this host's number and current activity.

    In a hang, every host warns: hosts that wait for others report `training`; the host that hangs reports another
    activity, or does not warn at all.

    Args:
        seconds: the seconds without a finished step before a warning; 0 = no warnings.
        timer: the clock of the run.
    """

    def __init__(self, seconds: float, timer: Timer):
        self._seconds = seconds
        self._timer = timer
        self._step = 0
        self._ended = threading.Event()  # set when a step, or the run, has ended
        self._closed = False

    def beat(self, step: int) -> None:
        """Note that a step has ended."""
        self._step = step
        self._ended.set()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the steps while the block runs."""
        if not self._seconds:
            yield
            return
        thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._closed = True
            self._ended.set()
            thread.join()

    def _watch(self) -> None:
        waited = 0.0
        while not self._closed:
            if self._ended.wait(self._seconds):
                self._ended.clear()
                waited = 0.0
                continue
            waited += self._seconds
            host = f"host {jax.process_index()} of {jax.process_count()}"
            log.warning(
                "%s: no step has ended for %g s since step %d; activity: %s", host, waited, self._step, self._timer.at
            )
            if waited == self._seconds and sys.stderr is not None:
                with contextlib.suppress(ValueError, OSError):  # stderr is not a file
                    faulthandler.dump_traceback(sys.stderr, all_threads=True)


@contextlib.contextmanager
def profiling(
    steps: tuple[int, int], directory: storage.Path, say: Callable[[str], None]
) -> Iterator[Callable[[int], None]]:
    """Yield a function to call before each step; it traces the steps that `steps` selects.

    Args:
        steps: the first step of the trace, from 1, and the number of steps; 0 = none.
        directory: the directory to write the trace to.
        say: shows a line to the user.
    """
    first, count = steps
    tracing, stack = False, contextlib.ExitStack()

    def before(step: int) -> None:
        nonlocal tracing
        if tracing and step >= first + count:
            jax.profiler.stop_trace()
            tracing = False
            stack.close()
            say(f"trace of steps {first} to {step - 1} in {directory}")
        elif step == first and count:
            jax.profiler.start_trace(stack.enter_context(storage.local_directory(directory)))
            tracing = True

    try:
        yield before
    finally:
        if tracing:
            jax.profiler.stop_trace()
        stack.close()
