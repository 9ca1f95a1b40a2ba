"""`Endpoint`: a route as an ASGI application, with limits, JSON, errors in the API's format, metrics and logs."""

import asyncio
import hmac
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from starlette.types import Message, Receive, Scope, Send

from bert_jax.serving.batching import Row
from bert_jax.serving.bodies import SMALL, count_values, encode_json, most_counts, read_body
from bert_jax.serving.logs import log_event
from bert_jax.serving.models import ServedModel
from bert_jax.serving.refusals import Reason, Refusal, error_shape
from bert_jax.serving.service import Service

_CLOSED = 499  # status in logs and metrics of a request whose client closed the connection
_DISCARDED = 16  # a body over the limit is read and discarded up to this multiple of the limit
_MOST_MESSAGE = 500  # maximum characters of an error message, which may quote what a client sent
_PIECE = 64 << 10  # bytes of an answer that are handed to the connection at a time

_T = TypeVar("_T")
_Body = TypeVar("_Body", bound=msgspec.Struct)
Handler = Callable[["Call"], Awaitable[Any]]


class Call:
    """A request of a client.

    Attributes:
        service: the state that the routes share.
        path: values of the route's path parameters.
        texts: number of texts, for the log.
        tokens: number of tokens, for the log and the response.
        model: name of the model that answers, for the log.
    """

    def __init__(self, service: Service, scope: Scope, receive: Receive):
        self.service = service
        self.path: dict[str, str] = scope.get("path_params", {})
        self.texts = self.tokens = 0
        self.model: str | None = None
        self._receive = receive
        self._data = b""
        self._held = 0
        self._disconnected: asyncio.Task[None] | None = None

    async def read(self, headers: dict[bytes, bytes]) -> None:
        """Read the body. Raises `Refusal` when it is too long or arrives too slowly."""
        limit, settings = self.service.settings.max_body_bytes, self.service.settings
        declared = headers.get(b"content-length", b"")
        size = int(declared) if declared.isdigit() else 0
        try:
            async with asyncio.timeout(settings.read_timeout):
                data = await self._read(limit, size)
        except TimeoutError:
            message = f"expected the body within {settings.read_timeout:g} s, found {self._held} bytes of it"
            raise Refusal(Reason.SLOW_BODY, message) from None
        if data is None:
            raise Refusal(Reason.TOO_LARGE, f"expected a body of at most {limit} bytes, found more")
        self._data = data

    async def request(self, kind: type[_Body], reader: Callable[["Call", _Body], _T]) -> tuple[_Body, _T]:
        """Parse the body, and return it with the result of `reader`; a body that is not small is parsed in a thread.

        Args:
            kind: the `msgspec.Struct` of the body.
            reader: function of this call and the body; it may raise `Refusal`.

        Raises:
            Refusal: the body is not of this kind, or has too many values; or `reader` raised it.
        """
        data, self._data = self._data, b""

        def read() -> tuple[_Body, _T]:
            body = read_body(data, kind)
            return body, reader(self, body)

        if len(data) <= SMALL:
            return read()
        reading, most = self.service.reading, most_counts(self.service.settings)
        counts = await reading.run(len(data), lambda: count_values(data, most))
        self._hold(counts.memory(data))
        return await reading.run(len(data), read)

    def truncates(self, truncate: bool | None) -> bool:
        """Return whether long texts are cut: as the request says, or else as the server's settings say."""
        return self.service.settings.auto_truncate if truncate is None else truncate

    async def compute(self, size: int, function: Callable[[], _T]) -> _T:
        """Run a function that makes an answer of `size` values, in a thread unless the answer is small."""
        return function() if size <= SMALL else await self.service.writing.run(size, function)

    async def _read(self, limit: int, declared: int) -> bytes | None:
        """Return the body, or None if it exceeds the limit; up to `_DISCARDED` times the limit is read and dropped."""
        chunks: list[bytes] = []
        size, more = 0, declared <= limit * _DISCARDED
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError("the client closed the connection")
            chunk, more = message.get("body", b""), message.get("more_body", False)
            size += len(chunk)
            if size > limit * _DISCARDED:
                break
            if size > limit:
                chunks.clear()
                continue
            self._hold(len(chunk))
            chunks.append(chunk)
        return b"".join(chunks) if size <= limit and declared <= limit else None

    def _hold(self, size: int) -> None:
        """Count bytes that are held in memory. Raises `Refusal` when all requests together hold too many."""
        self._held += size
        self.service.buffered += size
        alone = self.service.buffered == self._held and self._held > size
        if self.service.buffered > self.service.settings.max_buffered_bytes and not alone:
            raise Refusal(Reason.OVERLOADED, "the server is overloaded: the bodies of requests fill its memory", 1)

    def release(self) -> None:
        """Release the memory of the body from the server's count, and stop waiting for a disconnect."""
        self.service.buffered -= self._held
        self._held = 0
        if self._disconnected is not None:
            self._disconnected.cancel()

    async def run(self, model: ServedModel, rows: Sequence[Row]) -> list[np.ndarray]:
        """Run rows on a model; return the output of each. Raises as `Service.run` does."""
        self.tokens += sum(row.size for row in rows)
        if self._disconnected is None:
            self._disconnected = asyncio.create_task(self._until_disconnected())
        return await self.service.run(model, rows, self._disconnected)

    def look_up(self, model: ServedModel, rows: Sequence[Row]) -> list[np.ndarray]:
        """Return the token ids of queries that need no forward pass. Raises `Refusal` when there are too many."""
        self.tokens += sum(row.size for row in rows)
        self.service.answered_without_model(model, rows)
        return [row.input_ids for row in rows]

    async def _until_disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


class Api(NamedTuple):
    """A route.

    Attributes:
        method: POST, with a JSON object, or GET.
        path: its path, also for metrics, logs and the format of its errors.
        handler: function of a `Call` that returns the answer: JSON, or a small value to encode as JSON.
        summary: what it does, for /openapi.json.
        schema: name of its answer's schema in `openapi.ANSWERS`.
        public: whether the route needs no API key and answers before the server is ready.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    schema: str
    public: bool = False


class Endpoint:
    """A route as an ASGI application.

    Args:
        service: the state that the routes share.
        api: the route.
    """

    def __init__(self, service: Service, api: Api):
        self._service, self._api = service, api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        service = self._service
        call = Call(service, scope, receive)
        headers = dict(scope["headers"])
        more: dict[str, str] = {}
        service.in_flight += 1
        refusal: Refusal | None = None
        try:
            answer = await self._answer(call, headers)
            status, data = 200, answer if isinstance(answer, bytes) else encode_json(answer)
        except Refusal as error:  # copied without its traceback, whose frames hold the body
            refusal = Refusal(error.reason, error.message[:_MOST_MESSAGE], error.retry_after)
        except ConnectionError:
            self._finish(call, _CLOSED, started, "the client closed the connection")
            return
        except Exception as error:
            log_event("error", route=self._api.path, error="".join(traceback.format_exception(error))[-2000:])
            refusal = Refusal(
                Reason.BACKEND, "expected an answer, found a bug of the server; its log has the traceback"
            )
        finally:
            service.in_flight -= 1
            call.release()
        if refusal is not None:
            status, body = error_shape(self._api.path)(refusal)
            data = encode_json(body)
            if refusal.retry_after is not None:
                more["retry-after"] = str(refusal.retry_after)
            if refusal.reason in (Reason.SLOW_BODY, Reason.TOO_LARGE):
                more["connection"] = "close"
            if refusal.reason is Reason.UNAUTHORIZED:
                more["www-authenticate"] = "Bearer"
        if service.stopping:
            more["connection"] = "close"
        await self._send(send, status, data, more)
        self._finish(call, status, started, refusal.message if refusal else None)

    async def _answer(self, call: Call, headers: dict[bytes, bytes]) -> Any:
        service = self._service
        if not self._api.public:
            check_key(service.settings.api_key, headers)
            service.check_ready()
            if service.in_flight > service.settings.max_concurrent_requests:
                most = service.settings.max_concurrent_requests
                raise Refusal(
                    Reason.OVERLOADED, f"the server is overloaded: expected at most {most} requests at a time", 1
                )
        if self._api.method == "POST":
            await call.read(headers)
        return await self._api.handler(call)

    async def _send(self, send: Send, status: int, data: bytes, more: dict[str, str]) -> None:
        """Send JSON, as fast as the client reads it.

        When unsent answers exceed the memory limit, the oldest are cancelled: their clients read too slowly, or not at
        all.
        """
        unsent, task = self._service.unsent, asyncio.current_task()
        assert task is not None
        unsent[task] = len(data)
        while len(unsent) > 1 and sum(unsent.values()) > self._service.settings.max_buffered_bytes:
            oldest = next(iter(unsent))
            del unsent[oldest]
            oldest.cancel()
        named = {"content-type": "application/json", "content-length": str(len(data)), **more}
        start: Message = {
            "type": "http.response.start",
            "status": status,
            "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        }
        try:
            await send(start)
            for begin in range(0, len(data), _PIECE):
                piece = data[begin : begin + _PIECE] if len(data) > _PIECE else data
                await send({"type": "http.response.body", "body": piece, "more_body": begin + _PIECE < len(data)})
        finally:
            unsent.pop(task, None)

    def _finish(self, call: Call, status: int, started: float, error: str | None) -> None:
        seconds = time.perf_counter() - started
        self._service.metrics.request(self._api.path, status, seconds)
        if self._service.settings.log_requests and not self._api.public:
            log_event("request", route=self._api.path, status=status, seconds=seconds, model=call.model,
                      texts=call.texts or None, tokens=call.tokens or None, error=error)  # fmt: skip


def check_key(expected: str, headers: dict[bytes, bytes]) -> None:
    """Raise `Refusal` when a request does not carry the API key."""
    authorization = headers.get(b"authorization", b"")
    if expected and not hmac.compare_digest(authorization, f"Bearer {expected}".encode()):
        raise Refusal(Reason.UNAUTHORIZED, "expected the API key as Authorization: Bearer KEY, found none or another")
