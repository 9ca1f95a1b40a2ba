"""Locks that keep two processes from working in one directory.

A local directory is locked by `flock`, which the system releases when the process ends. An object store has no locks,
so a lease is used: an object that only one writer can create (`Path.create`), and that its owner rewrites every
`BEAT_SECONDS`. A lease that is not rewritten for `STALE_SECONDS` belongs to a dead process; another process takes over
by creating the lease of the next number. No clocks are compared: a process that wants a lease watches it for that time.
A released lease is marked and stays, so that numbers only grow.
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
_SETTLE_SECONDS = 1.0  # after this time, every other writer sees the new lease

log = logger(__name__)


class Claim:
    """The exclusive right of this process to work in a directory."""

    def check(self) -> None:
        """Raise InputError when another process has taken the directory over."""


@contextlib.contextmanager
def claimed(directory: PathLike, busy: str) -> Iterator[Claim]:
    """Hold the exclusive right to a directory during the block; if the process dies, the right is released.

    Args:
        directory: the directory.
        busy: the error message if another process holds the right.

    Raises:
        InputError: another process holds the right; the message names the process if it is known.
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
    """The owner of a lease.

    Attributes:
        id: id of the lease, unique.
        host, pid, user: host, process id and user of the process.
        since: start of the lease, UTC.
        machine: id of the running kernel and process namespace, in which `pid` and `started` are valid.
        started: start of the process, in kernel ticks.
        beat: number of renewals.
        released: whether the lease was released.
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
        """Return whether the lease was released, or its process ran on this machine and has ended."""
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
        self._renewed = 0.0  # time.monotonic() of the last successful renewal
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def __enter__(self) -> "_Lease":
        number, holder = self._highest()
        if holder is not None and not holder.has_ended():
            self._wait_until_stale(number, holder)
        self._number = number + 1
        self._renewed = time.monotonic()
        if not self._path(self._number).create(self._me.encode()):
            self._refuse(self._read(self._number))
        # A store that ignores "only if it does not exist" keeps the last writer's object, so check whose it is.
        time.sleep(_SETTLE_SECONDS)
        number, holder = self._highest()
        if holder is None or holder.id != self._me.id:
            self._refuse(holder)
        for old in range(max(1, self._number - 3), self._number):
            if self._read(old) is not None:  # a lease, not a file of another program
                self._path(old).unlink()
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._thread.join(STALE_SECONDS)  # after a longer outage of the store, the lease is stale anyway

    def check(self) -> None:
        if time.monotonic() - self._renewed > STALE_SECONDS:  # this process was suspended, or could not write
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
                log.warning("could not renew the lease of %s: %s", self._directory.parent, error)
        if self._lost is None:
            with contextlib.suppress(OSError):
                self._write(beat=-1, released=True)

    def _look(self) -> None:
        """Check whether another process has taken the lease over."""
        number, holder = self._highest()
        if number != self._number or holder is None or holder.id != self._me.id:
            self._lost = holder or self._me

    def _wait_until_stale(self, number: int, holder: _Owner) -> None:
        """Wait until the lease is released or stale. Raises InputError when it is renewed."""
        deadline = time.monotonic() + STALE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(BEAT_SECONDS / 5)
            now, current = self._highest()
            if current is None or (now == number and current.has_ended()):
                return
            if now != number or current != holder:
                self._refuse(current)

    def _refuse(self, holder: _Owner | None) -> None:
        raise InputError(f"{self._busy} ({holder})" if holder else self._busy)

    def _write(self, **changes: Any) -> None:
        self._path(self._number).write_bytes(dataclasses.replace(self._me, **changes).encode())

    def _path(self, number: int) -> Path:
        return self._directory / f"{number}.json"

    def _highest(self) -> tuple[int, _Owner | None]:
        """Return the highest lease number (0 = no lease) and the owner of that lease."""
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
    except (KeyError, OSError):  # the user id has no name, as in containers
        return str(os.getuid())


def _machine() -> str:
    """Return the ids of the boot and the process namespace; "" on systems without /proc."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Return the start of a process in kernel ticks; "" if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""
