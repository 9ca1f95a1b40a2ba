"""Requests per second and latency of `bert-jax serve`, beside sentence-transformers behind starlette and uvicorn.

A server is named by its package, its batching and its backend: `ours` runs in JAX, `ours-onnx` and `ours-int8` in
onnxruntime, with float32 and with int8 weights; `theirs` is sentence-transformers in PyTorch, which encodes each
request by itself, and `theirs-batched` encodes those that wait together; `theirs-onnx`, `theirs-int8` and so on are
its ONNX backends, which need the package optimum-onnx.

python benchmarks/serving.py theirs MODEL PORT    # a server of sentence-transformers
"""

import asyncio
import contextlib
import gzip
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

CLIENTS = (1, 8, 64, 256)
SERVERS = ("ours", "ours-onnx", "ours-int8", "theirs", "theirs-batched")
_INT8 = "avx2"  # instruction set for which sentence-transformers quantizes
_SEED = 0
_TEXTS = 2048
_MOST_ROWS = 64  # of a batch of `theirs-batched`
_OPEN_LOAD = 0.7  # arrivals per second of the open loop, as a fraction of what the server did with 64 clients


class Result(NamedTuple):
    """Answers of a server under load.

    Attributes:
        rate: answered requests per second.
        p50, p99: seconds from sending (open loop: from the planned time) to the whole answer.
        refused: number of answers with status 429.
        cpu: seconds of CPU time of the server per answer; it depends less than `rate` on what else the machine does.
    """

    rate: float
    p50: float
    p99: float
    refused: int
    cpu: float


def main(
    data: Path,
    model: Path,
    seconds: float,
    servers: Sequence[str],
    counts: Sequence[int] = CLIENTS,
    python: str = sys.executable,
) -> None:
    """Print requests/s, latency and CPU time of each server in a closed loop of 1 to 256 clients, and in an open loop.

    Args:
        data: a directory with glue/SST-2 and wikitext-2, whose sentences and paragraphs are the texts.
        model: all-MiniLM-L6-v2.
        seconds: duration of each measurement.
        servers: names of servers, as described at the top of this module.
        counts: numbers of clients of the closed loop; without 64 there is no open loop.
        python: the interpreter that has sentence-transformers.
    """
    requests = [_request(text) for text in mixed_texts(data)]
    with contextlib.ExitStack() as stack:
        exported = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "exported"
        if {"ours-onnx", "ours-int8"} & set(servers):
            export = [sys.executable, "-m", "bert_jax", "export", model, "--out", exported, "--format", "onnx"]
            subprocess.run([*export, "--dtype", "float32", "int8_dynamic"], check=True, stdout=subprocess.DEVNULL)
        running = {name: stack.enter_context(_running(name, model, exported, python)) for name in servers}
        reached: dict[str, float] = {}
        for clients in counts:
            for name, server in running.items():
                found = asyncio.run(closed_loop(server, requests, clients, seconds))
                _print(name, f"{clients} clients", found)
                if clients == 64:
                    reached[name] = found.rate
        for name, server in running.items() if reached else ():
            rate = _OPEN_LOAD * reached[name]
            _print(name, f"open, {rate:.0f}/s", asyncio.run(open_loop(server, requests, rate, seconds)))


def mixed_texts(data: Path) -> list[str]:
    """Return sentences of SST-2 and paragraphs of WikiText-2 of 100 to 1,000 characters, half each, shuffled."""
    lines = (data / "glue" / "SST-2" / "dev.tsv").read_text().splitlines()[1:]
    sentences = [line.rpartition("\t")[0] for line in lines]
    with gzip.open(data / "wikitext-2" / "wiki.valid.raw.gz", "rt", encoding="utf-8") as file:
        paragraphs = [text for line in file if 100 <= len(text := line.strip()) <= 1000]
    rng = random.Random(_SEED)
    texts = rng.choices(sentences, k=_TEXTS // 2) + rng.choices(paragraphs, k=_TEXTS // 2)
    rng.shuffle(texts)
    return texts


def _print(name: str, load: str, found: Result) -> None:
    latency = f"p50 {1000 * found.p50:7.1f} ms   p99 {1000 * found.p99:7.1f} ms   CPU {1000 * found.cpu:6.1f} ms"
    print(f"{name:15} {load:12} {found.rate:7.1f}/s   {latency}   {found.refused} refused", flush=True)


def _request(text: str) -> bytes:
    body = json.dumps({"inputs": text, "truncate": True}).encode()
    return (
        b"POST /embed HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
        % (
            len(body),
            body,
        )
    )


class Server(NamedTuple):
    """A server that listens on this machine."""

    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """Return the CPU time that the process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class _Connection:
    """A connection of a client: one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> "_Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20))

    async def ask(self, request: bytes) -> int:
        """Send a request, read the whole answer, and return its status."""
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        await self._reader.readexactly(length)
        return int(head.split(b" ", 2)[1])

    def close(self) -> None:
        self._writer.close()


async def closed_loop(server: Server, requests: Sequence[bytes], clients: int, seconds: float) -> Result:
    """Let clients send a request each, as soon as the one before is answered."""
    end = time.perf_counter() + seconds
    times: list[float] = []
    refused = 0

    async def client(number: int) -> None:
        nonlocal refused
        rng = random.Random(number)
        connection = await _Connection.open(server.port)
        while (started := time.perf_counter()) < end:
            status = await connection.ask(rng.choice(requests))
            if status == 429:
                refused += 1
                await asyncio.sleep(1)
            else:
                assert status == 200, status
                times.append(time.perf_counter() - started)
        connection.close()

    started, cpu = time.perf_counter(), server.cpu_seconds()
    await asyncio.gather(*map(client, range(clients)))
    return _result(times, refused, time.perf_counter() - started, server.cpu_seconds() - cpu)


async def open_loop(server: Server, requests: Sequence[bytes], rate: float, seconds: float) -> Result:
    """Send requests at random times (a Poisson process), whether or not those before are answered."""
    rng = random.Random(_SEED)
    times: list[float] = []
    refused = 0
    idle: list[_Connection] = []

    async def ask(request: bytes) -> tuple[_Connection, int]:
        while idle:
            connection = idle.pop()
            try:
                return connection, await connection.ask(request)
            except (asyncio.IncompleteReadError, ConnectionError):
                connection.close()  # so did the server, after a while without requests
        connection = await _Connection.open(server.port)
        return connection, await connection.ask(request)

    async def send(planned: float) -> None:
        nonlocal refused
        connection, status = await ask(rng.choice(requests))
        if status == 429:
            refused += 1
        else:
            assert status == 200, status
            times.append(time.perf_counter() - planned)
        idle.append(connection)

    started = planned = time.perf_counter()
    cpu = server.cpu_seconds()
    tasks = []
    while planned < started + seconds:
        planned += rng.expovariate(rate)
        await asyncio.sleep(max(0.0, planned - time.perf_counter()))
        tasks.append(asyncio.create_task(send(planned)))
    await asyncio.gather(*tasks)
    for connection in idle:
        connection.close()
    return _result(times, refused, time.perf_counter() - started, server.cpu_seconds() - cpu)


def _result(times: list[float], refused: int, seconds: float, cpu: float) -> Result:
    ordered = sorted(times) or [float("nan")]
    p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return Result(len(times) / seconds, p50, p99, refused, cpu / len(ordered))


@contextlib.contextmanager
def _running(name: str, model: Path, exported: Path, python: str) -> Iterator[Server]:
    """Start a server in a process, yield it once it is ready, and print how long that took."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command: list[str | Path] = [sys.executable, "-m", "bert_jax", "serve", model, "--port", str(port), "--quiet"]
    if name in ("ours-onnx", "ours-int8"):
        file = "model.onnx" if name == "ours-onnx" else "model_quantized.onnx"
        command[4] = exported
        command += ["--backend", "onnxruntime", "--onnx-file", f"onnx/{file}"]
    elif name != "ours":
        command = [python, __file__, name, model, str(port)]
    started = time.perf_counter()
    process = subprocess.Popen(command)
    try:
        while not _is_ready(port):
            if process.poll() is not None:
                raise SystemExit(f"benchmarks: {name} ended with status {process.returncode}")
            time.sleep(0.02)
        print(f"{name:15} ready after {time.perf_counter() - started:.1f} s", flush=True)
        yield Server(port, process.pid)
    finally:
        process.terminate()
        process.wait()


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
            return answer.status == 200
    except OSError:
        return False


def sentence_transformers_encoder(model: str, backend: str) -> Any:
    """Return all-MiniLM-L6-v2 in sentence-transformers with the backend "torch", "onnx" or "int8" (ONNX)."""
    from sentence_transformers import SentenceTransformer

    if backend == "torch":
        return SentenceTransformer(model, device="cpu")
    encoder = SentenceTransformer(model, device="cpu", backend="onnx")
    if backend == "onnx":
        return encoder
    from sentence_transformers import export_dynamic_quantized_onnx_model

    with tempfile.TemporaryDirectory() as folder:
        encoder.save_pretrained(folder)
        export_dynamic_quantized_onnx_model(encoder, _INT8, folder)
        (file,) = Path(folder).glob("onnx/*int8*")
        options = {"file_name": f"onnx/{file.name}"}
        return SentenceTransformer(folder, device="cpu", backend="onnx", model_kwargs=options)


def sentence_transformers_server(encoder: Any, port: int, batched: bool) -> None:
    """Serve `/embed` with sentence-transformers, starlette, uvicorn and orjson.

    Args:
        encoder: a SentenceTransformer.
        port: the port.
        batched: whether the texts of all waiting requests, up to 64, are encoded together; otherwise each request is
            encoded by itself, in a thread.
    """
    import orjson
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    encoder.encode(["warm"])
    one_at_a_time = asyncio.Lock()
    waiting: list[tuple[str, asyncio.Future[Any]]] = []

    async def encode(text: str) -> Any:
        if not batched:
            return (await run_in_threadpool(encoder.encode, [text], show_progress_bar=False))[0]
        future = asyncio.get_running_loop().create_future()
        waiting.append((text, future))
        async with one_at_a_time:
            if not future.done():
                batch = waiting[:_MOST_ROWS]
                del waiting[:_MOST_ROWS]
                vectors = await run_in_threadpool(encoder.encode, [t for t, _ in batch], show_progress_bar=False)
                for (_, one), vector in zip(batch, vectors, strict=True):
                    one.set_result(vector)
        return await future

    async def embed(request: Request) -> Response:
        vector = await encode(orjson.loads(await request.body())["inputs"])
        content = orjson.dumps([vector], option=orjson.OPT_SERIALIZE_NUMPY)
        return Response(content, media_type="application/json")

    async def health(request: Request) -> Response:
        return PlainTextResponse("ready")

    routes = [Route("/embed", embed, methods=["POST"]), Route("/health", health)]
    uvicorn.run(Starlette(routes=routes), port=port, log_level="error")


if __name__ == "__main__":
    parts = sys.argv[1].split("-")
    chosen = parts[-1] if parts[-1] in ("onnx", "int8") else "torch"
    sentence_transformers_server(
        sentence_transformers_encoder(sys.argv[2], chosen), int(sys.argv[3]), batched="batched" in parts
    )
