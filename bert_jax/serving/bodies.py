"""JSON in and out without holding the event loop: bodies are counted before they are parsed, answers written in pieces.

orjson holds the interpreter lock for the whole of a document. 2 MiB of `[[1],[1],...]` take it 140 ms and 60 MB, so the
number of values is bounded before, and what is long is done in a thread, one document at a time.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
import orjson

from bert_jax.serving.refusals import Reason, Refusal
from bert_jax.serving.settings import ServerSettings

_T = TypeVar("_T")
SMALL = 8 << 10  # bytes of a body, or numbers of an answer, that the event loop handles itself, in less than a ms
_BLOCK = 16 << 10  # bytes that are counted, and numbers that are written, without a chance for other threads to run


class ValueCounts(NamedTuple):
    """Numbers of JSON values in a body.

    Attributes:
        values: numbers, strings, lists, objects and so on, in lists and objects; those of `[]` and `{}` count as one.
        containers: lists and objects.
        strings: strings, the keys of objects included.
    """

    values: int
    containers: int
    strings: int

    def memory(self, data: bytes) -> int:
        """Return about the bytes that the parsed body takes."""
        width = 1 if data.isascii() and b"\\u" not in data else 4  # of a character of Python's strings
        return width * len(data) + 40 * self.values + 240 * self.containers


def most_counts(settings: ServerSettings) -> ValueCounts:
    """Return the most values that a body may have: many times those of a request within the other limits."""
    texts = settings.max_texts
    return ValueCounts(1024 + 16 * texts + 4 * settings.max_request_tokens, 256 + 4 * texts, 1024 + 16 * texts)


def count_values(data: bytes, most: ValueCounts) -> ValueCounts:
    """Count the values of a JSON document. Raises `Refusal` at the first that is over the limit.

    The document need not be valid: the count is right up to the first error.
    """
    values = containers = quotes = 0
    rest = b""
    for start in range(0, len(data), _BLOCK):
        # Backslashes are in strings only. Without escaped quotes each quote begins or ends a string.
        block = (rest + data[start : start + _BLOCK]).replace(rb"\\", b"").replace(rb"\"", b"")
        rest = b"\\" if block.endswith(b"\\") else b""
        parts = block.split(b'"')
        outside = b"".join(parts[quotes % 2 :: 2])
        quotes += len(parts) - 1
        containers += outside.count(b"[") + outside.count(b"{")
        values += outside.count(b",")
        found = ValueCounts(values + containers, containers, quotes // 2)
        for name, count, limit in zip(ValueCounts._fields, found, most, strict=True):
            if count > limit:
                what = "lists and objects" if name == "containers" else name
                raise Refusal(Reason.TOO_LARGE, f"expected a body of at most {limit} {what}, found more")
    return ValueCounts(values + containers, containers, quotes // 2)


def parse_body(data: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises `Refusal` when it is none."""
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Refusal(Reason.INVALID, f"expected JSON in UTF-8, found an error: {error}") from None
    if not isinstance(body, dict):
        raise Refusal(Reason.INVALID, f"expected a JSON object, found {type(body).__name__}")
    return body


def is_small(answer: Any) -> bool:
    """Return whether an answer has few enough values for the event loop to write it."""
    return _size(answer) <= SMALL


def json_pieces(answer: Any) -> Iterator[bytes]:
    """Yield JSON in pieces: the same bytes as orjson writes at once.

    Args:
        answer: JSON values and NumPy arrays; an iterator in place of a list is read as its items are written.
    """
    if isinstance(answer, Iterator) or (isinstance(answer, list | np.ndarray) and _size(answer) > _BLOCK):
        before = b"["
        for items in _groups(answer):
            if len(items) == 1 and _size(items[0]) > _BLOCK:
                yield before
                yield from json_pieces(items[0])
            else:
                yield before + _dumps(items)[1:-1]
            before = b","
        yield b"[]" if before == b"[" else b"]"
    elif isinstance(answer, dict) and _size(answer) > _BLOCK:
        before = b"{"
        for key, value in answer.items():
            yield before + _dumps(key) + b":"
            yield from json_pieces(value)
            before = b","
        yield b"}"
    else:
        yield _dumps(answer)


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def _groups(items: Any) -> Iterator[Any]:
    """Split a list, array or iterator into groups of at most `_BLOCK` values, or of one item."""
    if isinstance(items, np.ndarray) and items.ndim == 1:
        yield from (items[start : start + _BLOCK] for start in range(0, len(items), _BLOCK))
        return
    group: list[Any] = []
    total = 0
    for item in items:
        size = _size(item)
        if group and total + size > _BLOCK:
            yield group
            group, total = [], 0
        group.append(item)
        total += size
    if group:
        yield group


def _size(value: Any) -> int:
    """Return about the number of values to write; not the whole number once it is over `_BLOCK`."""
    if isinstance(value, np.ndarray):
        return value.size
    if isinstance(value, Iterator):
        return _BLOCK + 1
    if not isinstance(value, list | tuple | dict):
        return 1 + len(value) // 16 if isinstance(value, str | bytes) else 1
    total = 1
    for item in value.values() if isinstance(value, dict) else value:
        total += _size(item)
        if total > _BLOCK:
            break
    return total


class Turns:
    """A thread that does one piece of work at a time, the smallest first, so that large ones do not delay small ones.

    Args:
        name: name of the thread.
    """

    def __init__(self, name: str):
        self._thread = ThreadPoolExecutor(1, name)
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._number = 0
        self._busy = False

    async def run(self, size: int, function: Callable[[], _T]) -> _T:
        """Run a function in the thread, before the larger ones that wait."""
        if self._busy:
            turn = asyncio.get_running_loop().create_future()
            self._number += 1
            heapq.heappush(self._waiting, (size, self._number, turn))
            try:
                await turn  # whoever ends hands its turn over: `_busy` stays true
            except asyncio.CancelledError:
                if not turn.cancelled():
                    self._hand_over()
                raise
        self._busy = True
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function)
        finally:
            self._hand_over()

    def _hand_over(self) -> None:
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():  # a request that was cancelled waits no more
                turn.set_result(None)
                return
        self._busy = False

    def close(self) -> None:
        """End the thread, after what it does."""
        self._thread.shutdown(wait=False, cancel_futures=True)
