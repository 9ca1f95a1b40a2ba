"""`Endpoint`: a route as an ASGI application: limits, JSON, errors in the API's shape, metrics and logs."""

import asyncio
import hmac
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import orjson
from starlette.types import Message, Receive, Scope, Send

from bert_jax.serving.batching import Row
from bert_jax.serving.logs import log_event
from bert_jax.serving.models import ServedModel
from bert_jax.serving.refusals import Reason, Refusal, Shaped
from bert_jax.serving.service import Service

_CLOSED = 499  # status in logs and metrics of a request whose client closed the connection
_DISCARDED = 16  # a body over the limit is read, and discarded, up to this many times the limit

Handler = Callable[["Call"], Awaitable[Any]]


class Call:
    """A request of a client.

    Attributes:
        service: what the routes share.
        body: the JSON object of the request; {} for GET.
        path: the parts of the path that the route names.
        texts: number of texts, for the log.
        tokens: number of tokens, for the log and the response.
        model: name of the model that answers, for the log.
    """

    def __init__(self, service: Service, scope: Scope, receive: Receive):
        self.service = service
        self.body: dict[str, Any] = {}
        self.path: dict[str, str] = scope.get("path_params", {})
        self.texts = self.tokens = 0
        self.model: str | None = None
        self._receive = receive
        self._held = 0
        self._disconnected: asyncio.Task[None] | None = None

    async def read(self, headers: dict[bytes, bytes]) -> None:
        """Read the body into `body`. Raises `Refusal` when it is too large, too slow or no JSON object."""
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
        try:
            body = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise Refusal(Reason.INVALID, f"expected JSON in UTF-8, found an error: {error}") from None
        if not isinstance(body, dict):
            raise Refusal(Reason.INVALID, f"expected a JSON object, found {type(body).__name__}")
        self.body = body

    async def _read(self, limit: int, declared: int) -> bytes | None:
        """Return the body; None if it is over the limit, after up to `_DISCARDED` times the limit was discarded."""
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
        if self.service.buffered > self.service.settings.max_buffered_bytes:
            raise Refusal(Reason.OVERLOADED, "the server is overloaded: the bodies of requests fill its memory", 1)

    def release(self) -> None:
        """Give back what `read` holds, and stop waiting for the end of the connection."""
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

    async def _until_disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


class Endpoint:
    """A route that takes a JSON object (POST) or nothing (GET), and answers with JSON.

    Args:
        service: what the routes share.
        route: the path of the route, for metrics and logs.
        handler: function of a `Call` that returns what to answer: JSON values, NumPy arrays, or `bytes` of JSON.
        shape: function that gives an error its status and body.
        public: whether no API key is needed, and the route answers before the server is ready.
    """

    def __init__(
        self,
        service: Service,
        route: str,
        handler: Handler,
        shape: Callable[[Refusal], Shaped],
        public: bool = False,
    ):
        self._service, self._route, self._handler, self._shape, self._public = service, route, handler, shape, public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        service = self._service
        call = Call(service, scope, receive)
        headers = dict(scope["headers"])
        more: dict[str, str] = {}
        service.in_flight += 1
        refusal: Refusal | None = None
        try:
            status, body = 200, await self._answer(call, scope["method"], headers)
        except Refusal as found:
            refusal = found
        except ConnectionError:
            self._finish(call, _CLOSED, started, "the client closed the connection")
            return
        except Exception as error:
            log_event("error", route=self._route, error="".join(traceback.format_exception(error))[-2000:])
            refusal = Refusal(
                Reason.BACKEND, "expected an answer, found a bug of the server; its log has the traceback"
            )
        finally:
            service.in_flight -= 1
            call.release()
        if refusal is not None:
            status, body = self._shape(refusal)
            if refusal.retry_after is not None:
                more["retry-after"] = str(refusal.retry_after)
            if refusal.reason in (Reason.SLOW_BODY, Reason.TOO_LARGE):
                more["connection"] = "close"
            if refusal.reason is Reason.UNAUTHORIZED:
                more["www-authenticate"] = "Bearer"
        if service.stopping:
            more["connection"] = "close"
        await respond(send, status, body, more)
        self._finish(call, status, started, refusal.message if refusal else None)

    async def _answer(self, call: Call, method: str, headers: dict[bytes, bytes]) -> Any:
        service = self._service
        if not self._public:
            check_key(service.settings.api_key, headers)
            service.check_ready()
            if service.in_flight > service.settings.max_concurrent_requests:
                most = service.settings.max_concurrent_requests
                raise Refusal(
                    Reason.OVERLOADED, f"the server is overloaded: expected at most {most} requests at a time", 1
                )
        if method == "POST":
            await call.read(headers)
        return await self._handler(call)

    def _finish(self, call: Call, status: int, started: float, error: str | None) -> None:
        seconds = time.perf_counter() - started
        self._service.metrics.request(self._route, status, seconds)
        if self._service.settings.log_requests and not self._public:
            log_event("request", route=self._route, status=status, seconds=seconds, model=call.model,
                      texts=call.texts or None, tokens=call.tokens or None, error=error)  # fmt: skip


def check_key(expected: str, headers: dict[bytes, bytes]) -> None:
    """Raise `Refusal` when a request does not carry the API key."""
    given = headers.get(b"authorization", b"")
    if expected and not hmac.compare_digest(given, f"Bearer {expected}".encode()):
        raise Refusal(Reason.UNAUTHORIZED, "expected the API key as Authorization: Bearer KEY, found none or another")


async def respond(
    send: Send, status: int, body: Any, headers: dict[str, str] | None = None, content_type: str = "application/json"
) -> None:
    """Send a response; a body that is not `bytes` is written as JSON."""
    data = body if isinstance(body, bytes) else orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
    named = {"content-type": content_type, "content-length": str(len(data)), **(headers or {})}
    start: Message = {
        "type": "http.response.start",
        "status": status,
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
    }
    await send(start)
    await send({"type": "http.response.body", "body": data})
