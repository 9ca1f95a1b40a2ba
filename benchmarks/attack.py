"""Honest clients of `bert-jax serve` while hostile ones attack it: latency, losses, memory and open descriptors.

The server has two models: `plain`, and `regex`, whose tokenizer.json has a regular expression that backtracks. Honest
clients send a text each at random times (an open loop) at a rate that leaves most of the machine idle, each from an
address of its own. Their latency is measured before, during and after the attack. Attackers are processes of their own
with the lowest priority (nice 19): on a network they are other machines, and do not take this one's cores.
"""

import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.attackers import head

CLIENTS = 8
_RATE = 1.0  # requests per second of an honest client
_LOST_AFTER = 30.0  # seconds after which a request without an answer is lost
_TEXTS = ("a cat on a mat", "how do cats sleep?", "taxes are due in May, and so is the rent of the small red house",
          "the quick brown fox jumps over the lazy dog near the river bank")  # fmt: skip
# On n times x without a y it takes n^2 steps; no text of an honest client has more than one x.
_EXPRESSION = {"type": "Split", "pattern": {"Regex": "x+y"}, "behavior": "Isolated", "invert": False}


class Load(NamedTuple):
    """What honest clients saw.

    Attributes:
        seconds: latencies of answered requests, from the planned time to the whole answer, in ascending order.
        refused: number of answers with status 429.
        lost: why each other request has no right answer.
    """

    seconds: list[float]
    refused: int
    lost: list[str]

    def quantile(self, share: float) -> float:
        """Return a quantile of the latencies, in seconds."""
        return self.seconds[min(len(self.seconds) - 1, int(len(self.seconds) * share))] if self.seconds else np.nan

    def line(self, name: str) -> str:
        """Return a line of the table."""
        p50, p95, p99 = (f"{1000 * self.quantile(share):8.1f}" for share in (0.5, 0.95, 0.99))
        return f"{name:14}{len(self.seconds):9,}{self.refused:7}{len(self.lost):6}{p50}{p95}{p99} ms"


class Usage(NamedTuple):
    """Resources of the server and its workers: resident memory in MB, open descriptors, and threads."""

    resident: float
    descriptors: int
    threads: int


class Report(NamedTuple):
    """The outcome of an attack.

    Attributes:
        before, during, after: what honest clients saw.
        usages: the server's resources at the start, after each minute of the attack, and after the last measurement.
        attacks: kind -> number of requests, bytes and each outcome.
    """

    before: Load
    during: Load
    after: Load
    usages: list[Usage]
    attacks: dict[str, dict[str, int]]


class _Client:
    """An honest client: keeps connections open, and sends a request again if the server closed an idle one."""

    def __init__(self, number: int, port: int):
        self.address, self.port = f"127.0.0.{10 + number}", port
        self.model = "regex" if number % 4 == 3 else "plain"
        self.rng = random.Random(number)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, text: str) -> tuple[int, bytes]:
        """Send a text; return the status and the body of the answer."""
        body = json.dumps({"inputs": text, "model": self.model, "truncate": True}).encode()
        request = head("/embed", f"content-length: {len(body)}\r\n") + body
        while self._idle:
            connection = self._idle.pop()
            try:
                return await self._ask(connection, request)
            except asyncio.IncompleteReadError as error:
                if error.partial:  # the beginning of an answer
                    raise
            except ConnectionError:
                pass
            connection[1].close()
        connection = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(self.address, 0), limit=1 << 20)
        return await self._ask(connection, request)

    async def _ask(self, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes) -> Any:
        reader, writer = connection
        writer.write(request)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        body = await reader.readexactly(length)
        if b"connection: close" in answer:
            writer.close()
        else:
            self._idle.append(connection)
        return int(answer.split(b" ", 2)[1]), body

    def close(self) -> None:
        """Close the idle connections."""
        for _, writer in self._idle:
            writer.close()


async def honest_load(port: int, seconds: float, vectors: dict[str, Any], rate: float = _RATE) -> Load:
    """Let all clients send texts for a while.

    Args:
        port: the server's port.
        seconds: duration.
        vectors: text -> its vector, once it was answered; an answer with another one counts as lost.
        rate: requests per second of each client.
    """
    times: list[float] = []
    statuses: Counter[int] = Counter()
    lost: list[str] = []

    async def send(client: _Client, text: str, planned: float) -> None:
        try:
            async with asyncio.timeout(_LOST_AFTER):
                status, body = await client.ask(text)
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError) as error:
            lost.append(f"{time.strftime('%X')} {client.model}: {type(error).__name__}: {error}")
            return
        statuses[status] += 1
        if status == 200:
            vector = np.array(json.loads(body)[0])
            if np.allclose(vector, vectors.setdefault(text, vector), atol=1e-4):
                times.append(time.perf_counter() - planned)
            else:
                lost.append(f"{client.model}: another vector of {text!r}")
        elif status != 429:
            lost.append(f"{time.strftime('%X')} {client.model}: status {status}: {body[:200].decode(errors='replace')}")

    async def drive(client: _Client) -> None:
        started = planned = time.perf_counter()
        tasks = []
        while (planned := planned + client.rng.expovariate(rate)) < started + seconds:
            await asyncio.sleep(max(0.0, planned - time.perf_counter()))
            tasks.append(asyncio.create_task(send(client, client.rng.choice(_TEXTS), planned)))
        await asyncio.gather(*tasks)
        client.close()

    await asyncio.gather(*(drive(_Client(number, port)) for number in range(CLIENTS)))
    return Load(sorted(times), statuses[429], lost)


def usage(pid: int) -> Usage:
    """Return the resources of a process and of those that it started."""
    total = Usage(0.0, 0, 0)
    for each in (pid, *_children(pid)):
        with contextlib.suppress(OSError):  # it has ended
            status = Path(f"/proc/{each}/status").read_text()
            resident, threads = (int(found[1]) if (found := re.search(rf"{key}:\s+(\d+)", status)) else 0
                                 for key in ("VmRSS", "Threads"))  # fmt: skip
            descriptors = len(os.listdir(f"/proc/{each}/fd"))
            total = Usage(total[0] + resident / 1024, total[1] + descriptors, total[2] + threads)
    return total


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        files = Path(f"/proc/{pid}/task").glob("*/children")
        children = [int(word) for file in files for word in file.read_text().split()]
        return children + [other for child in children for other in _children(child)]
    return []


def write_models(model: Path, folder: Path) -> list[Path]:
    """Copy a model as `plain`, and as `regex` with an expression that backtracks; return both directories."""
    plain, regex = (Path(shutil.copytree(model, folder / name)) for name in ("plain", "regex"))
    file = regex / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    steps = [_EXPRESSION] + [step for step in [tokenizer["pre_tokenizer"]] if step]
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    file.write_text(json.dumps(tokenizer))
    return [plain, regex]


def measure(port: int, pid: int, seconds: float, quiet: float, only: Sequence[str], rate: float = _RATE) -> Report:
    """Measure a server before, during and after an attack.

    Args:
        port: its port.
        pid: its process.
        seconds: duration of the attack.
        quiet: seconds of each measurement without one.
        only: kinds of attack.
        rate: requests per second of each honest client.
    """
    vectors: dict[str, Any] = {}
    asyncio.run(honest_load(port, min(quiet, 5), vectors, rate))  # so that the process has its working size
    before = asyncio.run(honest_load(port, quiet, vectors, rate))
    usages = [usage(pid)]

    async def watch() -> None:
        for minute in itertools.count(1):
            await asyncio.sleep(min(60.0, seconds / 3))
            usages.append(usage(pid))
            print(f"  {minute}: {usages[-1].resident:.0f} MB, {usages[-1].descriptors} descriptors", flush=True)

    async def attacked() -> Load:
        watching = asyncio.create_task(watch())
        load = await honest_load(port, seconds, vectors, rate)
        watching.cancel()
        return load

    with _attackers(port, seconds, only) as running:
        during = asyncio.run(attacked())
        attacks = {kind: json.loads(process.communicate(timeout=90)[0]) for kind, process in running.items()}
    time.sleep(min(15.0, seconds / 4))  # what attackers left behind reaches its time limits
    after = asyncio.run(honest_load(port, quiet, vectors, rate))
    usages.append(usage(pid))
    return Report(before, during, after, usages, attacks)


@contextlib.contextmanager
def _attackers(port: int, seconds: float, only: Sequence[str]) -> Iterator[dict[str, "subprocess.Popen[str]"]]:
    running: dict[str, subprocess.Popen[str]] = {}
    try:
        for kind in only:
            command = [sys.executable, "-m", "benchmarks.attackers", kind, str(port), str(seconds)]
            root, pipe = Path(__file__).parents[1], subprocess.PIPE
            running[kind] = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=root)
        for process in running.values():
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for process in running.values():
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        yield running
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def show(report: Report) -> None:
    """Print the tables of a report."""
    print(f"{'honest':14}{'answered':>9}{'429':>7}{'lost':>6}{'p50':>8}{'p95':>8}{'p99':>8}")
    for name, load in (("quiet before", report.before), ("attacked", report.during), ("quiet after", report.after)):
        print(load.line(name))
    for line in (report.before.lost + report.during.lost + report.after.lost)[:20]:
        print(f"  lost: {line}")
    quiet = max(report.before.quantile(0.99), report.after.quantile(0.99))
    print(f"p99 under attack / p99 of the quiet server: {report.during.quantile(0.99) / quiet:.2f}")
    print(f"{'attack':14}{'requests':>10}{'MB':>10}  outcomes")
    for kind, counts in report.attacks.items():
        outcomes = {name: count for name, count in sorted(counts.items()) if name not in ("requests", "bytes")}
        print(f"{kind:14}{counts.get('requests', 0):10,}{counts.get('bytes', 0) / 1e6:10.1f}  {outcomes}")
    for name, index in (("resident MB", 0), ("descriptors", 1), ("threads", 2)):
        print(f"{name:14}" + " ".join(f"{found[index]:.0f}" for found in report.usages))


def main(
    model: Path, seconds: float, quiet: float, only: Sequence[str], rate: float, flags: Sequence[str] = ()
) -> None:
    """Start a server, attack it, and print the tables.

    Args:
        model: directory of an embedding model with a tokenizer.json.
        seconds: duration of the attack.
        quiet: seconds of each measurement without one.
        only: kinds of attack, keys of `ATTACKS`.
        rate: requests per second of each honest client.
        flags: further words for `bert-jax serve`.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server and the attackers end too
    with tempfile.TemporaryDirectory() as folder:
        models = write_models(model, Path(folder))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "bert_jax", "serve", *map(str, models), "--port", str(port), "--quiet", *flags]
        log = Path(folder) / "log"
        with log.open("w") as file:
            process = subprocess.Popen(command, stderr=file)
        try:
            _wait_ready(port, process, log)
            print(f"{CLIENTS} honest clients of {rate:g} requests/s, {seconds:g} s of attack: {', '.join(only)}")
            show(measure(port, process.pid, seconds, quiet, only, rate))
            for line in log.read_text().splitlines():
                if '"error"' in line:
                    print(f"  log: {line[:300]}")
            if process.poll() is not None:
                print(f"the server ended with status {process.returncode}")
        finally:
            process.terminate()
            process.wait()


def _wait_ready(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    while process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            if b" 200 " in connection.recv(100):
                return
        time.sleep(0.1)
    raise SystemExit(f"benchmarks: the server ended: {log.read_text()[-500:]}")
