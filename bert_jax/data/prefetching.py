"""Making batches ahead of time in a background thread, so that the accelerator does not wait for them."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.data.pipeline import ALL_ROWS, Batch, Rows, Source

_POLL_SECONDS = 0.1  # how soon a waiting thread notices that nobody listens any more


def prefetch(
    source: Source,
    start_step: int,
    stop_step: int,
    depth: int = 2,
    *,
    rows: Rows = ALL_ROWS,
    transform: Callable[[Batch], Any] | None = None,
) -> Iterator[Any]:
    """Yields the batches of steps start_step to stop_step - 1, in order.

    Closing the iterator, or leaving it to be collected, ends the thread.

    Args:
        source: asked for batches from the background thread.
        start_step: first step.
        stop_step: the step after the last.
        depth: batches made ahead; at least 1.
        rows: rows of each global batch to make, those of this host.
        transform: applied to each batch in the thread, such as placing it on devices.

    Raises:
        Exception: whatever the source raises, in the place of the batch that it was asked for.
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
            except BaseException as error:  # handed over, to be raised where the batch is awaited
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
