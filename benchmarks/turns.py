"""Times rivals in turns, so that a machine that slows down slows all of them."""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path


class Rival:
    """A process that says when it is warm, and then works when told to; see `serve`.

    Attributes:
        rates: items a second, one for each turn.
    """

    def __init__(self, *command: str):
        self.rates: list[float] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read()

    def turn(self, units: int) -> None:
        """Lets it do `units` of work while the others wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{units}\n")
        self._process.stdin.flush()
        self.rates.append(self._read())

    def end(self) -> None:
        """Ends the process."""
        self._process.communicate()

    def _read(self) -> float:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("rate "):
                return float(line.split()[1])
        raise SystemExit(f"benchmarks: {self._process.args} ended with status {self._process.wait()}")


def serve(work: Callable[[int], int]) -> None:
    """A rival's side: warms up, then for each number that it reads does `work(number)`, which returns items done."""
    work(2)
    print("rate 0", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        items = work(int(line))
        print(f"rate {items / (time.perf_counter() - start)}", flush=True)


def ratio(a: Sequence[float], b: Sequence[float]) -> float:
    """The median over turns of how many times as fast `a` was as `b`."""
    return statistics.median(x / y for x, y in zip(a, b, strict=True))


def alternate(commands: dict[str, list[str]], seconds: float = 10.0) -> dict[str, tuple[float, str]]:
    """Runs whole commands to their end, one at a time for `seconds` each, in turns.

    Returns:
        For each name, the seconds for which it ran and its standard output.
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
    """Lets a stopped process go on for a while; True when it ended."""
    os.killpg(process.pid, signal.SIGCONT)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGSTOP)
        return False
    return True
