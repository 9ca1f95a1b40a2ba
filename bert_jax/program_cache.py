"""Persistent cache of compiled programs and parameter shapes, which later processes read from disk.

Entries are files in the local directory that `JAX_COMPILATION_CACHE_DIR` names, or else in the user's cache directory.
There each kind of processor has its own subdirectory. `JAX_ENABLE_COMPILATION_CACHE=false` disables the cache. A
missing or damaged entry is computed again.

A compiled program is code. An entry is therefore read only if nobody but the user and root can have written it.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import platform
import secrets
import stat
from pathlib import Path
from typing import Any

from bert_jax.errors import logger

log = logger(__name__)

_PACKAGE = os.path.dirname(__file__)
_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
MARKER = b"bert_jax cache\n"  # the first bytes of an entry, before the hash of its content
_HASH_BYTES = 32
_PACKAGES = ("jax", "jaxlib", "flax", "numpy", "ml_dtypes")  # packages that determine what a program computes
# JAX options whose names contain one of these words do not affect programs.
_IRRELEVANT_OPTIONS = ("cache", "log", "platforms")


def user_directory() -> Path:
    """Return the cache directory of this package and user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "bert_jax"


def default_directory() -> Path | None:
    """Return the directory to use without `JAX_COMPILATION_CACHE_DIR`; None if it is not private and writable."""
    folder = user_directory() / "programs" / _machine()
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder if os.access(folder, os.W_OK) and is_private(folder) else None


def directory() -> Path | None:
    """Return the directory of the entries, which may not exist; None if the cache is disabled or not trusted."""
    import jax

    config: Any = jax.config
    if not config.jax_enable_compilation_cache or os.environ.get(_VARIABLE) == "":
        return None
    named = config.jax_compilation_cache_dir
    parent = Path(named) if named and "://" not in named else default_directory()
    if parent is None or not (is_private(parent) and fingerprint_of_sources()):
        return None
    folder = parent / f"bert_jax-{_machine()}"
    return folder if is_private(folder) else None


def is_private(folder: str | os.PathLike[str]) -> bool:
    """Return whether only this user and root can write to a directory, or it does not exist; log the reason if not."""
    try:
        status = os.stat(folder)
    except OSError:
        return True
    why = _distrust(status)
    if why is None and not stat.S_ISDIR(status.st_mode):
        why = "no directory"
    if why is not None:
        log.warn_once(
            f"{os.fspath(folder)}: expected a directory that only you can write to, as compiled programs are "
            f"code; found {why}: it is not used as a cache"
        )
    return why is None


def _distrust(found: os.stat_result) -> str | None:
    """Return why a file or directory is not trusted: another user owns it or may write to it; None if it is trusted."""
    if found.st_uid not in (os.geteuid(), 0):
        return f"one that belongs to user {found.st_uid}"
    if found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_group_of_one(found.st_gid)):
        return f"mode {stat.S_IMODE(found.st_mode):o}"
    return None


def _is_group_of_one(group: int) -> bool:
    """Return whether this user is the only member of a group; many systems give users such a group, and umask 002."""
    import grp
    import pwd

    try:
        user, members = pwd.getpwuid(os.geteuid()), grp.getgrgid(group).gr_mem
        return user.pw_gid == group and all(member == user.pw_name for member in members)
    except KeyError:  # a user or group without a name
        return False


def fingerprint(*parts: object) -> str:
    """Return a cache key: a hash of the `repr` of `parts`, and of everything else that a program depends on.

    Programs also depend on every source file of this package, the versions of the packages that trace and compile,
    JAX's options and XLA's flags.
    """
    return hashlib.sha256(repr((_versions(), jax_options(), parts)).encode()).hexdigest()[:32]


def jax_options() -> tuple[object, ...]:
    """Return the values of JAX's options in this thread, except options that do not affect programs."""
    import jax

    return tuple(getattr(jax.config, name) for name in _option_names())


@functools.cache
def _option_names() -> tuple[str, ...]:
    import jax

    config: Any = jax.config
    names = (name for name in sorted(config.values) if not any(part in name for part in _IRRELEVANT_OPTIONS))
    return tuple(name for name in names if hasattr(config, name))


def read_entry(name: str) -> bytes | None:
    """Return the content of the entry `name`; None if it is missing, damaged or not trusted."""
    folder = directory()
    if folder is None:
        return None
    try:
        with open(os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if _distrust(status) or not stat.S_ISREG(status.st_mode):
                return None
            entry = file.read()
    except OSError:
        return None
    head, content = entry[: len(MARKER) + _HASH_BYTES], entry[len(MARKER) + _HASH_BYTES :]
    if head != MARKER + hashlib.sha256(content).digest():
        return None
    with contextlib.suppress(OSError):  # the cache may be read-only for this user
        os.utime(folder / name)
    return content


def write_entry(name: str, content: bytes) -> None:
    """Write the entry `name` atomically; a full or read-only disk is not an error."""
    folder = directory()
    if folder is None:
        return
    partial = folder / f".{name}.{secrets.token_hex(8)}.partial"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(MARKER + hashlib.sha256(content).digest() + content)
            os.replace(partial, folder / name)
        finally:
            partial.unlink(missing_ok=True)
    from bert_jax.cache_limit import remove_oldest

    remove_oldest(folder, MARKER, of_jax=folder.parent == default_directory())


@functools.cache
def _versions() -> tuple[object, ...]:
    packages = tuple(importlib.metadata.version(package) for package in _PACKAGES)
    return packages, fingerprint_of_sources(), os.environ.get("XLA_FLAGS")


@functools.cache
def fingerprint_of_sources(package: str | os.PathLike[str] = _PACKAGE) -> str | None:
    """Return a hash of the names and contents of a package's source files; None if there are no files."""
    digest, count = hashlib.sha256(), 0
    for folder, subfolders, names in os.walk(package):
        subfolders.sort()
        for name in sorted(name for name in names if name.endswith(".py")):
            path = os.path.join(folder, name)
            with open(path, "rb", buffering=0) as file:
                content = file.read()
            digest.update(f"{os.path.relpath(path, package)}\0{len(content)}\0".encode() + content)
            count += 1
    return digest.hexdigest() if count else None


@functools.cache
def _machine() -> str:
    """Return a hash of the processor's model and instruction sets, which XLA compiles CPU programs for."""
    described = [platform.machine(), platform.processor()]
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if not line.strip():
                break  # read only the first core
            if line.split(":")[0].strip() in ("model name", "flags", "Features", "CPU part"):
                described.append(line)
    return hashlib.sha256(repr(described).encode()).hexdigest()[:16]
