"""Servers that the tests start: in a thread, of models that only sleep; and in a process, of real ones."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.conversion.text_settings import NO_SETTINGS
from bert_jax.serving.batching import Row, Shape, padding_to
from bert_jax.serving.models import ServedModel
from bert_jax.serving.server import open_port, run_server
from bert_jax.serving.settings import ServerSettings
from bert_jax.serving.tasks import ServedTask
from bert_jax.tokenization import Tokenizer

ROOT = Path(__file__).parents[2]
SHAPES = (Shape(1, 16), Shape(4, 16), Shape(1, 32), Shape(4, 32))


class StandIn:
    """A backend that takes `seconds` for a batch; the vector of a row is its number of tokens and its third id.

    Attributes:
        gate: batches wait until it is set.
        batches: rows of each batch.
    """

    ahead = 0
    batch_invariant = False
    brief_tokens = None

    def __init__(self, seconds: float = 0.0, shapes: Sequence[Shape] = SHAPES):
        self.seconds, self.shapes = seconds, tuple(shapes)
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[list[Row]] = []
        self.error: Exception | None = None

    def warm(self, shape: Shape) -> None:
        self._work()

    def padding(self, rows: Sequence[Row], shape: Shape) -> int:
        return padding_to(shape, rows)

    def begin(self, rows: Sequence[Row], shape: Shape) -> Callable[[], list[np.ndarray]]:
        assert len(rows) <= shape.rows and all(row.size <= shape.length for row in rows)
        self.batches.append(list(rows))

        def fetch() -> list[np.ndarray]:
            self._work()
            return [np.array([row.size, row.input_ids[2], 0, 0], np.float32) for row in rows]

        return fetch

    def _work(self) -> None:
        self.gate.wait(30)
        time.sleep(self.seconds)
        if self.error is not None:
            raise self.error


def stand_in_model(tokenizer: Tokenizer, backend: StandIn, name: str = "sleeper") -> ServedModel:
    """An embedding model of four dimensions that the backend computes; it does not normalize."""
    config = BertConfig(vocab_size=tokenizer.vocab_size, hidden_size=4, num_hidden_layers=1, num_attention_heads=1,
                        intermediate_size=4, max_position_embeddings=32, normalize_embeddings=False)  # fmt: skip
    return ServedModel(name, name, ServedTask.EMBED, config, tokenizer, NO_SETTINGS, 32, "float32", False, [backend])


@contextlib.contextmanager
def running(models: Sequence[ServedModel], **changes: object) -> Iterator[str]:
    """A server in a thread of this process, once it is ready; yields its address."""
    settings = ServerSettings(port=0, log_requests=False, **changes)  # type: ignore[arg-type]
    listener = open_port(settings)
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def main() -> None:
        loops.append((asyncio.get_running_loop(), asyncio.Event()))
        await run_server(models, settings, listener, loops[0][1])

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        wait_ready(address, lambda: thread.is_alive())
        yield address
    finally:
        loop, stop = loops[0]
        with contextlib.suppress(RuntimeError):  # it has ended already
            loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        listener.close()
        assert not thread.is_alive()


def wait_ready(address: str, alive: Callable[[], bool], seconds: float = 120) -> None:
    """Waits until /health is 200."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{address}/health").status_code == 200:
                return
        assert alive()
        time.sleep(0.02)
    raise AssertionError("the server is not ready")


class Process:
    """A `bert-jax serve` process.

    Attributes:
        popen: the process.
        log: file of its structured log.
        address: its address.
    """

    def __init__(self, log: Path, *words: str):
        self.log = log
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        with log.open("w") as file:
            command = [sys.executable, "-m", "bert_jax", "serve", *words, "--port", "0"]
            self.popen = subprocess.Popen(command, stderr=file, env=environment)
        end = time.monotonic() + 120
        while not (started := self.events("started")):
            assert self.popen.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.02)
        self.address = f"http://127.0.0.1:{started[0]['port']}"

    def wait_ready(self) -> None:
        """Waits until every model is warm."""
        wait_ready(self.address, lambda: self.popen.poll() is None)

    def events(self, name: str) -> list[dict[str, object]]:
        """The lines of the log with this event."""
        lines = [line for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [found for line in lines if (found := json.loads(line))["event"] == name]

    def close(self) -> None:
        """Ends the process."""
        if self.popen.poll() is None:
            self.popen.terminate()
        try:
            self.popen.wait(20)
        except subprocess.TimeoutExpired:
            self.popen.kill()


@contextlib.contextmanager
def process(log: Path, *words: str) -> Iterator[Process]:
    """A ready `bert-jax serve` process."""
    found = Process(log, *words)
    try:
        found.wait_ready()
        yield found
    finally:
        found.close()
