"""HTTP connections that slow, silent or endless clients cannot hold."""

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MOST_HEADER_BYTES = 64 << 10
_GRACE = 2.0  # seconds for the answer 408, before a connection with an unfinished request is closed


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits on the time and the bytes of a request's headers, and on the time of its body.

    A subclass sets `read_timeout`; see `protocol_class`.
    """

    read_timeout = 10.0

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        self._in_headers = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first request, and the kernel's for clients that vanish."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # of data that the client does not read
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self.read_timeout * 3000))
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limit."""
        self._stop_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes; close the connection when the headers of a request are too long."""
        super().data_received(data)
        if self._in_headers and not self.transport.is_closing():
            self._header_bytes += len(data)
            if self._header_bytes > _MOST_HEADER_BYTES:
                self.send_400_response("headers: expected at most 64 KiB, found more")

    def on_message_begin(self) -> None:
        """Start the time limit of a request."""
        super().on_message_begin()
        self._in_headers, self._header_bytes = True, 0
        self._start_deadline()

    def on_headers_complete(self) -> None:
        """Stop counting the bytes of headers."""
        self._in_headers = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Stop the time limit of a request: it is here."""
        self._stop_deadline()
        super().on_message_complete()

    def _start_deadline(self) -> None:
        self._stop_deadline()
        self._deadline = self.loop.call_later(self.read_timeout + _GRACE, self._close)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()


def protocol_class(read_timeout: float) -> type[LimitedProtocol]:
    """Return the protocol class with a time limit in seconds."""
    return type("LimitedProtocol", (LimitedProtocol,), {"read_timeout": read_timeout})
