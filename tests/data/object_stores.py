"""A stand-in for an object store, in the memory of this process, that counts what it is asked and fails when told."""

import contextlib
import threading
import time

import pytest

from bert_jax.storage import claims, object_store, writing


class Killed(BaseException):
    """Ends everything that is done, as the end of the process does."""


class Store:
    """What `bert_jax.storage` needs of an fsspec file system.

    Attributes:
        objects: name -> bytes.
        operations: all that were asked for, (method, name).
        ranges: parts of objects that were read, (name, first byte, byte behind the last).
        latency: seconds that reading takes.
        most_at_once: parts of objects that were read at the same time.
        broken: beginning of the names that cannot be read, to the error that this raises.
        dies_at: the number of the write or removal at which the process is killed.
    """

    def __init__(self):
        self.objects, self.operations, self.ranges = {}, [], []
        self.latency, self.reading, self.most_at_once = 0.0, 0, 0
        self.broken, self.dies_at, self.changes = {}, None, 0
        self._lock = threading.Lock()

    def copy(self, directory, name):
        """Puts the files of a local directory below `gs://name`."""
        for path in directory.rglob("*"):
            if path.is_file():
                self.objects[f"{name}/{path.relative_to(directory)}"] = path.read_bytes()

    def below(self, name):
        """The objects below `gs://name`, by their names within it."""
        return {key[len(name) + 1 :]: data for key, data in self.objects.items() if key.startswith(f"{name}/")}

    def _name(self, operation, url):
        name = url.removeprefix("gs://").rstrip("/")
        self.operations.append((operation, name))
        return name

    def _change(self):
        self.changes += 1
        if self.dies_at is not None and self.changes >= self.dies_at:
            raise Killed

    def info(self, url):
        name = self._name("info", url)
        if name in self.objects:
            return {"type": "file", "size": len(self.objects[name])}
        if self.below(name):
            return {"type": "directory", "size": 0}
        raise FileNotFoundError(name)

    def ls(self, url, detail=False):
        name = self._name("ls", url)
        return sorted({f"{name}/{key.split('/')[0]}" for key in self.below(name)})

    def find(self, url, detail=False):
        name = self._name("find", url)
        found = {f"{name}/{key}": {"size": len(data)} for key, data in self.below(name).items()}
        return found if detail else sorted(found)

    def cat_file(self, url, start=None, end=None):
        name = self._name("read", url)
        if start is not None:
            with self._lock:
                self.ranges.append((name, start, end))
                self.reading += 1
                self.most_at_once = max(self.most_at_once, self.reading)
            time.sleep(self.latency)
            with self._lock:
                self.reading -= 1
        for beginning, error in self.broken.items():
            if name.startswith(beginning):
                raise error
        if name not in self.objects:
            raise FileNotFoundError(name)
        return self.objects[name][start:end]

    def pipe_file(self, url, data, mode="overwrite"):
        self._change()
        name = self._name("write", url)
        if mode == "create" and name in self.objects:
            raise FileExistsError(name)
        self.objects[name] = bytes(data)

    def put_file(self, local, url):
        with open(local, "rb") as file:
            self.pipe_file(url, file.read())

    def rm_file(self, url):
        self._change()
        if self.objects.pop(self._name("remove", url), None) is None:
            raise FileNotFoundError(url)

    def rm(self, urls):
        for url in urls:
            self.rm_file(url)

    def call(self, *_, **__):
        return {}


@pytest.fixture
def store(monkeypatch):
    """The store behind gs:// in this process; a directory of it is claimed by nobody."""
    found = Store()
    monkeypatch.setattr(object_store, "filesystem", lambda url: found)
    monkeypatch.setattr(object_store, "_FIRST_WAIT", 0.0)
    monkeypatch.setattr(claims, "_SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(writing, "claimed", lambda directory, busy: contextlib.nullcontext())
    object_store._check_bucket.cache_clear()
    return found
