"""Random access to the rows of prepared data, on a local disk or in an object store.

The rows are the same in both. From an object store, threads fetch the blocks named by `prefetch` ahead and whole; of
any other block, only the span that holds the requested rows is fetched.
"""

import abc
import functools
import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future

import numpy as np

from bert_jax import storage
from bert_jax.data.pretraining.manifest import InstanceSet, Shard
from bert_jax.data.pretraining.shards import block_starts, checksum_width, is_intact

_OPEN_FILES = 256  # files of a local set open at a time
_THREADS = 32  # threads that fetch from an object store: at 20 ms a request, 1600 blocks a second


class RowReader(abc.ABC):
    """The rows of a set, by number.

    Attributes:
        block_starts: int64 [num_blocks + 1], the first row of each block, followed by the number of rows.
    """

    def __init__(self, directory: storage.Path, instances: InstanceSet, dtype: np.dtype):
        self._dtype = dtype
        self._shards = instances.shards
        self._paths = [directory / shard.name for shard in instances.shards]
        self._shard_starts = np.cumsum([0, *(shard.rows for shard in instances.shards)])
        self._row_bytes = np.array([shard.width * dtype.itemsize for shard in instances.shards], np.int64)
        self.block_starts = block_starts(instances, dtype)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._shard_starts[-1])

    @property
    def fetches_blocks(self) -> bool:
        """Whether `prefetch` makes reading faster."""
        return False

    def prefetch(self, blocks: Iterable[int]) -> None:  # noqa: B027 (on a disk, nothing to fetch)
        """Fetch these blocks in the background, in this order, and drop all others."""

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """Return the records [R, W] of rows [R] (any order, repeats allowed), padded with zeros.

        Raises:
            OSError: a file cannot be read.
            ValueError: a file is cut short, or the checksum of a row differs.
        """
        numbers = np.asarray(numbers, np.int64)
        shards = self._shards_of(numbers)
        within = numbers - self._shard_starts[shards]
        stride = int(self._row_bytes[shards].max(initial=0))
        padded = bytearray(stride * len(numbers))
        for i, row in enumerate(self._read(numbers, shards, within)):
            if not is_intact(row):
                raise ValueError(f"{self._paths[shards[i]]}: row {within[i]} is damaged: its checksum differs")
            padded[i * stride : i * stride + len(row)] = row
        return np.frombuffer(padded, self._dtype).reshape(len(numbers), -1)[:, checksum_width(self._dtype) :]

    @abc.abstractmethod
    def _read(self, numbers: np.ndarray, shards: np.ndarray, within: np.ndarray) -> Iterator[bytes | memoryview]:
        """Yield the bytes of rows [R].

        Args:
            numbers: the numbers of the rows in the set.
            shards: the index of the shard of each row.
            within: the number of each row in its shard.
        """

    def _shards_of(self, numbers: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._shard_starts, numbers, side="right") - 1


def open_rows(directory: storage.Path, instances: InstanceSet, dtype: np.dtype) -> RowReader:
    """Return the reader of a set of a prepared directory.

    Args:
        directory: the directory of the shards.
        instances: the set, from the directory's manifest.
        dtype: the little-endian dtype of the records.
    """
    return (_RemoteReader if directory.is_remote else _LocalReader)(directory, instances, dtype)


class _LocalReader(RowReader):
    """Reader of local files, one read per row, through the system's cache.

    The rows of a batch are far apart, so memory-mapping the files would be no faster; and a failing disk would kill the
    process (SIGBUS) instead of raising OSError.
    """

    def __init__(self, directory: storage.Path, instances: InstanceSet, dtype: np.dtype):
        super().__init__(directory, instances, dtype)
        self._header_bytes = np.array([shard.header_bytes for shard in self._shards], np.int64)
        self._open = functools.lru_cache(_OPEN_FILES)(storage.OpenFile)

    def _read(self, numbers: np.ndarray, shards: np.ndarray, within: np.ndarray) -> Iterator[bytes]:
        sizes = self._row_bytes[shards]
        starts = self._header_bytes[shards] + within * sizes
        for shard, start, size in zip(shards.tolist(), starts.tolist(), sizes.tolist(), strict=True):
            path = self._paths[shard]
            with storage.naming(path):
                data = self._open(path).read_part(start, size)
            yield _whole(data, path.url, start, size)


class _RemoteReader(RowReader):
    """Reader of files in an object store, which fetches blocks and spans of blocks by concurrent ranged requests."""

    def __init__(self, directory: storage.Path, instances: InstanceSet, dtype: np.dtype):
        super().__init__(directory, instances, dtype)
        self._start()

    @property
    def fetches_blocks(self) -> bool:
        return True

    @property
    def cached_bytes(self) -> int:
        """Return the number of bytes of the blocks in memory."""
        with self._lock:
            done = [future for future in self._blocks.values() if future.done() and not future.exception()]
        return sum(len(future.result()) for future in done)

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._blocks: dict[int, Future[bytes]] = {}
        self._fetcher = _Fetcher(_THREADS)

    def _check_fork(self) -> None:
        """Start new threads in a forked process, which inherits none."""
        if self._pid != os.getpid():
            self._start()

    def prefetch(self, blocks: Iterable[int]) -> None:
        self._check_fork()
        needed_blocks = dict.fromkeys(blocks)
        with self._lock:
            for block in self._blocks.keys() - needed_blocks.keys():
                self._blocks.pop(block).cancel()
            for block in needed_blocks:
                if block not in self._blocks:
                    self._blocks[block] = self._fetch_block(block)

    def _fetch_block(self, block: int) -> "Future[bytes]":
        first, stop = self.block_starts[block : block + 2].tolist()
        return self._fetch(first, stop - 1)

    def _fetch(self, first: int, last: int) -> "Future[bytes]":
        """Request the bytes of rows `first` to `last` (included), which are in one shard."""
        shard = int(self._shards_of(np.array(first)))
        path, offset = self._paths[shard], int(self._shard_starts[shard])
        start, stop = _span(self._shards[shard], first - offset, last - offset, self._dtype)
        return self._fetcher.submit(functools.partial(_read_range, path, start, stop))

    def _read(self, numbers: np.ndarray, shards: np.ndarray, within: np.ndarray) -> Iterator[memoryview]:
        self._check_fork()
        blocks = np.searchsorted(self.block_starts, numbers, side="right") - 1
        spans: dict[int, tuple[int, Future[bytes]]] = {}  # block -> (first row of the fetched span, its bytes)
        with self._lock:
            cached = {block: self._blocks[block] for block in np.unique(blocks).tolist() if block in self._blocks}
        for block in np.unique(blocks[~np.isin(blocks, list(cached))]).tolist():
            in_block = numbers[blocks == block]
            first, last = int(in_block.min()), int(in_block.max())
            spans[block] = first, self._fetch(first, last)
        data = {block: (int(self.block_starts[block]), self._cached(block, cached[block])) for block in cached}
        data |= {block: (first, memoryview(future.result())) for block, (first, future) in spans.items()}
        for number, block, size in zip(
            numbers.tolist(), blocks.tolist(), self._row_bytes[shards].tolist(), strict=True
        ):
            first, rows = data[block]
            yield rows[(number - first) * size : (number - first + 1) * size]

    def _cached(self, block: int, future: "Future[bytes]") -> memoryview:
        """Return the bytes of a prefetched block; fetch it again if the first fetch failed."""
        try:
            return memoryview(future.result())
        except Exception:  # CancelledError too: another thread dropped the block before it was fetched
            second_fetch = self._fetch_block(block)
            with self._lock:
                if self._blocks.get(block) is future:
                    self._blocks[block] = second_fetch
            return memoryview(second_fetch.result())


_Requests = queue.SimpleQueue[tuple[Future[bytes], Callable[[], bytes]] | None]


class _Fetcher:
    """Daemon threads that process requests in order; they end when the object is deleted."""

    def __init__(self, num_threads: int):
        self._requests: _Requests = queue.SimpleQueue()
        ended = threading.Event()
        for _ in range(num_threads):
            threading.Thread(target=_carry_out, args=(self._requests, ended), name="fetch rows", daemon=True).start()
        weakref.finalize(self, _end, self._requests, ended, num_threads)

    def submit(self, request: Callable[[], bytes]) -> "Future[bytes]":
        future: Future[bytes] = Future()
        self._requests.put((future, request))
        return future


def _carry_out(requests: _Requests, ended: threading.Event) -> None:
    while (item := requests.get()) is not None and not ended.is_set():
        future, request = item
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(request())
            except BaseException as error:  # raised later, where the rows are needed
                future.set_exception(error)
        del item, future, request  # the thread keeps nothing alive while it waits


def _end(requests: _Requests, ended: threading.Event, num_threads: int) -> None:
    ended.set()
    for _ in range(num_threads):
        requests.put(None)


def _span(shard: Shard, first: int, last: int, dtype: np.dtype) -> tuple[int, int]:
    """Return the half-open range of bytes of a shard that holds its rows `first` to `last` (included)."""
    row_bytes = shard.width * dtype.itemsize
    return shard.header_bytes + first * row_bytes, shard.header_bytes + (last + 1) * row_bytes


def _read_range(path: storage.Path, start: int, stop: int) -> bytes:
    return _whole(path.read_range(start, stop), path.url, start, stop - start)


def _whole(data: bytes, name: str, start: int, size: int) -> bytes:
    if len(data) != size:
        raise ValueError(f"{name}: expected {size} bytes from byte {start}, found {len(data)}")
    return data
