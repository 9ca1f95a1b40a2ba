"""`Service`: the models, the scheduler and the limits that all routes of a server share."""

import asyncio
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from bert_jax.errors import InputError, did_you_mean
from bert_jax.serving.batching import Row
from bert_jax.serving.bodies import SmallestFirst
from bert_jax.serving.metrics import ServerMetrics
from bert_jax.serving.models import ServedModel
from bert_jax.serving.refusals import Reason, Refusal
from bert_jax.serving.scheduler import Scheduler
from bert_jax.serving.settings import ServerSettings
from bert_jax.serving.tasks import ServedTask
from bert_jax.tokenization.call_limits import BudgetExceeded, CallLimits, limited

_T = TypeVar("_T")
TOKENIZER_THREADS = 2
_QUICK_CHARACTERS, _QUICK_SECONDS = 1 << 15, 0.05  # limits of tokenization in the threads that all requests share


class Service:
    """The state that the routes of a server share.

    Args:
        models: the models by name.
        settings: limits, timeouts and the API key.

    Attributes:
        metrics: the metrics.
        scheduler: the scheduler of all models.
        in_flight: number of requests in flight.
        buffered: bytes of request bodies in memory.
        reading: the thread that parses bodies.
        writing: the thread that writes answers.
        unsent: requests whose answers are being sent -> bytes of the answer, the oldest first.
        stopping: whether the server is stopping.
    """

    def __init__(self, models: dict[str, ServedModel], settings: ServerSettings):
        self.models, self.settings = models, settings
        self.metrics = ServerMetrics()
        self.scheduler = Scheduler({name: model.backends for name, model in models.items()}, self.metrics.batch)
        self.in_flight = self.buffered = 0
        self.reading, self.writing = SmallestFirst("bodies"), SmallestFirst("answers")
        self.unsent: dict[asyncio.Task[Any], int] = {}
        self.stopping = False
        self._quick = ThreadPoolExecutor(TOKENIZER_THREADS, "tokenizer")
        # These threads wait for worker processes of low priority.
        self._slow = ThreadPoolExecutor(max(TOKENIZER_THREADS, min(8, (os.cpu_count() or 1) // 2)), "slow-tokenizer")
        self._waiting: dict[object, float] = {}  # call -> time since which it waits for a slow thread, oldest first

    @property
    def ready(self) -> bool:
        """Return whether requests are answered: every shape is compiled, and the server is not stopping."""
        return self.scheduler.ready and not self.stopping

    def check_ready(self) -> None:
        """Raise `Refusal` with status 503 until every shape of the models is compiled."""
        if not self.scheduler.ready:
            failed = self.scheduler.failed
            why = f"the warm-up failed: {failed}" if failed else "the models are being compiled"
            raise Refusal(Reason.NOT_READY, f"expected a ready server, found one that is not: {why}", 1)

    def model(self, name: str | None, *tasks: ServedTask) -> ServedModel:
        """Return the model that a request names, or the first with one of the tasks if it names none.

        Raises:
            Refusal: there is no model of this name, or its task is not one of `tasks`.
        """
        expected = f"expected a model for {' or '.join(task.value for task in tasks)}"
        if name is None:
            first = next((model for model in self.models.values() if model.task in tasks), None)
            if first is None:
                raise Refusal(Reason.WRONG_MODEL, f"{expected}, found none")
            return first
        if name not in self.models:
            raise Refusal(Reason.NOT_FOUND, f"model {name!r} is not known{did_you_mean(name, self.models)}")
        model = self.models[name]
        if model.task not in tasks:
            raise Refusal(Reason.WRONG_MODEL, f"model {name!r}: {expected}, found one for {model.task.value}")
        return model

    async def in_thread(self, function: Callable[[], _T], texts: Sequence[str] = ()) -> _T:
        """Run a function in a thread, so that the event loop keeps serving.

        Long texts, and texts whose tokenization takes more than a moment, run in separate threads and processes, so
        that no other request waits for them.

        Args:
            function: function that tokenizes; it may be called twice.
            texts: the texts of the request.

        Raises:
            Refusal: the function raised an `InputError`, or slow requests have waited too long.
        """
        loop = asyncio.get_running_loop()
        try:
            if sum(map(len, texts)) <= _QUICK_CHARACTERS:
                try:
                    return await loop.run_in_executor(self._quick, _limited, function, CallLimits(_QUICK_SECONDS))
                except BudgetExceeded:
                    pass
            return await loop.run_in_executor(self._slow, self._when_free(function))
        except InputError as error:
            raise Refusal(Reason.TOKENIZER, str(error)) from None

    def _when_free(self, function: Callable[[], _T]) -> Callable[[], _T]:
        """Wrap a function for a slow thread. Raises `Refusal` when the oldest waiting call has waited too long."""
        now, call = time.monotonic(), object()
        waited, most = now - next(iter(self._waiting.values()), now), self.settings.max_wait
        if waited > most:
            message = f"the server is overloaded: expected slow texts to wait at most {most:g} s, found {waited:.1f} s"
            raise Refusal(Reason.OVERLOADED, message, math.ceil(waited))
        self._waiting[call] = now

        def run() -> _T:
            self._waiting.pop(call, None)
            return _limited(function, CallLimits(background=True))

        return run

    def check(self, model: ServedModel, count: int, tokens: int | None = None) -> None:
        """Raise `Refusal` when a request has no text or too many, or would wait too long.

        Args:
            model: the model.
            count: number of texts or pairs.
            tokens: number of their tokens; None before tokenization, when each text counts as one token.
        """
        self.check_texts(count)
        wait, most = self.scheduler.expected_wait(model.name, tokens or count), self.settings.max_wait
        if wait > most:
            message = f"the server is overloaded: expected a wait of at most {most:g} s, found {wait:.1f} s"
            raise Refusal(Reason.OVERLOADED, message, max(1, math.ceil(wait - most)))

    def check_texts(self, count: int) -> None:
        """Raise `Refusal` when a request has no text or too many."""
        if count < 1:
            raise Refusal(Reason.INVALID, "expected at least one text, found none")
        if count > self.settings.max_texts:
            raise Refusal(Reason.TOO_LARGE, f"expected at most {self.settings.max_texts} texts, found {count}")

    def check_tokens(self, tokens: int) -> None:
        """Raise `Refusal` when a request has too many tokens."""
        if tokens > (most := self.settings.max_request_tokens):
            raise Refusal(Reason.TOO_LARGE, f"expected at most {most} tokens in a request, found {tokens}")

    async def run(
        self, model: ServedModel, rows: Sequence[Row], disconnected: "asyncio.Future[Any]"
    ) -> list[np.ndarray]:
        """Run rows on a model and return the output of each row.

        Args:
            model: the model.
            rows: the rows of one request.
            disconnected: a future that is done when the client has disconnected.

        Raises:
            Refusal: the server is overloaded, the time limit passed, or the forward pass failed.
            ConnectionError: the client has disconnected.
        """
        tokens = sum(row.size for row in rows)
        self.check_tokens(tokens)
        self.check(model, len(rows), tokens)
        submission = self.scheduler.submit(model.name, rows)
        try:
            await asyncio.wait({submission.future, disconnected}, timeout=self.settings.request_timeout,
                               return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
            if not submission.future.done():
                if disconnected.done():
                    raise ConnectionError("the client closed the connection")
                seconds = self.settings.request_timeout
                raise Refusal(Reason.TIMEOUT, f"expected an answer within {seconds:g} s, found none")
            if (error := submission.future.exception()) is not None:
                raise Refusal(Reason.BACKEND, f"the forward pass failed: {type(error).__name__}")
        finally:
            if not submission.future.done():
                submission.future.cancel()
                self.scheduler.drop(model.name, submission)
        self.metrics.answered(model.name, len(rows), max(0.0, submission.begun - submission.submitted))
        return submission.future.result()

    def answered_without_model(self, model: ServedModel, rows: Sequence[Row]) -> None:
        """Count the rows of a request that need no forward pass. Raises `Refusal` when they have too many tokens."""
        self.check_tokens(sum(row.size for row in rows))
        self.metrics.answered(model.name, len(rows), None)

    def close(self) -> None:
        """End the threads, after the waiting batches have run."""
        self.scheduler.stop()
        self._quick.shutdown(wait=False, cancel_futures=True)
        self._slow.shutdown(wait=False, cancel_futures=True)
        self.reading.close()
        self.writing.close()


def _limited(function: Callable[[], _T], limits: CallLimits) -> _T:
    with limited(limits):
        return function()
