"""Warn when a run makes no progress, such as when a host hangs."""

import contextlib
import faulthandler
import sys
import threading
from collections.abc import Iterator

import jax

from bert_jax.errors import logger
from bert_jax.training.throughput import Chrono

log = logger(__name__)


class Watchdog:
    """Warn whenever no step has ended for a number of seconds, naming this host and its activity.

    In a hang every host warns: those that wait for the others are `training`, and the one to look at is at something
    else, or does not warn at all.

    Args:
        seconds: how long a step may take; 0 = never warns.
        chrono: knows what the run is at.
    """

    def __init__(self, seconds: float, chrono: Chrono):
        self._seconds = seconds
        self._chrono = chrono
        self._step = 0
        self._ended = threading.Event()  # a step, or the run
        self._closed = False

    def beat(self, step: int) -> None:
        """A step has ended."""
        self._step = step
        self._ended.set()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watches as long as the block runs."""
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
                "%s: no step has ended for %g s since step %d; it is at %s", host, waited, self._step, self._chrono.at
            )
            if waited == self._seconds and sys.stderr is not None:
                with contextlib.suppress(ValueError, OSError):  # a stderr that is no file
                    faulthandler.dump_traceback(sys.stderr, all_threads=True)
