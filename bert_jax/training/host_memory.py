"""Keep the C library from returning freed memory to the kernel between training steps on a CPU."""

import ctypes
import sys

# Parameters of glibc's mallopt (malloc.h).
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_NEVER = -1  # read as the largest size_t


def keep_freed_memory() -> bool:
    """Makes the buffers that every step allocates come from memory that the process already has.

    By default glibc maps each large buffer anew and the kernel zeroes it page by page: over a third of the CPU time of
    a small model's step. Peak memory grows, as freed blocks are kept. To be called before the JAX backend starts: glibc
    gives each thread its place to allocate once, and stops reading the limit after the first eight of them. Harmless,
    and no use, later and with accelerators.

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
