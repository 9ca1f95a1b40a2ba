"""Make batches ahead of the steps that need them, in a background thread."""

import queue
import threading
from collections.abc import Callable, Generator
from typing import Any, Protocol

import numpy as np

from bert_jax.data.batches import Batch

Rows = slice | np.ndarray
ALL_ROWS = slice(None)

_POLL_SECONDS = 0.1  # maximum time until a waiting thread notices that the iterator was closed


class Source(Protocol):
    """A source of training batches: random access by step, no state."""

    def batch(self, step: int, rows: Rows = ALL_ROWS) -> Batch: ...


def prefetch(
    source: Source,
    start_step: int,
    stop_step: int,
    depth: int = 2,
    *,
    rows: Rows = ALL_ROWS,
    transform: Callable[[Batch], Any] | None = None,
) -> Generator[Any, None, None]:
    """Yield the batches of steps start_step to stop_step - 1, in order.

    A background thread makes the batches; it ends when the iterator is closed or garbage-collected.

    Args:
        source: the source of the batches, called in the background thread.
        start_step: first step.
        stop_step: the step after the last.
        depth: batches made ahead; at least 1.
        rows: rows of each global batch to make, those of this host.
        transform: applied to each batch in the thread, such as placing it on devices.

    Raises:
        Exception: whatever the source raises, in place of the batch.
    """
    ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(maxsize=max(depth, 1))
    stopped = threading.Event()

    def put(item: tuple[Any, BaseException | None]) -> None:
        while not stopped.is_set():
            try:
                return ready.put(item, timeout=_POLL_SECONDS)
            except queue.Full:
                continue

    def work() -> None:
        for step in range(start_step, stop_step):
            if stopped.is_set():
                return
            try:
                batch = source.batch(step, rows)
                put((batch if transform is None else transform(batch), None))
            except BaseException as error:  # raised where the batch is awaited
                put((None, error))
                return

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        for _ in range(start_step, stop_step):
            batch, error = ready.get()
            if error is not None:
                raise error
            yield batch
    finally:
        stopped.set()
        thread.join()
