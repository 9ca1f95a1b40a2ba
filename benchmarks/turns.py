"""Measure competitors in alternation, so that a slower machine affects all of them."""

import contextlib
import functools
import importlib.metadata
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


class Rival:
    """A competitor's process, which reports when it is warm and then works on request; see `serve`.

    Attributes:
        rates: items per second of each turn.
        peak_bytes: the process's peak memory up to its last turn, with that of compiling; resident unless `serve` was
            given another.
        resident_bytes: its memory after its last turn.
    """

    def __init__(self, *command: str):
        self.rates: list[float] = []
        self.peak_bytes = self.resident_bytes = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read()

    def turn(self, units: int) -> None:
        """Let the process do `units` of work while the others wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{units}\n")
        self._process.stdin.flush()
        self.rates.append(self._read())

    def end(self) -> None:
        """End the process."""
        self._process.communicate()

    def _read(self) -> float:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("rate "):
                _, rate, peak, resident = line.split()
                self.peak_bytes, self.resident_bytes = int(peak), int(resident)
                return float(rate)
        raise SystemExit(f"benchmarks: {self._process.args} ended with status {self._process.wait()}")


def peak_and_resident_memory() -> tuple[int, int]:
    """Return peak and present resident memory of this process in bytes (Linux)."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak, present = (1024 * int(lines[name].split()[0]) for name in ("VmHWM", "VmRSS"))
    return peak, present


def serve(work: Callable[[int], int], memory: Callable[[], tuple[int, int]] = peak_and_resident_memory) -> None:
    """Run a competitor: warm up, then call `work(number)` for each number on stdin, which returns items done.

    Args:
        work: function of a number.
        memory: function that returns the peak and the present memory in bytes.
    """
    work(2)
    print("rate 0", *memory(), flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        items = work(int(line))
        print("rate", items / (time.perf_counter() - start), *memory(), flush=True)


def append(record: Path | None, *rows: dict[str, Any]) -> None:
    """Append rows to a JSON lines file, if there is one, with the date, the processor and the versions of libraries."""
    if record is not None:
        with record.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row | _circumstances()) + "\n" for row in rows)


@functools.cache
def _circumstances() -> dict[str, Any]:
    lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
    processor = {name.strip(): value.strip() for name, _, value in lines}
    versions = {}
    for name in ("jax", "torch", "onnxruntime", "openvino"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    described = " ".join(processor.get(key, "") for key in ("model name", "cpu family", "model"))
    return {"date": time.strftime("%Y-%m-%d"), "processor": described, "cores": os.cpu_count(), "versions": versions}


def ratio(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the median over turns of the rate of `a` over the rate of `b`."""
    return statistics.median(x / y for x, y in zip(a, b, strict=True))


def alternate(commands: dict[str, list[str]], seconds: float = 10.0) -> dict[str, tuple[float, str]]:
    """Run whole commands to their end in alternation, `seconds` each at a time.

    Returns:
        For each name, the seconds that it ran and its standard output.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("benchmarks: told to stop"))  # and so end those that wait
    spent = dict.fromkeys(commands, 0.0)
    running: dict[str, subprocess.Popen] = {}
    with tempfile.TemporaryDirectory() as directory:
        outputs = {name: Path(directory, name) for name in commands}
        try:
            for name, command in commands.items():
                with outputs[name].open("w") as output:
                    running[name] = subprocess.Popen(command, stdout=output, start_new_session=True)
                os.killpg(running[name].pid, signal.SIGSTOP)
            while running:
                for name in list(running):
                    start = time.perf_counter()
                    ended = _run_for(seconds, running[name])
                    spent[name] += time.perf_counter() - start
                    if ended and running.pop(name).returncode:
                        raise SystemExit(f"benchmarks: {name} failed")
        finally:
            for process in running.values():
                os.killpg(process.pid, signal.SIGKILL)
        return {name: (spent[name], outputs[name].read_text()) for name in commands}


def _run_for(seconds: float, process: subprocess.Popen) -> bool:
    """Continue a stopped process for some seconds; return whether it ended."""
    os.killpg(process.pid, signal.SIGCONT)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGSTOP)
        return False
    return True
