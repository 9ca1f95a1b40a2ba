"""Process-wide settings: environment variables within a block, and glibc's malloc for the rest of the process."""

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
_GROWTH = 1.75  # allowed growth of resident memory; the largest block of a step is about half of that memory
# Device files of TPUs (the second pattern also matches other devices of virtual machines) and of GPUs.
_DEVICES = ("accel*", "vfio/[0-9]*", "nvidia*", "kfd", "dxg")
_POD = ("TPU_NAME", "TPU_WORKER_ID", "TPU_ACCELERATOR_TYPE")
_GOOGLE = "0x1ae0"  # PCI vendor id of TPUs


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the block, and restore them afterwards."""
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
    """Set environment variables within the block, except those that already have a value."""
    return environment({name: value for name, value in variables.items() if name not in os.environ})


def may_have_accelerators() -> bool:
    """Return whether the machine shows a sign of a TPU or GPU: device files, a PCI device, or a variable of a TPU pod.

    Without such a sign, JAX need not load libtpu, which prints warnings if it finds no TPU.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _POD):
        return True
    if any(any(Path("/dev").glob(pattern)) for pattern in _DEVICES):
        return True
    try:
        vendors = Path("/sys/bus/pci/devices").glob("*/vendor")
        return any(vendor.read_text().strip() == _GOOGLE for vendor in vendors)
    except OSError:  # files of devices are not readable
        return True


def keep_freed_memory() -> bool:
    """Keep the C library from returning freed memory to the kernel, which makes training steps on a CPU faster.

    By default glibc maps new memory for each large buffer of a step, and the kernel zeroes it page by page: over a
    third of the CPU time of a small model's step. Peak memory grows, as freed blocks are kept; `MemoryBound` bounds it.

    The setting lasts until the process ends, so only the entry point of a process should call this function, as that of
    `bert-jax` does for verbs that train. Call it before the JAX backend starts, as glibc assigns each thread an arena
    only once. Later calls, and calls on machines with accelerators, are harmless but useless.

    Returns:
        Whether the setting was applied; False if the C library is not glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    options = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _NEVER), (_M_ARENA_MAX, 1))
    return all(mallopt(parameter, value) == 1 for parameter, value in options)


class MemoryBound:
    """Gives freed memory back to the kernel when the process has grown, which bounds the cost of `keep_freed_memory`.

    When a small block is placed in the space of a freed large one, the next large block does not fit there, and glibc
    takes new memory for it. Without this class, a process that trains BERT-base grew from 5 to 15 GB in 14 steps. It
    does nothing if the C library is not glibc.
    """

    def __init__(self) -> None:
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform.startswith("linux") else None
        self._expected, self._next = 0, 0.0

    def check(self) -> bool:
        """Give memory back if the process has grown since it last did so; return whether memory was given back.

        Call it between steps. It checks at most once a second, as a check takes a fraction of a millisecond. It leaves
        one spare block alone: steps often alternate between two blocks, and a new block's pages must first be zeroed.
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
    """Return the resident memory of this process in bytes (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def address_space() -> int:
    """Return the size of this process's address space in bytes (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
