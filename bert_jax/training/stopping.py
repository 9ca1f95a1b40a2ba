"""Stop a run on SIGINT (Ctrl-C) or SIGTERM without losing work.

While a run starts, and while it writes its finished model, there is nothing to save: a signal ends it at once. Between
its first step and its last, a signal is noted; the current step is finished and saved, and then the run ends. On the
command line, a second Ctrl-C ends the process within a second: checkpoints, metrics and models are written whole or not
at all, so only the steps since the last checkpoint are lost.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.errors import printable
from bert_jax.process import unraisable_ignored

EXIT_INTERRUPTED = 128 + signal.SIGINT  # the exit status that a shell reports
EXIT_TERMINATED = 128 + signal.SIGTERM
GRACE_SECONDS = 5.0  # until a process that hangs in compiled code, with nothing to save, is ended
_LONGEST_COMMAND = 4000  # characters
# struct sigaction of Linux's C libraries on 64 bits: the handler, a mask of 128 bytes, the flags.
_SIGACTION_BYTES, _FLAGS_AT, _SA_SIGINFO = 152, 136, 4
_active: "Stop | None" = None


class Interrupted(KeyboardInterrupt):
    """Ctrl-C came. What was learned has been saved, and the same call resumes from it."""


class Preempted(SystemExit):
    """SIGTERM came. What was learned has been saved, and the same command resumes. Exit status 143 (128 + SIGTERM)."""

    def __init__(self) -> None:
        super().__init__(EXIT_TERMINATED)


class Stop:
    """The signals that came so far, and how they end the run.

    Args:
        command: the command line that resumes the run, in a process of its own: there, a second Ctrl-C ends the
            process, as does a first one without effect for GRACE_SECONDS while there is nothing to save. "" in a
            library call, where a second Ctrl-C raises KeyboardInterrupt.

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
        self._foreign: Any = None  # a C function
        self._timer: threading.Timer | None = None
        self._before: dict[int, Any] = {}

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Only note the signals that come while the block runs, and handle them at its end at the latest."""
        if self.number is not None:  # it came where an exception is lost: in a callback of the garbage collector
            raise self.exception()
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False
        if self.number is not None:
            raise self.exception()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let signals end the process at once while the block runs, such as one that waits for other hosts."""
        for number in self._before:
            signal.signal(number, signal.SIG_DFL)
        try:
            yield
        finally:
            if self._before:
                self._install()

    def exception(self) -> BaseException:
        """Return the exception that ends the run."""
        return Interrupted() if self.number == signal.SIGINT else Preempted()

    def result(self) -> str:
        """Return a line for the user: the signal, the saved step, and how to resume."""
        came = "interrupted" if self.number in (None, signal.SIGINT) else "told to stop"
        if self.saved is None:
            return f"{came} before the first step; nothing to save{self._how('start again')}"
        return f"{came}; step {self.saved} is saved{self._how('resume')}"

    def _how(self, verb: str) -> str:
        if not self.command or len(self.command) > _LONGEST_COMMAND:
            return f"; {verb} with the same command"
        return f"; {verb} with: {printable(self.command, _LONGEST_COMMAND)}"

    def _install(self) -> None:
        self._foreign = _foreign_handler(signal.SIGTERM)
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.signal(number, self._handle)
            self._before.setdefault(number, before)

    def _uninstall(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if self._foreign is not None:
            _libc().signal(signal.SIGTERM, ctypes.cast(self._foreign, ctypes.c_void_p))

    def _handle(self, number: int, _: Any) -> None:
        again, self.number = self.number is not None, self.number or number
        if again and self.command and number == signal.SIGINT:
            return  # `_watch` ends the process
        if not self._deferring or (again and number == signal.SIGINT):
            self.abrupt = True
            raise self.exception()
        if self._foreign is not None:
            self._foreign(signal.SIGTERM)  # JAX's handler, by which all hosts agree on the step to stop at

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

    Outside the main thread, which alone receives signals, the `Stop` never has a signal.

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
        stack.enter_context(unraisable_ignored(_is_noted))
        stop._install()
        stack.callback(stop._uninstall)
        yield stop


def _is_noted(unraisable: Any) -> bool:
    """Return whether a signal's exception was raised where exceptions are lost, as in a callback of the garbage
    collector: `Stop` has noted the signal, and `Stop.deferred` handles it."""
    return isinstance(unraisable.exc_value, Interrupted | Preempted)


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


def _foreign_handler(number: int) -> Any:
    """Return the C function that handles a signal in place of Python's, such as JAX's on several hosts.

    None for a function of three arguments (SA_SIGINFO): it belongs to a crash reporter, such as libtpu's, and would
    end the process.
    """
    if signal.getsignal(number) not in (signal.SIG_DFL, None) or not sys.platform.startswith("linux"):
        return None  # Python's, or out of reach
    action = ctypes.create_string_buffer(_SIGACTION_BYTES)
    if _libc().sigaction(number, None, action):
        return None
    address = int.from_bytes(action.raw[:8], sys.byteorder)
    flags = int.from_bytes(action.raw[_FLAGS_AT : _FLAGS_AT + 4], sys.byteorder)
    if address in (0, 1) or flags & _SA_SIGINFO:  # SIG_DFL, SIG_IGN
        return None
    return ctypes.CFUNCTYPE(None, ctypes.c_int)(address)


def _libc() -> Any:
    libc = ctypes.CDLL(None)
    libc.signal.restype, libc.signal.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
    libc.sigaction.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
    return libc


def _to_stderr(text: str) -> None:
    with contextlib.suppress(ValueError, OSError, AttributeError):  # stderr is closed or None
        print(printable(text), file=sys.stderr, flush=True)
