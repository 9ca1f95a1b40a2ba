"""A server under overload for long: memory, answers, refusals, and malformed requests among the good ones."""

import asyncio
import contextlib
import json
import os
import random
import re
import time
from pathlib import Path

import httpx
import pytest
import served

SECONDS = float(os.environ.get("BERT_JAX_OVERLOAD_SECONDS", "180"))
CLIENTS = 128
MOST_GROWTH = 0.05


def resident(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


def request(body):
    return b"POST /embed HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


async def answered(reader):
    """The status of an answer, once it is here in whole."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))
    return int(head.split(b" ", 2)[1])


async def client(port, number, end, statuses):
    """Sends requests of one to sixteen texts in a closed loop; waits a little when it is refused."""
    rng = random.Random(number)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < end:
        texts = ["the cat sat on the tree " * rng.randint(1, 3) for _ in range(rng.randint(1, 16))]
        writer.write(request(json.dumps({"inputs": texts}).encode()))
        status = await answered(reader)
        statuses[status] = statuses.get(status, 0) + 1
        if status == 429:
            await asyncio.sleep(0.05)
    writer.close()


async def vandal(port, number, end, counts):
    """Sends malformed, huge and non-UTF-8 requests, and connections that end in the middle of one."""
    rng = random.Random(number)
    while time.monotonic() < end:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        whole = request(
            rng.choice([b"{", b"\xff", b'{"inputs": 5}', b"[" * 1000, b'{"inputs": "%s"}' % (b"a" * 3_000_000)])
        )
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            if rng.random() < 0.5:
                writer.write(whole[: rng.randrange(len(whole))])
            else:
                writer.write(whole)
                assert await asyncio.wait_for(answered(reader), 30) in (413, 422, 429)
        writer.close()
        counts.append(1)
        await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_overload(models, tmp_path):
    flags = ("--max-wait", "0.2", "--batch-tokens", "64", "--max-texts", "16", "--quiet")
    statuses, malformed, sizes = {}, [], []
    with served.process(tmp_path / "log", str(models["embedder"]), *flags) as process:
        port = int(process.address.rpartition(":")[2])

        async def main():
            end = time.monotonic() + SECONDS
            clients = [client(port, number, end, statuses) for number in range(CLIENTS)]
            tasks = asyncio.gather(*clients, *(vandal(port, number, end, malformed) for number in range(2)))
            await asyncio.sleep(min(60, SECONDS / 3))
            sizes.append(resident(process.popen.pid))
            await tasks
            sizes.append(resident(process.popen.pid))

        asyncio.run(main())
        text = httpx.get(f"{process.address}/metrics").text
        assert not process.events("error")
    counted = int(re.search(r'bert_jax_requests_total{route="/embed",status="200"} (\d+)', text)[1])
    print(f"{statuses}, {len(malformed)} malformed, {sizes} KiB")
    assert set(statuses) == {200, 429} and statuses[200] == counted > 100
    assert len(malformed) > 100
    assert sizes[1] <= sizes[0] * (1 + MOST_GROWTH)
