"""`ConnectionPool`: limit connections in total and per client, close one to make room, and enforce deadlines."""

import asyncio
import ipaddress
import os
import resource
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bert_jax.errors import InputError
from bert_jax.serving.settings import ServerSettings

if TYPE_CHECKING:
    from bert_jax.serving.connections import LimitedProtocol

_MOST_CONNECTIONS = 4096
_SPARE_FILES = 48  # descriptors that stay free: for files of models and programs, threads, and closing connections
_RESERVE = 16  # connections beyond the limit, which get answers only for health routes
_SWEEP = 0.25  # seconds between checks of deadlines


def client_key(address: str) -> str:
    """Return the key that identifies a client: its IPv4 address or IPv6 /64 network."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # the address of a Unix socket
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ip.ipv4_mapped or ipaddress.ip_network((ip, 64), strict=False))
    return address


def connection_limit(settings: ServerSettings) -> int:
    """Return the maximum number of open connections. Raises InputError when too few file descriptors are free."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    descriptors = 1 << 20 if soft == resource.RLIM_INFINITY else soft
    free = descriptors - sum(map(_is_open, range(min(descriptors, 2 * _MOST_CONNECTIONS))))
    if free < (needed := 1 + _SPARE_FILES + _RESERVE):
        raise InputError(f"ulimit -n: expected at least {needed} free file descriptors, found {free}")
    return min(settings.max_connections or _MOST_CONNECTIONS, free - _SPARE_FILES - _RESERVE)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


class ConnectionPool:
    """The open connections of a server.

    When the pool is full, a new connection replaces one of the client with the most connections: the one that has been
    idle, or sending an incomplete request, for longest. If all connections are busy, a few more are accepted, which get
    answers only for health routes.

    Args:
        settings: the limits.

    Attributes:
        most: maximum number of connections, without the reserve.
    """

    def __init__(self, settings: ServerSettings):
        self.most = connection_limit(settings)
        self._by_client: dict[str, dict[LimitedProtocol, None]] = {}
        self._most_of_client = settings.max_connections_per_client or max(1, self.most // 2)
        self._count = 0  # number of connections that are not being closed

    def add(self, connection: "LimitedProtocol") -> bool | None:
        """Add a connection; return whether it is in the reserve, or None if the reserve is full too."""
        of_client = self._by_client.get(connection.address, {})
        full = len(of_client) >= self._most_of_client
        reserve = False
        if full or self._count >= self.most:
            largest = sorted(self._by_client.values(), key=len, reverse=True)
            victim = self._victim([of_client] if full else largest)
            if victim is not None:
                self.remove(victim)
                victim.abort()
            elif self._count >= self.most + _RESERVE or len(of_client) >= self._most_of_client + _RESERVE:
                return None
            else:
                reserve = True
        self._by_client.setdefault(connection.address, {})[connection] = None
        self._count += 1
        return reserve

    def remove(self, connection: "LimitedProtocol") -> None:
        """Remove a connection, if it is in the pool."""
        of_client = self._by_client.get(connection.address)
        if of_client is None or connection not in of_client:
            return
        del of_client[connection]
        self._count -= 1
        if not of_client:
            del self._by_client[connection.address]

    def _victim(self, clients: "Iterable[dict[LimitedProtocol, None]]") -> "LimitedProtocol | None":
        for of_client in clients:
            waiting = [connection for connection in of_client if not connection.busy]
            if waiting:
                return min(waiting, key=lambda connection: connection.since)
        return None

    async def sweep(self) -> None:
        """Close connections at their deadlines, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP)
            now = loop.time()
            for of_client in list(self._by_client.values()):
                for connection in [connection for connection in of_client if connection.deadline <= now]:
                    connection.abort()
