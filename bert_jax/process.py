"""Process-wide settings: environment variables while a block runs, and glibc's malloc until the process ends."""

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

# Parameters of glibc's mallopt (malloc.h).
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_NEVER = -1  # mallopt reads it as the largest size_t
_GROWTH = 1.75  # factor by which resident memory may grow; the largest block of a step is about half of it
# Device files of TPUs (the second is also that of other devices of virtual machines) and of GPUs.
_DEVICES = ("accel*", "vfio/[0-9]*", "nvidia*", "kfd", "dxg")
_POD = ("TPU_NAME", "TPU_WORKER_ID", "TPU_ACCELERATOR_TYPE")
_GOOGLE = "0x1ae0"  # PCI's number of the vendor of TPUs


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while the block runs; after it they are as before."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def default_environment(variables: Mapping[str, str]) -> contextlib.AbstractContextManager[None]:
    """Set those environment variables that are not set while the block runs."""
    return environment({name: value for name, value in variables.items() if name not in os.environ})


def may_have_accelerators() -> bool:
    """Return whether the machine shows a sign of a TPU or GPU: device files, a PCI device, or a variable of a TPU pod.

    Without one, JAX need not load libtpu, which prints warnings where it finds no TPU.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _POD):
        return True
    if any(any(Path("/dev").glob(pattern)) for pattern in _DEVICES):
        return True
    try:
        vendors = Path("/sys/bus/pci/devices").glob("*/vendor")
        return any(vendor.read_text().strip() == _GOOGLE for vendor in vendors)
    except OSError:  # a device whose files may not be read
        return True


def keep_freed_memory() -> bool:
    """Keep the C library from returning freed memory to the kernel, which makes training steps on a CPU faster.

    By default glibc maps new memory for each large buffer of a step, and the kernel zeroes it page by page: over a
    third of the CPU time of a small model's step. Peak memory grows, as freed blocks are kept; `MemoryBound` bounds it.

    It holds until the process ends, so only the entry point of a process calls it, as `bert-jax pretrain`, `finetune`
    and `demo` do. To be called before the JAX backend starts: glibc gives each thread its place to allocate once, and
    stops reading the limit after the first eight of them. Harmless, and no use, later and with accelerators.

    Returns:
        Whether it was done: False where the C library is not glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _NEVER), (_M_ARENA_MAX, 1))
    return all(mallopt(parameter, value) == 1 for parameter, value in wanted)


class MemoryBound:
    """Gives freed memory back to the kernel when the process has grown, which bounds what `keep_freed_memory` costs.

    A small block that comes to lie in the place of a large one that was freed leaves too little room for the next large
    one, for which glibc then takes new memory. So the resident memory of a process that trains BERT-base grew from 5 to
    15 GB in 14 steps. Where the C library is not glibc, nothing is done.
    """

    def __init__(self) -> None:
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform.startswith("linux") else None
        self._expected, self._next = 0, 0.0

    def check(self) -> bool:
        """Give memory back if much more is resident than was at most after giving back; return whether it was done.

        To be called between steps. It looks at most once a second, as that takes a fraction of a millisecond. One spare
        block may stay: the kernel would have to clear its pages again, and steps often use two places in turn.
        """
        if self._trim is None or time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + 1.0
        if resident_memory() <= _GROWTH * self._expected:
            return False
        self._trim(0)
        self._expected = max(self._expected, resident_memory())
        return True


def resident_memory() -> int:
    """Return the bytes of this process that are in memory (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def address_space() -> int:
    """Return the bytes of the address space of this process (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
