"""Stop a run on SIGINT (Ctrl-C) or SIGTERM without losing work.

While a run starts, and while it writes its finished model, there is nothing to save: a signal ends it at once. Between
its first step and its last, a signal is noted; the current step is finished and saved, and then the run ends. On the
command line, a second Ctrl-C ends the process within a second: checkpoints, metrics and models are written whole or not
at all, so only the steps since the last checkpoint are lost.

On several hosts, JAX handles SIGTERM: it notifies all hosts and chooses a step that none of them has reached, where the
run ends. A run that has not begun its first step ends only once all hosts have come to that step.
"""

import contextlib
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.errors import printable

EXIT_INTERRUPTED = 128 + signal.SIGINT  # the exit status that a shell reports
EXIT_TERMINATED = 128 + signal.SIGTERM
GRACE_SECONDS = 5.0  # seconds after a signal until a process in compiled code, with nothing to save, is ended
_LONGEST_COMMAND = 4000  # maximum number of characters of the command in a message
_active: "Stop | None" = None
_calls = itertools.count(1)  # counts calls of `Stop.agreed`, by which JAX compares the progress of hosts


class Interrupted(KeyboardInterrupt):
    """Raised after Ctrl-C, when the run has been saved; the same call resumes it."""


class Preempted(SystemExit):
    """Raised after SIGTERM, when the run is saved; the same command resumes it. Exit status 143 (128 + SIGTERM)."""

    def __init__(self) -> None:
        super().__init__(EXIT_TERMINATED)


class Stop:
    """The signals received so far, and how they end the run.

    Args:
        command: the command line that resumes the run, if bert-jax is the whole process. A second Ctrl-C then ends the
            process, as does the first signal if it has no effect for GRACE_SECONDS while there is nothing to save. ""
            in a library call, where a second Ctrl-C raises KeyboardInterrupt.

    Attributes:
        number: the number of the first signal; None before it.
        saved: the step from which a resumed run would start; None before the first save.
        abrupt: whether the run was ended at once, without the agreement of other hosts.
        say: shows a line to the user.
    """

    def __init__(self, command: str = ""):
        self.command = command
        self.number: int | None = None
        self.saved: int | None = None
        self.abrupt = False
        self.say: Callable[[str], None] = _to_stderr
        self._deferring = False
        self._timer: threading.Timer | None = None
        self._before: dict[int, Any] = {}

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Only record signals that arrive while the block runs, and handle them at its end at the latest."""
        if self.number is not None:  # the signal came in a garbage-collector callback, where exceptions are lost
            raise self.exception()
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False
        if self.number is not None:
            raise self.exception()

    def agreed(self) -> bool:
        """Return whether a signal ends the run now, the same on all hosts; each host must call this equally often."""
        if not _jax_handles_sigterm():
            return self.number is not None
        from orbax.checkpoint import multihost

        reached = bool(multihost.reached_preemption(next(_calls)))
        if reached:
            self.number = self.number or signal.SIGTERM
        return reached

    def exception(self) -> BaseException:
        """Return the exception that ends the run."""
        return Interrupted() if self.number == signal.SIGINT else Preempted()

    def result(self) -> str:
        """Return a line for the user: the signal, the saved step, and how to resume."""
        came = "interrupted" if self.number in (None, signal.SIGINT) else "stopped by a signal"
        if self.saved is None:
            return f"{came} before the first step; nothing to save{self._how('start again')}"
        return f"{came}; step {self.saved} is saved{self._how('resume')}"

    def _how(self, verb: str) -> str:
        if not self.command or len(self.command) > _LONGEST_COMMAND:
            return f"; {verb} with the same command"
        return f"; {verb} with: {printable(self.command, _LONGEST_COMMAND)}"

    def _install(self) -> None:
        for number in (signal.SIGINT,) if _jax_handles_sigterm() else (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)

    def _uninstall(self) -> None:
        for number, before in self._before.items():
            if number == signal.SIGINT or not _jax_handles_sigterm():  # JAX may have set its handler
                signal.signal(number, before)

    def _handle(self, number: int, _: Any) -> None:
        again, self.number = self.number is not None, self.number or number
        if again and self.command and number == signal.SIGINT:
            return  # `_watch` ends the process
        if not self._deferring or (again and number == signal.SIGINT):
            self.abrupt = True
            raise self.exception()
        if _jax_handles_sigterm():
            signal.raise_signal(signal.SIGTERM)  # Ctrl-C on one host stops all hosts

    def _watch(self, wakeups: int) -> None:
        """Handle signals immediately, while the main thread may be in compiled code for minutes."""
        came = 0
        while number := os.read(wakeups, 1)[0]:
            if number not in self._before:
                continue
            came += 1
            if came > 1 and number == signal.SIGINT:
                self._end(number, f"ended at once, without saving{self._how('resume')}")
            elif came == 1 and self._deferring:
                self.say("stopping: this step is finished and saved first; Ctrl-C ends at once")
            elif came == 1:
                self._timer = threading.Timer(GRACE_SECONDS, lambda: self._end(number, self.result()))
                self._timer.daemon = True
                self._timer.start()
        if self._timer is not None:
            self._timer.cancel()

    def _end(self, number: int, text: str) -> None:
        _to_stderr(f"bert-jax: {text}")
        os._exit(EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_TERMINATED)


@contextlib.contextmanager
def listening(command: str = "") -> Iterator[Stop]:
    """Handle SIGINT and SIGTERM while the block runs, and yield their `Stop`; nested blocks share it.

    Only the main thread receives signals; in another thread, the `Stop` never has one.

    Args:
        command: passed to `Stop`.
    """
    global _active
    if _active is not None or threading.current_thread() is not threading.main_thread():
        yield _active or Stop()
        return
    stop = _active = Stop(command)
    with contextlib.ExitStack() as stack:
        stack.callback(_forget)
        if command:
            stack.enter_context(_watched(stop))
        stop._install()
        stack.callback(stop._uninstall)
        yield stop


def _forget() -> None:
    global _active
    _active = None


@contextlib.contextmanager
def _watched(stop: Stop) -> Iterator[None]:
    """Run a thread that reads the numbers of signals from a pipe to which Python's C handler writes them."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    thread = threading.Thread(target=stop._watch, args=(reading,), name="signals", daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.write(writing, b"\0")
        thread.join()
        os.close(reading)
        os.close(writing)


def _jax_handles_sigterm() -> bool:
    """Return whether JAX has connected this process to others, and so installed its own SIGTERM handler, in C."""
    return "jax" in sys.modules and sys.modules["jax"].distributed.is_initialized()


def _to_stderr(text: str) -> None:
    with contextlib.suppress(ValueError, OSError, AttributeError):  # stderr is closed or None
        print(printable(text), file=sys.stderr, flush=True)
