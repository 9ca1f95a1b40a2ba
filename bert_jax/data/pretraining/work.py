"""Run the steps of `prepare` in several processes of one machine."""

import concurrent.futures
import concurrent.futures.process
import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, TypeVar

from bert_jax.data.pretraining.chunks import PrepareSettings
from bert_jax.data.pretraining.steps import Preparation

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class Workers:
    """Worker processes that start when there is work for two of them, and end with the `with` block.

    Args:
        job: the context that all steps share.
        count: the number of processes.
    """

    def __init__(self, job: Preparation, count: int):
        self._job, self._count = job, count
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def map(
        self, work: Callable[[Preparation, _Task], _Result], tasks: Iterable[_Task]
    ) -> Iterator[tuple[_Task, _Result]]:
        """Yield each task with its result, in any order. A lone task is done in this process.

        Raises:
            OSError: a process died.
        """
        first = list(itertools.islice(tasks := iter(tasks), 2 if self._count > 1 else 0))
        tasks = itertools.chain(first, tasks)
        if len(first) < 2:
            yield from ((task, work(self._job, task)) for task in tasks)
            return
        pool, pending = self._started(), {}
        try:
            for task in tasks:
                pending[pool.submit(_work, work, task)] = task
                if len(pending) > self._count:  # keep one task waiting while all processes are busy
                    yield from _finished(pending)
            while pending:
                yield from _finished(pending)
        except concurrent.futures.process.BrokenProcessPool:
            raise OSError(
                "a worker process died: out of memory (fewer workers or smaller shards need less), or this was called "
                'by a script without `if __name__ == "__main__":`'
            ) from None

    def _started(self) -> concurrent.futures.ProcessPoolExecutor:
        if not self._pool:
            spawn = multiprocessing.get_context("spawn")  # forking a process in which JAX's threads run can hang
            initial_arguments = (self._job.settings, os.fspath(self._job.directory))
            self._pool = concurrent.futures.ProcessPoolExecutor(self._count, spawn, _start_worker, initial_arguments)
        return self._pool


def _finished(pending: dict[concurrent.futures.Future, Any]) -> Iterator[tuple[Any, Any]]:
    """Wait for the first of the pending tasks; yield those that are done, with their results."""
    for future in concurrent.futures.wait(pending, return_when=concurrent.futures.FIRST_COMPLETED).done:
        yield pending.pop(future), future.result()


_job: Preparation | None = None  # set once in each worker process


def _start_worker(settings: PrepareSettings, directory: str) -> None:
    global _job
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each process uses one thread
    _job = Preparation.opened(settings, directory)


def _work(work: Callable[[Preparation, Any], Any], task: Any) -> Any:
    assert _job is not None, "the pool's initializer has run"
    return work(_job, task)
