"""Raw HTTP over sockets, for what no HTTP client sends."""

import contextlib
import re
import socket
import time
from pathlib import Path


def connect(address, seconds=20):
    """A connection to the server."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(seconds)
    return connection


def post(body, *headers, path="/embed", host="localhost"):
    """The bytes of a request."""
    lines = [f"POST {path} HTTP/1.1", f"host: {host}", f"content-length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def get(*headers, path="/health", version="1.1"):
    """The bytes of a request without a body; the headers hold the host."""
    return ("\r\n".join([f"GET {path} HTTP/{version}", *headers]) + "\r\n\r\n").encode("latin-1")


def read_answer(connection):
    """The status and the body of an answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(1 << 16)
        assert part, data
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head)[1])
    while len(body) < length:
        body += connection.recv(1 << 16)
    return int(head.split(b" ")[1]), body[:length]


def status_of(address, request):
    """The status of a request on a connection of its own."""
    with connect(address) as connection:
        connection.sendall(request)
        return read_answer(connection)[0]


def count_sent(connection, block, most, seconds=20):
    """Send a block again and again; the number of bytes until the server closes the connection, or `most`."""
    sent, end = 0, time.monotonic() + seconds
    with contextlib.suppress(ConnectionError):
        while sent < most and time.monotonic() < end:
            connection.sendall(block)
            sent += len(block)
    return sent


def resident_mib(pid):
    """The memory of a process."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) >> 10
