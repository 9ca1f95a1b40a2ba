"""Runs cases in worker processes within limits of time and memory, and collects what was found."""

import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import queue
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cases

SECONDS = 10  # of processor time in which a case must end or print more, and two for each MB; of the clock, thrice that
MOST = 20  # times as long, for a case that keeps printing: a million texts get a million answers
MEMORY = 1 << 30  # bytes for a case, beyond twice those of its files
STARTING = 180  # seconds for a worker to be ready
_TICK = os.sysconf("SC_CLK_TCK")
_HERE = pathlib.Path(__file__).parent
# Small programs, compiled quickly rather than well, and once for all workers.
_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_multi_thread_eigen=false",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """A case that ended badly.

    Attributes:
        case: its number or name.
        kind: of files.
        what: what happened, the same for cases with the same cause.
        text: more of it.
    """

    case: int | str
    kind: str
    what: str
    text: str


@dataclasses.dataclass
class Summary:
    """What became of many cases.

    Attributes:
        tried, refused: number of cases by kind of file, and of those that ended in an error as they should.
        findings: the others.
    """

    tried: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    refused: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    seconds: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    findings: list[Finding] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{'kind':20}{'cases':>8}{'refused':>9}{'seconds':>9}{'findings':>10}"]
        bad = collections.Counter(finding.kind for finding in self.findings)
        for kind in sorted(self.tried):
            lines.append(
                f"{kind:20}{self.tried[kind]:>8}{self.refused[kind]:>9}{self.seconds[kind]:>9.1f}{bad[kind]:>10}"
            )
        lines.append(
            f"{'all':20}{self.tried.total():>8}{self.refused.total():>9}{self.seconds.total():>9.1f}{bad.total():>10}"
        )
        groups: dict[tuple[str, str], list[Finding]] = {}
        for finding in self.findings:
            groups.setdefault((finding.kind, finding.what), []).append(finding)
        for (kind, what), found in sorted(groups.items(), key=lambda item: -len(item[1])):
            lines.append(f"\n{len(found)} x {kind}: {what}")
            lines.append("  " + " ".join(f"--case {finding.case}" for finding in found[:4]))
            lines.append("  " + found[0].text.strip().replace("\n", "\n  ")[-1500:])
        return "\n".join(lines)


class Died(Exception):
    """A worker ended or was killed; the message says how, `text` where it was."""

    def __init__(self, message: str, text: str = ""):
        super().__init__(message)
        self.text = text


class Worker:
    """A process that tries cases. Started when it is first needed, and again after it has died."""

    def __init__(self, root: pathlib.Path, seeds: pathlib.Path, group: str):
        self._root, self._seeds, self._group = root, seeds, group
        self._process: subprocess.Popen[bytes] | None = None

    def attempt(self, case: int | str) -> dict[str, Any]:
        """The worker's verdict on a case. Raises Died."""
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(case).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._dead() from None
        case = self._answer(STARTING, STARTING, 1 << 40)
        try:
            seconds = SECONDS + 2 * (case["bytes"] >> 20)
            verdict = self._answer(seconds, 3 * seconds, MEMORY + 2 * case["bytes"], MOST)
        except Died as error:
            raise Died(str(error), f"{case['what']}\n{error.text}") from None
        verdict["text"] = f"{case['what']}\n{verdict['text']}"
        if not verdict["kind"] and verdict["memory"] > MEMORY + 2 * case["bytes"]:
            verdict["kind"] = f"over {MEMORY >> 20} MB of memory"
        return verdict

    def close(self) -> None:
        if self._process is not None:
            self._kill()

    def _start(self) -> None:
        self._root.mkdir(exist_ok=True)
        environment = os.environ | _ENVIRONMENT | {"JAX_COMPILATION_CACHE_DIR": str(self._root.parent / "compiled")}
        with open(self._root / "starting", "wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, _HERE / "worker.py", self._root, self._seeds, self._group],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment, start_new_session=True,
                bufsize=0,  # what waits in a buffer of ours, no selector sees
            )  # fmt: skip
        try:
            self._answer(STARTING, STARTING, 1 << 40)
        except Died as error:
            said = (self._root / "output").read_bytes() if (self._root / "output").exists() else b""
            said = (self._root / "starting").read_bytes() + said
            raise RuntimeError(f"a worker did not start: {error}\n{said.decode(errors='replace')[-3000:]}") from None

    def _answer(self, seconds: float, longest: float, memory: int, most: int = 1) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdout is not None
        start, used = first = time.monotonic(), _processor_seconds(process.pid)
        printed = self._printed()
        held = _resident(process.pid)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not selector.select(0.1):
                now = time.monotonic(), _processor_seconds(process.pid)
                if now[0] - start > longest or now[1] - used > seconds:
                    raise self._killed(f"not done after {seconds} seconds")
                if now[0] - first[0] > most * longest or now[1] - first[1] > most * seconds:
                    raise self._killed(f"not done after {most * seconds} seconds")
                if most > 1 and self._printed() > printed:
                    (start, used), printed = now, self._printed()
                if _resident(process.pid) - held > memory:
                    raise self._killed(f"over {MEMORY >> 20} MB of memory")
        line = process.stdout.readline()
        if not line:
            raise self._dead()
        return json.loads(line)

    def _printed(self) -> int:
        output = self._root / "output"
        return output.stat().st_size if output.exists() else 0

    def _dead(self) -> Died:
        assert self._process is not None
        status = self._process.wait()
        self._process = None
        name = signal.Signals(-status).name if status < 0 else f"status {status}"
        return self._died(f"the process ended by {name}")

    def _killed(self, why: str) -> Died:
        assert self._process is not None
        self._process.send_signal(signal.SIGABRT)  # on which it writes where it is
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        self._kill()
        return self._died(why)

    def _died(self, why: str) -> Died:
        """With the place in our code that the process last wrote down."""
        said = (self._root / "output").read_bytes().decode(errors="replace") if (self._root / "output").exists() else ""
        ours = re.search(r'File "[^"]*/bert_jax/([^"]+)", (line \d+ in \w+)', said.rpartition("Current thread")[2])
        return Died(f"{why} in {ours[1]} {ours[2]}" if ours else why, said[-3000:])

    def _kill(self) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None


def _processor_seconds(pid: int) -> float:
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK


def _resident(pid: int) -> int:
    try:
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def run(
    names: Iterable[int | str], seeds: pathlib.Path, jobs: int = 1, note: Callable[[Summary], None] | None = None
) -> Summary:
    """Tries cases by number or name.

    Args:
        names: which.
        seeds: a file that keeps the whole files; made when it is missing.
        jobs: processes.
        note: called after each case.
    """
    waiting: queue.SimpleQueue[int | str] = queue.SimpleQueue()
    for name in names:
        waiting.put(name)
    summary, lock = Summary(), threading.Lock()
    failures: list[BaseException] = []

    def work(root: pathlib.Path) -> None:
        workers = {
            group: Worker(root.with_name(f"{root.name}-{group}"), seeds, group)
            for group in {kind.group for kind in cases.KINDS.values()}
        }
        try:
            for name in _drained(waiting):
                if failures:
                    return
                start = time.monotonic()
                verdict = _verdict(workers[cases.KINDS[cases.kind_of(name)].group], name)
                with lock:
                    _add(summary, name, verdict, time.monotonic() - start)
                    if note:
                        note(summary)
        except BaseException as error:
            failures.append(error)
        finally:
            for worker in workers.values():
                worker.close()

    with tempfile.TemporaryDirectory(prefix="bert_jax_fuzz_") as folder:
        threads = [threading.Thread(target=work, args=(pathlib.Path(folder) / str(i),)) for i in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return summary


def _drained(waiting: "queue.SimpleQueue[int | str]") -> Iterator[int | str]:
    with contextlib.suppress(queue.Empty):
        while True:
            yield waiting.get_nowait()


def _verdict(worker: Worker, name: int | str) -> dict[str, Any]:
    try:
        return worker.attempt(name)
    except Died as error:
        return {"kind": str(error), "text": error.text, "refused": False}


def _add(summary: Summary, name: int | str, verdict: dict[str, Any], seconds: float) -> None:
    kind = cases.kind_of(name)
    summary.tried[kind] += 1
    summary.refused[kind] += verdict["refused"]
    summary.seconds[kind] += seconds  # type: ignore[assignment]
    if verdict["kind"]:
        summary.findings.append(Finding(name, kind, verdict["kind"], verdict["text"]))
