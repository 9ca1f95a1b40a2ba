"""Hostile clients of a server on this machine, one kind in each process.

python -m benchmarks.attackers KIND PORT SECONDS    # starts at a line on stdin; prints what was sent as JSON
"""

import asyncio
import collections
import contextlib
import functools
import itertools
import json
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

ATTACKERS = 8  # connections at a time of each kind; of those that are only held, `_HELD`
_HELD = 150
_PATIENCE = 30.0  # seconds in which an attacker waits for an answer
_PAUSE = 0.05  # seconds between two attacks of a client: a network would not carry more
_BODY = 2 << 20  # bytes of a large body, the most that the server takes by default


class Attacker:
    """A hostile client, and the sum of what it did.

    Attributes:
        end: time (`time.monotonic`) of the last attack.
        counts: numbers of requests and bytes sent, and of each outcome.
    """

    def __init__(self, kind: str, port: int, seconds: float):
        self._address = f"127.0.1.{1 + sorted(ATTACKS).index(kind)}"
        self._port = port
        self.rng = random.Random(kind)
        self.end = time.monotonic() + seconds
        self.counts: collections.Counter[str] = collections.Counter()

    @contextlib.asynccontextmanager
    async def connection(self, buffer: int | None = None) -> Any:
        """Open a connection from the address of this kind of attack; count how it ends."""
        writer = None
        try:
            async with asyncio.timeout(_PATIENCE):
                connection = socket.socket()
                connection.setblocking(False)
                if buffer is not None:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
                connection.bind((self._address, 0))
                await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self._port))
                reader, writer = await asyncio.open_connection(sock=connection, limit=1 << 16)
            self.counts["connections"] += 1
            yield reader, writer
        except TimeoutError:
            self.counts["timed out"] += 1
        except (OSError, EOFError, ValueError):  # the server closed it; or an answer that is not read to its end
            self.counts["closed"] += 1
        finally:
            if writer is not None:
                writer.transport.abort()

    async def send(self, writer: asyncio.StreamWriter, data: bytes, seconds: float = _PATIENCE) -> None:
        """Send bytes, as fast as the server takes them."""
        self.counts["bytes"] += len(data)
        writer.write(data)
        async with asyncio.timeout(seconds):
            await writer.drain()

    async def status(self, reader: asyncio.StreamReader) -> None:
        """Read the first line of an answer, and count its status."""
        async with asyncio.timeout(_PATIENCE):
            line = await reader.readline()
        self.counts[line.split(b" ")[1].decode() if line.startswith(b"HTTP") else "closed"] += 1

    async def ask(self, path: str, body: bytes, headers: str = "") -> None:
        """Send a request over a connection of its own, and count the status of the answer."""
        async with self.connection() as (reader, writer):
            self.counts["requests"] += 1
            await self.send(writer, head(path, f"content-length: {len(body)}\r\n{headers}") + body)
            await self.status(reader)


def head(path: str, headers: str) -> bytes:
    """Return the head of a POST request; each header ends with a line break."""
    return f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}\r\n".encode()


def hostile_bodies(size: int = _BODY, texts: bool = True) -> Iterator[tuple[str, bytes]]:
    """Yield paths and bodies of about `size` bytes that are slow to parse, to check or to answer.

    Args:
        size: number of bytes.
        texts: whether to yield also those that are as slow to tokenize.
    """
    infer = "/v2/models/plain/infer"

    def many(item: bytes, before: bytes, after: bytes) -> bytes:
        return before + b",".join([item] * ((size - 100) // (len(item) + 1))) + after

    for field, path in ((b"input", "/v1/embeddings"), (b"inputs", "/embed"), (b"inputs", "/predict")):
        start = b'{"%s":[' % field
        for item in (b"[1]", b"[]", b"{}", b"12345", b"-1.5e-300", b'""', b"null", b'{"a":[{"b":[]}]}', b"[[[[]]]]"):
            yield path, many(item, start, b"]}")
        yield path, many(b"[1]", b'{"%s":"a cat","other":[' % field, b"]}")
        yield path, many(b'{"a":{"a":1}}', b'{"%s":"a cat","metadata":{"a":[' % field, b"]}}")
        yield path, b'{"%s":%s1%s}' % (field, b"[" * (size // 2), b"]" * (size // 2))
        yield path, b'{"%s":"a cat","x":%s1%s}' % (field, b'{"a":' * 1000, b"}" * 1000)
        yield path, start + b",".join(b'"%x"' % number for number in range(size // 8)) + b"]}"
        yield path, b"{" + b",".join(b'"%x":1' % number for number in range(size // 9)) + b"}"
        yield path, many(b'"a":1', b"{", b"}")
        yield path, b'{"%s":"a cat","model":"%s"}' % (field, b"x" * (size - 100))
        yield path, b'{"%s":"a cat","model":%s}' % (field, many(b"1", b"[", b"]")[: size - 60] + b"]")
        yield path, b'{"%s":"a cat","dimensions":%s}' % (field, b"9" * (size - 100))
        yield path, b'{"%s":"a cat' % field + b'\\"' * (size // 2 - 50)
        if texts:
            yield path, b'{"%s":"%s"}' % (field, b"\\\\\\n\\u20ac" * (size // 11))
            yield path, start + b",".join([b'"\xf0\x9f\x90\x88 cat"'] * 2048) + b"]}"
    yield "/rerank", many(b'{"text":"a"}', b'{"query":"a","documents":[', b"]}")
    yield "/rerank", many(b'"a"', b'{"query":"a","texts":[', b"]}")
    for shape in (b"[1]", b"[9223372036854775807,1]", b"[-1]", many(b"1", b"[", b"]")[: size // 2] + b"]"):
        tensor = b'{"inputs":[{"name":"text","datatype":"BYTES","shape":%s,"data":[' % shape
        yield infer, many(b'["a"]', tensor, b"]}]}")[: size - 100] + b"]}]}"
    yield infer, many(b'{"name":"text","datatype":"FP64","shape":[1],"data":[1]}', b'{"inputs":[', b"]}")
    yield infer, many(b'{"name":"x"}', b'{"inputs":[],"outputs":[', b"]}")
    binary = random.Random(0).randbytes(size // 2)
    yield (
        infer,
        b'{"inputs":[{"name":"text","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":9}}]}' + binary,
    )
    yield "/embed", binary


@functools.cache
def _large_bodies() -> list[tuple[str, bytes]]:
    return list(hostile_bodies())


async def _bodies(attacker: Attacker) -> None:
    """Send bodies that are slow to parse."""
    while time.monotonic() < attacker.end:
        path, body = attacker.rng.choice(_large_bodies())
        await attacker.ask(path, body, "content-type: application/json\r\n")
        await asyncio.sleep(_PAUSE)


async def _trailers(attacker: Attacker) -> None:
    """End a chunked body with trailers, extensions of chunks, or chunks of a byte, all without end."""
    start = head("/embed", "transfer-encoding: chunked\r\n")
    while time.monotonic() < attacker.end:
        first, more = attacker.rng.choice([
            (b"1\r\n{\r\n0\r\n", b"x: y\r\n" * 1000),
            (b"1\r\n{\r\n0\r\n", b"x" * 6000),
            (b"1;", b"x=y;" * 1500),
            (b"", b"1\r\n \r\n" * 1000),
        ])  # fmt: skip
        async with attacker.connection() as (_, writer):
            attacker.counts["requests"] += 1
            await attacker.send(writer, start + first)
            while time.monotonic() < attacker.end:
                await attacker.send(writer, more)
                await asyncio.sleep(_PAUSE / 10)
        await asyncio.sleep(_PAUSE)


async def _holders(attacker: Attacker) -> None:
    """Hold a connection: silent, or after an answer by bare line breaks, or by a head or body that goes on slowly."""
    request = head("/embed", "content-length: 16\r\n") + b'{"inputs":"cat"}'
    part = request[:-1].replace(b"16", b"99")
    kinds = ((b"", b""), (b"", b"\r\n"), (request, b"\r\n"), (request, b""), (request[:30], b"x"), (part, b" "))
    while time.monotonic() < attacker.end:
        first, more = attacker.rng.choice(kinds)
        async with attacker.connection() as (reader, writer):
            attacker.counts["requests"] += bool(first)
            await attacker.send(writer, first)
            while time.monotonic() < attacker.end and not reader.at_eof():
                await asyncio.sleep(1)
                await attacker.send(writer, more)
        await asyncio.sleep(_PAUSE)


async def _expressions(attacker: Attacker) -> None:
    """Send texts on which a regular expression of the tokenizer takes quadratic time, to the model `regex`."""
    for length in itertools.cycle((1000, 30_000, 100_000, 1_000_000)):
        if time.monotonic() > attacker.end:
            return
        texts = ["x" * length + "!"] * attacker.rng.choice((1, 8))
        await attacker.ask("/embed", json.dumps({"inputs": texts, "model": "regex", "truncate": True}).encode())
        await asyncio.sleep(_PAUSE)


async def _strangers(attacker: Attacker) -> None:
    """Send foreign hosts and origins; stop sending, or reading, in the middle; ask for answers that are not read."""
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["a cat"]}
    body = json.dumps({"inputs": "a cat on a mat"}).encode()
    large = json.dumps({"id": "x" * 1_000_000, "inputs": [tensor]}).encode()
    while time.monotonic() < attacker.end:
        match attacker.rng.randrange(4):
            case 0:
                await attacker.ask("/embed", body, "origin: http://evil.example\r\n")
            case 1:
                async with attacker.connection() as (reader, writer):
                    await attacker.send(
                        writer, b"POST /embed HTTP/1.1\r\nhost: evil.example\r\ncontent-length: 2\r\n\r\n{}"
                    )
                    await attacker.status(reader)
            case 2:  # half-closed: the answer must come all the same, or the connection end
                async with attacker.connection() as (reader, writer):
                    data = head("/embed", f"content-length: {len(body)}\r\n") + body
                    await attacker.send(writer, data[: attacker.rng.choice((len(data), len(data) // 2))])
                    writer.write_eof()
                    await attacker.status(reader)
            case 3:  # an answer of a megabyte that nobody reads
                async with attacker.connection(buffer=4096) as (_, writer):
                    data = head("/v2/models/plain/infer", f"content-length: {len(large)}\r\n") + large
                    await attacker.send(writer, data)
                    await asyncio.sleep(5)
        attacker.counts["requests"] += 1
        await asyncio.sleep(_PAUSE * 10)  # some of them are honest work


# Kind of attack -> what one connection does again and again, and the number of connections.
ATTACKS: dict[str, tuple[Callable[[Attacker], Coroutine[Any, Any, None]], int]] = {
    "trailers": (_trailers, ATTACKERS),
    "holders": (_holders, _HELD),
    "expressions": (_expressions, ATTACKERS),
    "bodies": (_bodies, ATTACKERS),
    "strangers": (_strangers, ATTACKERS),
}


async def _attack(kind: str, port: int, seconds: float) -> dict[str, int]:
    attacker = Attacker(kind, port, seconds)
    function, number = ATTACKS[kind]
    tasks = [asyncio.create_task(function(attacker)) for _ in range(number)]
    await asyncio.wait(tasks, timeout=seconds + 1)
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for error in results:
        if isinstance(error, Exception):
            raise error
    return dict(attacker.counts)


if __name__ == "__main__":
    if sys.argv[1] == "bodies":
        _large_bodies()
    os.nice(19)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(asyncio.run(_attack(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))))
