"""Directories of an object store: objects whose names share a prefix, listed, removed and moved one by one."""

import contextlib
import errno
import glob
import operator
from collections.abc import Sequence

from bert_jax.storage import object_store


def urls_below(url: str) -> list[str]:
    """Return the URLs of all objects, sorted, including empty objects ending in / that mark directories."""
    scheme = url.partition("://")[0]
    names = object_store.attempt(url, lambda store: store.find(url))
    return [f"{scheme}://{name}" for name in sorted(names)]


def remove_object(url: str) -> None:
    """Remove an object, which may be missing, as the response to an earlier request may have been lost."""
    with contextlib.suppress(FileNotFoundError):
        object_store.attempt(url, lambda store: store.rm_file(url))


def remove_tree(url: str, missing_ok: bool) -> None:
    """Remove all objects of a directory. Raises FileNotFoundError when there are none, unless `missing_ok`."""
    urls = urls_below(url)
    if not urls and not missing_ok:
        raise FileNotFoundError(errno.ENOENT, "no such file or directory", url)
    for _ in range(10):
        if not urls:
            return
        # `rm` reads names as patterns, which could match objects of other directories.
        for one in filter(glob.has_magic, urls):
            remove_object(one)
        plain = [one for one in urls if not glob.has_magic(one)]
        with contextlib.suppress(FileNotFoundError):  # earlier requests removed all, but their responses were lost
            object_store.attempt(url, operator.methodcaller("rm", plain))
        urls = urls_below(url)
    raise OSError(errno.ENOTEMPTY, "another process keeps adding objects while the directory is being removed", url)


def move(urls: Sequence[str], source: str, target: str) -> None:
    """Move objects to another directory, or one object to another name.

    Args:
        urls: URLs of the objects.
        source: the beginning of their URLs that is replaced.
        target: what replaces it.

    Raises:
        FileNotFoundError: there are no objects.
    """
    if not urls:
        raise FileNotFoundError(errno.ENOENT, "no such file or directory", source)
    for url in urls:
        object_store.attempt(url, operator.methodcaller("cp_file", url, url.replace(source, target, 1)))
    for url in urls:
        remove_object(url)
