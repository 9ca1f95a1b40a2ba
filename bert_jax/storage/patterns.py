"""Find files by a pattern, a folder or a path."""

import glob
import os
from typing import TYPE_CHECKING

from bert_jax.lazy import LazyModule
from bert_jax.storage.paths import Path

if TYPE_CHECKING:
    from bert_jax.storage import object_store
else:
    object_store = LazyModule("bert_jax.storage.object_store")


def matching_files(pattern: str) -> list[Path]:
    """Return the files that match a pattern with `*`, `**`, `?` or `[...]`, sorted."""
    path = Path(pattern)
    if not path.is_remote:
        return sorted((Path(name) for name in glob.glob(pattern, recursive=True) if os.path.isfile(name)), key=str)
    scheme = pattern.partition("://")[0]
    objects = object_store.attempt(pattern, lambda store: store.glob(pattern, detail=True))
    return [Path(f"{scheme}://{name}") for name, info in sorted(objects.items()) if info["type"] == "file"]


def find_files(path: str) -> list[Path]:
    """Return the files of a path, a folder (without hidden files) or a pattern, sorted; [] if there are none."""
    root = Path(path)
    if root.is_dir():
        prefix = "" if root.url == "." else f"{root.url.rstrip('/')}/"
        return [file for file in root.files_below() if "/." not in f"/{file.url.removeprefix(prefix)}"]
    if root.exists():
        return [root]
    return matching_files(path) if is_pattern(path) else []


def is_pattern(path: str) -> bool:
    """Return whether a path has the marks of a pattern: `*`, `?` or `[`."""
    return any(mark in path for mark in "*?[")
