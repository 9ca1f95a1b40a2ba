"""Limit the size of the persistent cache: remove the least recently used entries."""

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

_LIMIT = 2 << 30  # default maximum bytes of all entries
_ENTRY = re.compile(r"[0-9a-f]{32}")
_PARTIAL = re.compile(r"\.[0-9a-f]{32}\.[0-9a-f]{16}\.partial")
_PARTIAL_SECONDS = 3600  # a temporary file that is older than this was left by a killed process
_ENTRY_OF_JAX = re.compile(r"[\w.-]+-[0-9a-f]{64}-(cache|atime)")


def remove_oldest(folder: Path, marker: bytes, of_jax: bool = False, limit: int | None = None) -> None:
    """Remove the least recently used entries until the remaining ones take at most `limit` bytes.

    Files that neither bert_jax nor JAX wrote are not counted and not removed.

    Args:
        folder: the directory of the entries.
        marker: the first bytes of an entry.
        of_jax: whether to count and remove JAX's own entries in the parent directory too.
        limit: maximum number of bytes; None = 2 GiB.
    """
    limit = _LIMIT if limit is None else limit
    with contextlib.suppress(OSError):
        entries = list(_entries(folder, marker))
        if of_jax:
            entries += _entries_of_jax(folder.parent)
        entries.sort(key=lambda one: max(one[0].st_atime, one[0].st_mtime))
        total = sum(info.st_size for info, _ in entries)
        for info, path in entries:
            if total <= limit:
                return
            with contextlib.suppress(OSError):  # another process has removed it
                os.unlink(path)
            total -= info.st_size


def _entries(folder: Path, marker: bytes) -> Iterator[tuple[os.stat_result, str]]:
    """Yield our entries in a directory, and remove the temporary files that killed processes left there."""
    for file in os.scandir(folder):
        if not file.is_file(follow_symlinks=False):
            continue
        with contextlib.suppress(OSError):  # another process has removed it
            if _ENTRY.fullmatch(file.name) and _first_bytes(file.path, len(marker)) == marker:
                yield file.stat(), file.path
            elif (
                _PARTIAL.fullmatch(file.name)
                and marker.startswith(_first_bytes(file.path, len(marker)))
                and time.time() - file.stat().st_mtime > _PARTIAL_SECONDS
            ):
                os.unlink(file.path)


def _first_bytes(path: str, count: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(count)


def _entries_of_jax(folder: Path) -> Iterator[tuple[os.stat_result, str]]:
    for file in os.scandir(folder):
        if _ENTRY_OF_JAX.fullmatch(file.name) and file.is_file(follow_symlinks=False):
            yield file.stat(), file.path
