"""HTTP connections with limits on the bytes and the time of every part of a request and its answer."""

import asyncio
import socket
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from bert_jax.serving.connection_pool import ConnectionPool, client_key
from bert_jax.serving.settings import ServerSettings

# Maximum bytes of a request besides its body: blank lines, first line, headers, trailers, sizes of chunks.
_MOST_FRAMING = 64 << 10
_MOST_FIELDS = 128  # maximum number of headers and trailers of a request
_MOST_PIPELINED = 16  # maximum number of requests that wait behind the one that is being answered
_MOST_DROPPED = 1 << 20  # maximum bytes to drop after a refused request, while earlier ones are being answered
_DISCARDED = 17  # multiple of the body limit at which a request is refused here; `Endpoint` refuses it earlier
_GRACE = 2.0  # seconds for sending status 408, before a connection with an unfinished request is closed
_SLOWEST_READ = 256 << 10  # minimum rate at which a client must read an answer, in bytes per second
_HEALTH = frozenset(("/health", "/v2/health/live", "/v2/health/ready"))
_VERSION = b"HTTP/1.1 "  # start of every answer
_FIRST_PROBE, _SLOWEST_PROBE = 0.3, 5.0  # seconds before the first probe, and the maximum between later ones


class _Refused(Exception):
    """A request over a limit; the message is for the client."""


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a deadline in every state, and limits on the bytes of a request.

    A state ends when a request or an answer is complete. Bytes alone never move a deadline. A subclass sets `settings`
    and `pool`; see `protocol_class`.

    Attributes:
        address: key of the client, see `client_key`.
        deadline: time of the event loop at which the connection is closed.
        since: time of the event loop at which its state began.
    """

    settings: ServerSettings
    pool: ConnectionPool

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.address = ""
        self.since = self.deadline = self.loop.time()
        self._reserve = False  # whether only health routes are answered
        self._in_request = False  # whether a request has begun and is not complete
        self._in_headers = False
        self._deaf = False  # whether further bytes are dropped
        self._framing = self._fields = self._body = 0
        self._answered: RequestResponseCycle | None = None  # the request that is being answered

    @property
    def busy(self) -> bool:
        """Return whether a complete request is being answered."""
        return self._answered is not None and not (self._in_request and self._answered is self.cycle)

    def _enter(self, seconds: float) -> None:
        """Begin a state that may last this number of seconds."""
        self.since = self.loop.time()
        self.deadline = self.since + seconds

    def abort(self) -> None:
        """Close the connection at once, even if bytes wait to be written."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first request, and the kernel's time limit for clients that vanish."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # limits how long sent data may stay unacknowledged
                milliseconds = int(self.settings.read_timeout * 3000)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        self.address = client_key(self.client[0] if self.client else "")
        self._enter(self.settings.read_timeout + _GRACE)
        reserve = self.pool.add(self)
        if reserve is None:
            self._deaf = True
            transport.abort()
        else:
            self._reserve = reserve

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the pool, and notify the request that is being answered."""
        self.pool.remove(self)
        super().connection_lost(exc)
        self.pipeline.clear()
        if self._answered is not None:  # uvicorn notifies only the last of pipelined requests
            self._answered.disconnected = True
            self._answered.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Parse bytes, unless the connection is being closed; refuse a request that is over a limit."""
        if self.transport.is_closing():
            return
        self._framing += len(data)
        if self._deaf:
            if self._framing > _MOST_DROPPED:
                self.abort()
            return
        try:
            self.parser.feed_data(data)
            self._check_framing()
        except httptools.HttpParserUpgrade:
            pass  # answered like any other request
        except (_Refused, httptools.HttpParserError) as error:
            cause = error if isinstance(error, _Refused) else error.__context__
            self._refuse(str(cause) if isinstance(cause, _Refused) else "expected HTTP/1.1, found something else")

    def _check_framing(self) -> None:
        """Raise `_Refused` when a request has too many bytes besides its body; a longer body allows more."""
        if self._framing > _MOST_FRAMING + min(self._body, self.settings.max_body_bytes) // 4:
            most = f"{_MOST_FRAMING >> 10} KiB"
            raise _Refused(f"headers, trailers and sizes of chunks: expected at most {most}, found more")

    def _refuse(self, message: str) -> None:
        """Answer with status 400 and close the connection, after the answers to earlier requests."""
        self._deaf, self._framing = True, 0
        broken = self.cycle if self._in_request and not self._in_headers else None
        if broken is not None and self.pipeline and self.pipeline[0][0] is broken:
            self.pipeline.popleft()  # drop a request whose answer has not begun
            broken = None
        if broken is None and self._answered is not None:
            last = self.pipeline[0][0] if self.pipeline else self._answered
            last.keep_alive = False
            return
        if broken is not None and not broken.response_complete:
            broken.disconnected = True
            broken.message_event.set()
        if broken is None or not broken.response_started:
            self.send_400_response(message)
        else:
            self.transport.close()
        self._enter(_GRACE)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection of a client that will send no more, until its requests are answered."""
        if self._answered is None or self._in_request:
            return False  # closes the connection
        last = self.pipeline[0][0] if self.pipeline else self._answered
        last.keep_alive = False
        self._deaf = True
        self.loop.call_later(_FIRST_PROBE, self._probe, self._answered, 1)
        return True

    def _probe(self, cycle: RequestResponseCycle, count: int) -> None:
        """Find out whether a client that sends no more still reads.

        TCP reports that a client is gone only in reply to data. So the first bytes of the answer, which are the same
        for every answer, are written one at a time before the rest is known.
        """
        if self.transport.is_closing() or cycle is not self._answered or cycle.response_started:
            return
        begun = count == 1
        self.transport.write(_VERSION[count - 1 : count])
        if begun:
            cycle.transport = _BegunAnswer(self.transport)  # type: ignore[assignment]
        cycle.transport.begun = count  # type: ignore[attr-defined]
        if count < len(_VERSION):
            delay = min(_FIRST_PROBE * 2 ** (count - 1), _SLOWEST_PROBE)
            self.loop.call_later(delay, self._probe, cycle, count + 1)

    def on_message_begin(self) -> None:
        """Start the time limit of a request. Raises `_Refused` when too many requests wait for an answer."""
        if len(self.pipeline) >= _MOST_PIPELINED:
            raise _Refused("pipelined requests: expected fewer")
        super().on_message_begin()
        self._in_request = self._in_headers = True
        self._fields = self._body = 0
        if self._answered is None:
            self._enter(self.settings.read_timeout + _GRACE)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, or drop a trailer. Raises `_Refused` when a request has too many of them."""
        self._fields += 1
        if self._fields > _MOST_FIELDS:
            raise _Refused(f"headers and trailers: expected at most {_MOST_FIELDS}, found more")
        if self._in_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hand the request to the application, with the host from its target if that is in absolute form."""
        self._in_headers = False
        state = self.scope["state"]
        if not self.url.startswith(b"/"):
            state["authority"] = self.url.partition(b"//")[2].partition(b"/")[0].decode("latin-1")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Hand over a part of the body. Raises `_Refused` when the body is far over its limit."""
        self._framing -= len(body)
        self._body += len(body)
        if self._body > self.settings.max_body_bytes * _DISCARDED + _MOST_DROPPED:
            raise _Refused("body: expected fewer bytes")
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the time limit of a request that is now complete."""
        self._in_request, self._framing = False, 0
        super().on_message_complete()
        if self._answered is self.cycle:
            self._enter_answer()
        elif self._answered is None:
            self._enter(self.settings.keep_alive)

    def _enter_answer(self) -> None:
        self._enter(self.settings.request_timeout + self.settings.read_timeout + _GRACE)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        if cycle is not self.cycle or not self._in_request:
            self._enter_answer()
        if self._reserve and cycle.scope["path"] not in _HEALTH:
            app = service_unavailable
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Begin the next state: waiting for the client to read this answer, to finish a request, or to begin one."""
        self._answered = None
        read = self.settings.read_timeout + _GRACE
        if unread := self.transport.get_write_buffer_size():
            self._enter(read + unread / _SLOWEST_READ)
        else:
            self._enter(read if self._in_request else self.settings.keep_alive)
        super().on_response_complete()
        self._unset_keepalive_if_required()  # uvicorn's own time limit ends with any byte

    def resume_writing(self) -> None:
        """Begin to wait for the next request: the client has read the answer."""
        super().resume_writing()
        if self._answered is None and not self._in_request and not self.transport.is_closing():
            self._enter(self.settings.keep_alive)


class _BegunAnswer:
    """A transport for an answer whose first bytes have already been written."""

    def __init__(self, transport: asyncio.Transport):
        self._transport, self.begun = transport, 0

    def write(self, data: bytes) -> None:
        """Write bytes, without the first ones that have already been written."""
        self._transport.write(data[self.begun :])
        self.begun = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def protocol_class(settings: ServerSettings, pool: ConnectionPool) -> type[LimitedProtocol]:
    """Return the protocol class of a server."""
    return type("LimitedProtocol", (LimitedProtocol,), {"settings": settings, "pool": pool})
