"""Locks that keep two processes from working in one directory.

A local directory is locked by `flock`, which the system lets go of when the process ends. An object store has no locks:
a lease is an object that only one writer can create (`Path.create`), which its owner writes again every
`BEAT_SECONDS`. One that is not written for `STALE_SECONDS` belongs to a process that has died, and is taken over by
creating the lease of the next number. No clocks are compared: whoever wants a lease watches it for that long itself. A
lease that was given back stays, marked so, that numbers only grow.
"""

import contextlib
import dataclasses
import fcntl
import getpass
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

from bert_jax.errors import InputError, logger
from bert_jax.storage.paths import Path, PathLike

LEASES = ".lease"  # the directory of leases: `.lease/NUMBER.json`; the highest number counts
BEAT_SECONDS = 5.0
STALE_SECONDS = 60.0
_SETTLE_SECONDS = 1.0  # after which no other writer can still believe that there was no lease

log = logger(__name__)


class Claim:
    """A directory that this process alone works in; `check` raises InputError when another has taken it over."""

    def check(self) -> None:
        """Raises InputError when the directory was lost to another process."""


@contextlib.contextmanager
def claimed(directory: PathLike, busy: str) -> Iterator[Claim]:
    """Keeps other processes out of a block on the same directory, which is let go of when the process ends.

    Raises:
        InputError: saying `busy` and, where it is known, who is in the block.
    """
    directory = Path(directory)
    if directory.is_remote:
        with _Lease(directory, busy) as lease:
            yield lease
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(busy) from None
        yield Claim()
    finally:
        os.close(descriptor)


@dataclasses.dataclass(frozen=True)
class _Owner:
    """Who holds a lease.

    Attributes:
        id: of the lease, new for each.
        host, pid, user: of the process.
        since: when it began, UTC.
        machine: names the running kernel and its process ids, for which alone `pid` and `started` mean something.
        started: when the process began, in the kernel's ticks.
        beat: times that it was written again.
        released: whether it was given back.
    """

    id: str
    host: str
    pid: int
    user: str
    since: str
    machine: str
    started: str
    beat: int = 0
    released: bool = False

    @classmethod
    def this_process(cls) -> "_Owner":
        return cls(
            uuid.uuid4().hex,
            socket.gethostname(),
            os.getpid(),
            _user(),
            time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
            _machine(),
            _started(os.getpid()),
        )

    @classmethod
    def parse(cls, data: bytes) -> "_Owner | None":
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError, RecursionError):
            return None

    def encode(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()

    def has_ended(self) -> bool:
        """Whether it gave the lease back, or is known to be dead: it ran on this machine, and is no more."""
        here = bool(self.machine) and self.machine == _machine()
        return self.released or (here and _started(self.pid) != self.started)

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user} on {self.host}, since {self.since}"


class _Lease(Claim):
    def __init__(self, directory: Path, busy: str):
        self._directory, self._busy = directory / LEASES, busy
        self._me = _Owner.this_process()
        self._ended = threading.Event()
        self._lost: _Owner | None = None
        self._renewed = 0.0  # when it was surely ours, by time.monotonic
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def __enter__(self) -> "_Lease":
        number, holder = self._highest()
        if holder is not None and not holder.has_ended():
            self._wait_until_stale(number, holder)
        self._number = number + 1
        self._renewed = time.monotonic()
        if not self._path(self._number).create(self._me.encode()):
            self._refuse(self._read(self._number))
        # A store that ignores the condition keeps the last of several writers: each looks once more.
        time.sleep(_SETTLE_SECONDS)
        number, holder = self._highest()
        if holder is None or holder.id != self._me.id:
            self._refuse(holder)
        for old in range(max(1, self._number - 3), self._number):
            self._path(old).unlink()
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._thread.join(STALE_SECONDS)  # when the store is out for longer, the lease goes stale by itself

    def check(self) -> None:
        if time.monotonic() - self._renewed > STALE_SECONDS:  # the beats stood still with us, or could not be written
            with contextlib.suppress(OSError):
                self._look()
        if self._lost is not None:
            raise InputError(f"{self._directory.parent}: this process was suspended, and {self._lost} took it over")

    def _keep(self) -> None:
        beat = 0
        while not self._ended.wait(BEAT_SECONDS):
            beat += 1
            try:
                self._look()
                if self._lost is not None:
                    return
                now = time.monotonic()
                self._write(beat=beat)
                self._renewed = now
            except OSError as error:
                log.warning("the lease of %s could not be renewed: %s", self._directory.parent, error)
        if self._lost is None:
            with contextlib.suppress(OSError):
                self._write(beat=-1, released=True)

    def _look(self) -> None:
        """Finds out whether another process has taken the lease over."""
        number, holder = self._highest()
        if number != self._number or holder is None or holder.id != self._me.id:
            self._lost = holder or self._me

    def _wait_until_stale(self, number: int, holder: _Owner) -> None:
        """Returns when nobody has renewed the lease for STALE_SECONDS."""
        deadline = time.monotonic() + STALE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(BEAT_SECONDS / 5)
            now, found = self._highest()
            if found is None or (now == number and found.has_ended()):
                return
            if now != number or found != holder:
                self._refuse(found)

    def _refuse(self, holder: _Owner | None) -> None:
        raise InputError(f"{self._busy} ({holder})" if holder else self._busy)

    def _write(self, **changes: Any) -> None:
        self._path(self._number).write_bytes(dataclasses.replace(self._me, **changes).encode())

    def _path(self, number: int) -> Path:
        return self._directory / f"{number}.json"

    def _highest(self) -> tuple[int, _Owner | None]:
        """The number of the lease that counts, 0 for none, and who holds it."""
        names = [path.name.removesuffix(".json") for path in self._directory.files_below()]
        number = max((int(name) for name in names if name.isdigit()), default=0)
        return number, self._read(number) if number else None

    def _read(self, number: int) -> _Owner | None:
        try:
            return _Owner.parse(self._path(number).read_bytes())
        except FileNotFoundError:
            return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this number, as in containers
        return str(os.getuid())


def _machine() -> str:
    """The boot and the process namespace, "" where the system has no /proc."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process began, in ticks of the kernel; "" when there is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""
