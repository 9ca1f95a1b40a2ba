"""`ConnectionPool`: how many connections are open, by address too, which one makes room, and their deadlines."""

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable, Iterable
from typing import Protocol

from bert_jax.errors import InputError
from bert_jax.serving.logs import log_event
from bert_jax.serving.settings import ServerSettings

_MOST_CONNECTIONS = 4096
_SPARE_FILES = 48  # descriptors that stay free, for files of models and programs, threads and connections that close
_RESERVE = 16  # connections beyond the limit, which are answered only if they ask for health
_SWEEP = 0.25  # seconds between checks of deadlines
_ACCEPTED = 64  # most connections that are accepted in a row


class Connection(Protocol):
    """What the pool needs to know of a connection.

    Attributes:
        address: the client: an IPv4 address or an IPv6 /64 network.
        deadline: time of the loop at which the connection is closed.
        since: time of the loop at which its state began.
        busy: whether a whole request of it is being answered.
    """

    address: str
    deadline: float
    since: float

    @property
    def busy(self) -> bool: ...

    def abort(self) -> None:
        """Close the connection at once."""


def client_key(address: str) -> str:
    """Return what connections of one client have in common: the IPv4 address or the IPv6 /64 network."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # of a Unix socket
        return address
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
    return address


def connection_limit(settings: ServerSettings) -> int:
    """Return how many connections may be open. Raises InputError when the limit of file descriptors is too low."""
    free = _free_descriptors() - _SPARE_FILES - _RESERVE
    if free < 1:
        needed = 1 + _SPARE_FILES + _RESERVE
        raise InputError(f"ulimit -n: expected at least {needed} free file descriptors, found {_free_descriptors()}")
    return min(settings.max_connections or _MOST_CONNECTIONS, free)


def _free_descriptors() -> int:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 1 << 20
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return 1 << 20
    return int(soft) - sum(map(_is_open, range(min(soft, 2 * _MOST_CONNECTIONS))))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


class ConnectionPool:
    """The open connections of a server.

    When all places are taken, a new connection takes the place of the one that has been without a whole request for
    longest, of the client with most connections. If all are busy, a few more connections are let in that are answered
    only if they ask for health.

    Args:
        settings: the limits.

    Attributes:
        most: most connections, beside the reserve.
    """

    def __init__(self, settings: ServerSettings):
        self.most = connection_limit(settings)
        self._by_client: dict[str, dict[Connection, None]] = {}
        self._most_of_client = settings.max_connections_per_client or max(1, self.most // 2)
        self._count = 0  # of connections that are not being closed
        self._open = 0  # of open sockets, from `accept` to `connection_lost`

    @property
    def has_descriptor(self) -> bool:
        """Return whether another connection may be accepted without running out of file descriptors."""
        return self._open < self.most + _RESERVE + _SPARE_FILES // 3

    def opened(self) -> None:
        """Count a socket that was accepted."""
        self._open += 1

    def closed(self) -> None:
        """Count a socket that was closed."""
        self._open -= 1

    def add(self, connection: Connection) -> bool | None:
        """Add a connection; return whether it is in the reserve, None if there is no place at all."""
        own = self._by_client.get(connection.address, {})
        full = len(own) >= self._most_of_client
        reserve = False
        if full or self._count >= self.most:
            victim = self._victim([own] if full else self._largest())
            if victim is not None:
                self.remove(victim)
                victim.abort()
            elif self._count >= self.most + _RESERVE or len(own) >= self._most_of_client + _RESERVE:
                return None
            else:
                reserve = True
        self._by_client.setdefault(connection.address, {})[connection] = None
        self._count += 1
        return reserve

    def remove(self, connection: Connection) -> None:
        """Take a connection out; nothing happens if it is not in the pool."""
        own = self._by_client.get(connection.address)
        if own is None or connection not in own:
            return
        del own[connection]
        self._count -= 1
        if not own:
            del self._by_client[connection.address]

    def _largest(self) -> list[dict[Connection, None]]:
        """Return the connections of each client, the most first."""
        return sorted(self._by_client.values(), key=len, reverse=True)

    def _victim(self, clients: Iterable[dict[Connection, None]]) -> Connection | None:
        for own in clients:
            waiting = [connection for connection in own if not connection.busy]
            if waiting:
                return min(waiting, key=lambda connection: connection.since)
        return None

    async def sweep(self) -> None:
        """Close connections at their deadlines, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP)
            now = loop.time()
            for own in list(self._by_client.values()):
                for connection in [connection for connection in own if connection.deadline <= now]:
                    connection.abort()


class Listener:
    """Accepts connections of a port while there are file descriptors for them.

    It takes the place of an `asyncio.Server` in uvicorn's server. An `asyncio.Server` accepts whatever comes, and
    so runs out of descriptors before a connection can be refused.

    Args:
        port: the open port.
        pool: the connections.
        protocol: makes the protocol of a connection.
    """

    def __init__(self, port: socket.socket, pool: ConnectionPool, protocol: Callable[[], asyncio.Protocol]):
        self._port, self._pool, self._protocol = port, pool, protocol
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep = self._loop.create_task(pool.sweep())
        self._loop.add_reader(port, self._accept)
        self._paused: asyncio.TimerHandle | None = None
        self._closed = False

    def _accept(self) -> None:
        for _ in range(_ACCEPTED):
            if not self._pool.has_descriptor:
                self._pause()
                return
            try:
                connection = self._port.accept()[0]
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # out of descriptors or memory all the same: other parts of the process hold them
                log_event("accept", error=str(error))
                self._pause()
                return
            self._pool.opened()
            task = self._loop.create_task(self._connect(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(self._protocol, connection)
        except OSError:  # the client is gone already
            connection.close()
            self._pool.closed()

    def _pause(self) -> None:
        """Accept again in a moment, when connections that are being closed have given back their descriptors."""
        self._loop.remove_reader(self._port)
        self._paused = self._loop.call_later(0.02, self._resume)

    def _resume(self) -> None:
        self._paused = None
        if not self._closed:
            self._loop.add_reader(self._port, self._accept)

    def close(self) -> None:
        """Close the port; open connections stay open."""
        if not self._closed:
            self._closed = True
            if self._paused is None:
                self._loop.remove_reader(self._port)
            self._port.close()

    async def wait_closed(self) -> None:
        """End the check of deadlines: the server has no connection any more."""
        self._sweep.cancel()
