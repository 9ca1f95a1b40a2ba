"""Persistent cache of compiled programs and parameter shapes, which later processes read from disk.

Entries are files in the local directory that `JAX_COMPILATION_CACHE_DIR` names, or else in the user's cache directory,
in a subdirectory for each kind of processor. `JAX_ENABLE_COMPILATION_CACHE=false` disables the cache. A missing or
damaged entry is made again.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

_LIMIT = 2 << 30  # bytes in the directory; beyond it, the least recently used files are removed
_PREFIX = "bert_jax-"
_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
# Packages and own source files that determine what a program computes.
_PACKAGES = ("jax", "jaxlib", "flax")
_SOURCES = ("sharding.py", "config.py", "modeling/**/*.py", "inference/programs.py")


def user_directory() -> Path:
    """Return the cache directory of this package and user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "bert_jax"


def default_directory() -> Path | None:
    """Return the directory to use without `JAX_COMPILATION_CACHE_DIR`; None if it is not writable."""
    folder = user_directory() / "programs" / _machine()
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder if os.access(folder, os.W_OK) else None


def directory() -> Path | None:
    """Return the directory of the cache: that of JAX if it is local; None if the cache is disabled."""
    import jax

    config: Any = jax.config
    if not config.jax_enable_compilation_cache or os.environ.get(_VARIABLE) == "":
        return None
    named = config.jax_compilation_cache_dir
    return Path(named) if named and "://" not in named else default_directory()


def fingerprint(*parts: object) -> str:
    """Return a cache key: a hash of the `repr` of `parts`, of versions, of source files and of XLA's flags."""
    return hashlib.sha256(repr((_versions(), parts)).encode()).hexdigest()[:32]


def read_entry(name: str) -> bytes | None:
    """Return the entry `name`; None if there is none."""
    folder = directory()
    if folder is None:
        return None
    path = folder / f"{_PREFIX}{name}"
    try:
        content = path.read_bytes()
        os.utime(path)
        return content
    except OSError:
        return None


def write_entry(name: str, content: bytes) -> None:
    """Write the entry `name` atomically; a full or read-only disk is not an error."""
    folder = directory()
    if folder is None:
        return
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".", delete=False) as file:
            try:
                file.write(content)
                file.close()
                os.replace(file.name, folder / f"{_PREFIX}{name}")
            except OSError:
                os.unlink(file.name)
    remove_oldest(folder)


def remove_oldest(folder: Path, limit: int = _LIMIT) -> None:
    """Remove the least recently used files until the remaining ones take at most `limit` bytes."""
    with contextlib.suppress(OSError):
        found = [(entry.stat(), entry.path) for entry in os.scandir(folder) if entry.is_file()]
        found.sort(key=lambda one: max(one[0].st_atime, one[0].st_mtime))
        total = sum(stat.st_size for stat, _ in found)
        for stat, path in found:
            if total <= limit:
                return
            with contextlib.suppress(OSError):  # another process has removed it
                os.unlink(path)
            total -= stat.st_size


@functools.cache
def _versions() -> tuple[object, ...]:
    home = Path(__file__).parent
    files = sorted(path for pattern in _SOURCES for path in home.glob(pattern))
    sources = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    packages = tuple(importlib.metadata.version(package) for package in _PACKAGES)
    return packages, sources, os.environ.get("XLA_FLAGS")


@functools.cache
def _machine() -> str:
    """Return a hash of the processor's model and instruction sets, which XLA compiles CPU programs for."""
    described = [platform.machine(), platform.processor()]
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if not line.strip():
                break  # only the first core
            if line.split(":")[0].strip() in ("model name", "flags", "Features", "CPU part"):
                described.append(line)
    return hashlib.sha256(repr(described).encode()).hexdigest()[:16]
