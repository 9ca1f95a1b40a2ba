"""The processes that `workers` starts: one opens a tokenizer and forks the workers, which answer calls."""

import contextlib
import gc
import os
import pickle
import resource
import signal
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from bert_jax.errors import InputError
from bert_jax.process import address_space

_ELAPSED = 4  # elapsed time may be this many times the CPU time, since other processes may keep the cores busy
CALLS: dict[str, Callable[..., Any]] = {
    "ids": lambda tokenizer, text, *arguments: tokenizer.encode(text, *arguments),
    "offsets": lambda tokenizer, text: tokenizer.encode_batch_with_offsets([text])[0],
    "words": lambda tokenizer, text: tokenizer.words(text),
    "text": lambda tokenizer, ids, *arguments: tokenizer.decode(ids, *arguments),
}


def open_and_fork(descriptor: int) -> None:
    """Open a tokenizer and fork a worker for each connection that arrives, until the parent process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # leave no zombie processes
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    control = Connection(descriptor)
    content, seconds, memory = control.recv()
    _bound_memory(memory)
    _bound_time(seconds)
    problem = None
    try:
        tokenizer = pickle.loads(content).in_worker()
    except InputError as error:
        problem = str(error)
    _bound_time(0)
    del content
    control.send(problem)
    gc.collect()
    gc.freeze()
    parent = socket.socket(fileno=descriptor)
    while True:
        _, descriptors, _, _ = socket.recv_fds(parent, 1, 1)
        if not descriptors:
            os._exit(0)
        if os.fork() == 0:
            parent.close()
            _work(tokenizer, Connection(descriptors[0]))
            os._exit(0)
        os.close(descriptors[0])


def _work(tokenizer: Any, connection: Connection) -> None:
    """Answer calls until the connection is closed. The kernel ends this process when a call exceeds its time."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            call, items, arguments, seconds, background = connection.recv()
            if background:
                os.nice(19)
            _bound_time(seconds)
            for item in items:
                try:
                    answer = None, CALLS[call](tokenizer, item, *arguments)
                except BaseException as error:  # the tokenizers library raises a BaseException when it panics
                    problem = getattr(error, "problem", " ".join(str(error).split()))
                    answer = str(problem) or type(error).__name__, None
                connection.send(answer)
            _bound_time(0)
            connection.send(None)


def _bound_time(seconds: float) -> None:
    """Have the kernel end this process after `seconds` of CPU time, or a multiple of it in elapsed time; 0 = never."""
    for timer, number, limit in (
        (signal.ITIMER_PROF, signal.SIGPROF, seconds),
        (signal.ITIMER_REAL, signal.SIGALRM, seconds * _ELAPSED),
    ):
        signal.signal(number, signal.SIG_DFL)
        signal.setitimer(timer, limit)


def _bound_memory(most: int) -> None:
    """Limit the address space of this process and its workers to `most` bytes more than it has now."""
    with contextlib.suppress(OSError, ValueError):  # not every system has such a limit
        limit = address_space() + most
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
