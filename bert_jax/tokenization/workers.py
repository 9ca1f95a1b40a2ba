"""Run a tokenizer in processes that the kernel ends when a call exceeds its budget of time or memory.

The libraries cannot be interrupted in a thread. A process, the opener, opens a tokenizer once and forks a worker for
each concurrent call, which takes milliseconds. A worker that exceeds its budget is replaced by another fork.
"""

import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from bert_jax.errors import InputError, TextError
from bert_jax.tokenization.call_limits import BudgetExceeded, current_limits

SECONDS, SECONDS_PER_CHARACTER = 1.0, 1e-5  # limit of CPU seconds of a call
MEMORY = 1 << 30  # limit of bytes of a call, in addition to those of the opened tokenizer
_OPENING, _OPENING_PER_BYTE = 3.0, 1e-6  # limit of CPU seconds to open the tokenizer
_MOST_IDLE = 4  # maximum number of workers that wait for a call
_REUSED = 1 << 16  # a worker ends after a call of more characters, since its process may keep freed memory
_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from bert_jax.tokenization.worker_process import open_and_fork
open_and_fork(int(sys.argv[2]))
"""


class TokenizerWorkers:
    """The worker processes of one tokenizer: they start with the first call, and end with this object or process."""

    def __init__(self) -> None:
        self._forget()
        _all.add(self)

    def __reduce__(self) -> tuple[type["TokenizerWorkers"], tuple[()]]:
        return TokenizerWorkers, ()  # a copy in another process has workers of its own

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._control: Connection | None = None
        self._idle: list[Connection] = []
        self._ready = False  # whether the opener has opened the tokenizer
        self._close: weakref.finalize | None = None

    def after_fork(self) -> None:
        """Forget the workers of the parent process, in a process that was forked from it."""
        if self._close is not None:
            self._close.detach()
        for connection in (self._control, *self._idle):
            if connection is not None:
                connection.close()
        self._forget()

    def start(self, tokenizer: Any) -> None:
        """Open the tokenizer in a process, unless it is open.

        Raises:
            InputError: the libraries refuse the tokenizer, or opening it exceeds a budget of time or memory.
        """
        with self._lock:
            if self._control is None:
                self._start(tokenizer)

    def run(self, tokenizer: Any, call: str, items: Sequence[Any], *arguments: Any) -> list[Any]:
        """Call a tokenizer for each item, in a worker.

        Args:
            tokenizer: the tokenizer, always the same.
            call: a key of `worker_process.CALLS`.
            items: texts, or lists of ids.
            arguments: further arguments of the call.

        Raises:
            BudgetExceeded: the call exceeds its budget; the error has the number of the item.
            TextError: the tokenizer refuses an item.
        """
        limits, size = current_limits(), sum(map(len, items))
        seconds = limits.seconds or SECONDS + SECONDS_PER_CHARACTER * size
        if limits.seconds is not None and not self._ready:
            raise BudgetExceeded(0, f"expected a worker within {seconds:.3g} s, found none that is started")
        results: list[Any] = []
        worker = self._take(tokenizer)
        try:
            worker.send((call, items, arguments, seconds, limits.background))
            while (answer := worker.recv()) is not None:
                problem, result = answer
                if problem is not None:
                    raise TextError(len(results), problem)
                results.append(result)
        except (EOFError, ConnectionError):
            worker.close()
            raise BudgetExceeded(
                min(len(results), len(items) - 1),
                f"expected a text that is tokenized within {seconds:.3g} s and {MEMORY >> 30} GB, found one of "
                f"{len(items[min(len(results), len(items) - 1)])} characters that exceeds them",
            ) from None
        except BaseException:
            worker.close()
            raise
        if limits.background or size > _REUSED or len(self._idle) >= _MOST_IDLE:
            worker.close()
        else:
            self._idle.append(worker)
        return results

    def _take(self, tokenizer: Any) -> Connection:
        """Return a connection to an idle worker, or to a new one."""
        while True:
            try:
                worker = self._idle.pop()
            except IndexError:
                break
            if not worker.poll():  # an idle worker can be read only if it ended: it sends an end of file
                return worker
            worker.close()
        with self._lock:
            for again in (True, False):
                if self._control is None:
                    self._start(tokenizer)
                assert self._control is not None
                ours, theirs = socket.socketpair()
                with theirs, socket.socket(fileno=os.dup(self._control.fileno())) as control:
                    try:
                        socket.send_fds(control, [b"w"], [theirs.fileno()])
                        return Connection(ours.detach())
                    except OSError:  # the opener was killed
                        ours.close()
                        self._end()
                        if not again:
                            raise
        raise AssertionError

    def _start(self, tokenizer: Any) -> None:
        content = pickle.dumps(tokenizer)
        seconds = _OPENING + _OPENING_PER_BYTE * len(content)
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", _START, json.dumps(sys.path), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "TOKENIZERS_PARALLELISM": "false", "OPENBLAS_NUM_THREADS": "1"},
            )
        self._control = Connection(ours.detach())
        self._close = weakref.finalize(self, _end, process, self._control, self._idle)
        try:
            self._control.send((content, seconds, MEMORY))
            problem = self._control.recv()
        except (EOFError, ConnectionError):
            limits = f"{seconds:.3g} s and {MEMORY >> 30} GB"
            problem = f"expected a tokenizer that opens within {limits}, found one that exceeds them"
        except BaseException:
            self._end()
            raise
        if problem is not None:
            self._end()
            raise InputError(problem)
        self._ready = True

    def _end(self) -> None:
        if self._close is not None:
            self._close()
        self._control = self._close = None
        self._ready = False


def _end(process: subprocess.Popen[bytes], control: Connection, idle: list[Connection]) -> None:
    while idle:
        idle.pop().close()
    control.close()
    process.kill()
    process.wait()


_all: weakref.WeakSet[TokenizerWorkers] = weakref.WeakSet()


def _after_fork() -> None:
    for workers in list(_all):
        workers.after_fork()


os.register_at_fork(after_in_child=_after_fork)
