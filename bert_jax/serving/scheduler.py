"""The scheduler: one thread per device runs batches of waiting rows, and shares device time fairly between models."""

import asyncio
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np

from bert_jax.errors import logger
from bert_jax.serving.batching import Queue, Row, RowBatch, Shape, Submission

_log = logger(__name__)
_BRIEF = 1.0  # seconds after a short request during which batches are brief, since more short requests may come


class Backend(Protocol):
    """A model on one device, as the scheduler sees it.

    Attributes:
        shapes: the static shapes of its forward pass.
        ahead: number of batches to dispatch before the outputs of a batch are fetched.
        batch_invariant: whether outputs must be bitwise independent of the other rows of a batch.
        brief_tokens: tokens in a brief batch, for which short requests may wait; None = a full batch is quick enough.
    """

    @property
    def shapes(self) -> tuple[Shape, ...]: ...

    @property
    def ahead(self) -> int: ...

    @property
    def batch_invariant(self) -> bool: ...

    @property
    def brief_tokens(self) -> int | None: ...

    def warm(self, shape: Shape) -> None:
        """Prepare for a shape, so that its first forward pass is as fast as later ones."""

    def padding(self, rows: Sequence[Row], shape: Shape) -> int:
        """Return the number of padding tokens in a forward pass, including padding rows."""

    def begin(self, rows: Sequence[Row], shape: Shape) -> Callable[[], list[np.ndarray]]:
        """Dispatch a forward pass; return a function that waits for it and returns the output of each row."""


class _Begun(NamedTuple):
    """A batch that was dispatched to a device."""

    model: str
    batch: RowBatch
    started: float
    padding: int
    fetch: Callable[[], list[np.ndarray]]


class Scheduler:
    """Runs the rows of several models on their backends.

    Args:
        backends: model name -> its backend on each device; all models use the same devices.
        observe: called after each batch with the model's name, the batch, its padding tokens, and its seconds, in the
            thread of the device.

    Attributes:
        ready: whether all shapes of all models are warm on all devices.
        failed: the exception that ended the warm-up, or None.
    """

    def __init__(
        self, backends: dict[str, list[Backend]], observe: Callable[[str, RowBatch, int, float], None] = lambda *_: None
    ):
        self._backends = backends
        self._queues = {
            name: Queue(backend.shapes, backend.batch_invariant, backend.brief_tokens)
            for name, (backend, *_) in backends.items()
        }
        self._observe = observe
        self._changed = threading.Condition()
        self._short_at = -math.inf  # time of the newest short request
        self._stopping = False
        self._cold = self._devices = min(map(len, backends.values()))
        self._threads = [
            threading.Thread(target=self._work, args=(device,), name=f"device-{device}", daemon=True)
            for device in range(self._devices)
        ]
        self.failed: Exception | None = None

    @property
    def ready(self) -> bool:
        return self._cold == 0

    def start(self) -> None:
        """Start the threads, which first warm every shape of every model."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Run the waiting rows, then end the threads."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def waiting_tokens(self, model: str) -> int:
        """Return the number of tokens that wait for a model."""
        return self._queues[model].tokens

    def expected_wait(self, model: str, tokens: int) -> float:
        """Return the expected seconds until the last batch of a new request begins; 0 before any batch was measured.

        Args:
            model: the model.
            tokens: number of tokens of the request.
        """
        with self._changed:
            queue = self._queues[model]
            active = sum(bool(other) for other in self._queues.values() if other is not queue) + 1
            return queue.tokens_before(tokens) / queue.rate * active / self._devices if queue.rate else 0.0

    def submit(self, model: str, rows: Sequence[Row]) -> Submission:
        """Queue rows; called in an event loop, in which the future of the submission is resolved."""
        submission = Submission(rows, asyncio.get_running_loop().create_future(), time.monotonic())
        with self._changed:
            queue = self._queues[model]
            if not queue:  # a model that was idle must not catch up on time that it did not use
                others = [other.clock for other in self._queues.values() if other and other is not queue]
                queue.clock = max(queue.clock, min(others, default=queue.clock))
            queue.add(submission)
            if submission.levels.keys() <= {0}:
                self._short_at = submission.submitted
            self._changed.notify_all()
        return submission

    def drop(self, model: str, submission: Submission) -> None:
        """Drop the waiting rows of a request whose client is gone."""
        with self._changed:
            self._queues[model].drop(submission)

    def _work(self, device: int) -> None:
        try:
            self._warm(device)
        except Exception as error:
            self.failed = error
            return
        begun: deque[_Begun] = deque()
        finished = 0.0
        while True:
            model, batch, brief = self._take(wait=not begun)
            if batch is None and not begun:
                return
            ahead = 0
            if batch is not None:
                backend = self._backends[model][device]
                started = time.monotonic()
                rows = [item.submission.rows[item.number] for item in batch.rows]
                padding = backend.padding(rows, batch.shape)
                begun.append(_Begun(model, batch, started, padding, _begin(backend, rows, batch.shape)))
                ahead = 0 if brief else backend.ahead
            while len(begun) > ahead:
                finished = self._finish(begun.popleft(), finished)

    def _warm(self, device: int) -> None:
        def warm(backend: Backend, shape: Shape) -> None:
            if not self._stopping:
                backend.warm(shape)

        with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // self._devices)) as threads:
            backends = [backends[device] for backends in self._backends.values()]
            for done in [threads.submit(warm, backend, shape) for backend in backends for shape in backend.shapes]:
                done.result()
        if not self._stopping:
            with self._changed:
                self._cold -= 1

    def _take(self, wait: bool) -> tuple[str, RowBatch | None, bool]:
        """Return the next batch, its model, and whether it is to be brief.

        Of the models with waiting rows, it takes the one that has used the least device time.
        """
        with self._changed:
            while True:
                active = [name for name, queue in self._queues.items() if queue]
                if active:
                    now = time.monotonic()
                    brief = now < self._short_at + _BRIEF and any(self._queues[name].has_long for name in active)
                    name = min(active, key=lambda name: self._queues[name].clock)
                    if (batch := self._queues[name].take(now, brief)) is not None:
                        return name, batch, brief
                if self._stopping or not wait:
                    return "", None, False
                self._changed.wait()

    def _finish(self, begun: _Begun, before: float) -> float:
        """Fetch the outputs of a batch and resolve the requests that are complete; return the time of the fetch."""
        error: Exception | None = None
        outputs: Sequence[Any] = [None] * len(begun.batch.rows)
        try:
            outputs = begun.fetch()
        except Exception as failure:
            _log.error(
                "%s: a batch of %s failed: %s: %s", begun.model, begun.batch.shape, type(failure).__name__, failure
            )
            error = failure
        now = time.monotonic()
        seconds = now - max(begun.started, before)
        with self._changed:
            self._queues[begun.model].measured(begun.batch.shape, begun.batch.tokens, seconds)
        done = []
        for item, output in zip(begun.batch.rows, outputs, strict=True):
            submission = item.submission
            with self._changed:  # rows of one request may finish on several devices at the same time
                submission.outputs[item.number] = output
                submission.left -= 1
                complete = submission.left == 0
            if complete or error is not None:
                done.append(submission)
        if done:
            loop = done[0].future.get_loop()
            try:
                loop.call_soon_threadsafe(_resolve, done, error)
            except RuntimeError:  # the loop is closed: nobody waits
                return now
        self._observe(begun.model, begun.batch, begun.padding, seconds)
        return now


def _begin(backend: Backend, rows: list[Row], shape: Shape) -> Callable[[], list[np.ndarray]]:
    """Begin a batch; an error is raised when its outputs are fetched."""
    try:
        return backend.begin(rows, shape)
    except Exception as error:
        failure = error

    def fetch() -> list[np.ndarray]:
        raise failure

    return fetch


def _resolve(submissions: Sequence[Submission], error: Exception | None) -> None:
    for submission in submissions:
        if not submission.future.done():
            if error is None:
                submission.future.set_result(submission.outputs)  # type: ignore[arg-type]
            else:
                submission.future.set_exception(error)
