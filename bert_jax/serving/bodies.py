"""Parse and write JSON without blocking the event loop: values are counted before parsing, lists written in blocks.

orjson holds the interpreter lock for a whole document. For 2 MiB of `[[1],[1],...]` it needs 140 ms and 60 MB, so the
number of values is checked first, and long documents are processed in a thread, one at a time.
"""

import asyncio
import itertools
import math
import queue
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import orjson

from bert_jax.serving.refusals import Reason, Refusal
from bert_jax.serving.settings import ServerSettings

_T = TypeVar("_T")
SMALL = 8 << 10  # maximum bytes of a body, or values of an answer, that the event loop handles itself (under 1 ms)
_BLOCK = 16 << 10  # bytes that are counted, or values that are written, before other threads may run


class ValueCounts(NamedTuple):
    """Numbers of JSON values in a body.

    Attributes:
        values: the values in lists and objects; an empty list or object counts as if it held one.
        containers: lists and objects.
        strings: strings, the keys of objects included.
    """

    values: int
    containers: int
    strings: int

    def memory(self, data: bytes) -> int:
        """Return the approximate number of bytes that the parsed body takes."""
        width = 1 if data.isascii() and b"\\u" not in data else 4  # bytes per character of Python's strings
        return width * len(data) + 40 * self.values + 240 * self.containers


def most_counts(settings: ServerSettings) -> ValueCounts:
    """Return the maximum counts of a body: many times those of a request within the other limits."""
    texts = settings.max_texts
    return ValueCounts(1024 + 16 * texts + 4 * settings.max_request_tokens, 256 + 4 * texts, 1024 + 16 * texts)


def count_values(data: bytes, most: ValueCounts) -> ValueCounts:
    """Count the values of a JSON document. Raises `Refusal` as soon as a count exceeds its limit.

    The document need not be valid: the count is right up to the first error.
    """
    values = containers = quotes = 0
    rest = b""
    for start in range(0, len(data), _BLOCK):
        # Backslashes occur only in strings. Once escaped quotes are removed, each quote begins or ends a string.
        block = (rest + data[start : start + _BLOCK]).replace(rb"\\", b"").replace(rb"\"", b"")
        rest = b"\\" if block.endswith(b"\\") else b""
        parts = block.split(b'"')
        outside = b"".join(parts[quotes % 2 :: 2])
        quotes += len(parts) - 1
        containers += outside.count(b"[") + outside.count(b"{")
        values += outside.count(b",")
        counts = ValueCounts(values + containers, containers, quotes // 2)
        for name, count, limit in zip(ValueCounts._fields, counts, most, strict=True):
            if count > limit:
                what = "lists and objects" if name == "containers" else name
                raise Refusal(Reason.TOO_LARGE, f"expected a body of at most {limit} {what}, found more")
    return ValueCounts(values + containers, containers, quotes // 2)


def read_body(data: bytes, kind: type[_T]) -> _T:
    """Parse a JSON object and check its fields.

    Args:
        data: the body of a request.
        kind: the `msgspec.Struct` of the route's bodies.

    Raises:
        Refusal: the body is not a JSON object, or a field has a wrong type.
    """
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Refusal(Reason.INVALID, f"expected JSON in UTF-8, found an error: {error}") from None
    if not isinstance(content, dict):
        raise Refusal(Reason.INVALID, f"expected a JSON object, found {type(content).__name__}")
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise _field_error(content, kind, str(error)) from None


def _field_error(content: Any, kind: type, message: str) -> Refusal:
    """Return the error of msgspec as `FIELD: expected X, found Y`, with the type of the field in words."""
    path = message.rpartition(" - at `$.")[2].rstrip("`") if " - at `$." in message else ""
    if missing := re.match(r"Object missing required field `(\w+)`", message):
        path = f"{path}.{missing[1]}".strip(".")
    value, components = content, msgspec.json.schema_components((kind,))[1]
    schema: dict[str, Any] = {"$ref": kind.__name__}
    for step in re.findall(r"\w+", path):
        if isinstance(value, list):
            value = value[int(step)]
        else:
            value = value.get(step) if value is not None else None
            component = _component(schema)
            schema = components[component]["properties"][step] if component else {}
    field = re.sub(r"(\[\d+\])+$", "", path)
    where = "" if field == path else f" at {path}"
    return invalid_field(field, _in_words(schema), value, where)


def _component(schema: dict[str, Any]) -> str:
    """Return the name of the object type in a field's JSON schema, which may be optional or in a list; "" = none."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    parts = [*schema.get("anyOf", ()), *([schema["items"]] if schema.get("items") else [])]
    return next(filter(None, map(_component, parts)), "")


def _in_words(schema: dict[str, Any]) -> str:
    """Return the expected value of a field in words, from its JSON schema: the description, if it has one."""
    match schema:
        case {"description": words}:
            return str(words)
        case {"anyOf": options}:
            return " or ".join(_in_words(option) for option in options if option != {"type": "null"})
        case {"enum": values}:
            return f"one of {', '.join(map(str, filter(None, values)))}"
        case {"minimum": least, "maximum": most}:
            return f"an integer from {least} to {most}"
        case {"type": "boolean"}:
            return "true or false"
        case {"type": "string"}:
            return "a string"
        case _:
            return "an object"


def invalid_field(field: str, expected: str, value: Any, where: str = "") -> Refusal:
    """Return the error of a field that is not as expected, with its value if it is short."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null or nothing"}
    shown = names.get(type(value), type(value).__name__)
    if isinstance(value, int | float) and not isinstance(value, bool):
        shown = str(value)[:40]
    elif isinstance(value, str) and len(value) <= 40:
        shown = repr(value)
    elif isinstance(value, list):
        shown = f"a list of {len(value)} items" if value else "an empty list"
    return Refusal(Reason.INVALID, f"{field}: expected {expected}, found {shown}{where}")


def encode_json(value: Any) -> bytes:
    """Return JSON of values and NumPy arrays."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def json_list(items: Iterable[Any], size: int) -> Any:
    """Write a long list to JSON, in blocks between which other threads run.

    Args:
        items: the items, or an array.
        size: approximate number of values in an item.

    Returns:
        A JSON fragment, which may be part of the value that `encode_json` gets.
    """
    step = max(1, _BLOCK // max(1, size))
    if isinstance(items, np.ndarray):
        blocks = (items[start : start + step] for start in range(0, len(items), step))
    else:
        following = iter(items)
        blocks = iter(lambda: list(itertools.islice(following, step)), [])
    return orjson.Fragment(b"[%s]" % b",".join(encode_json(block)[1:-1] for block in blocks))


class SmallestFirst:
    """A thread that runs one function at a time, the smallest task first, so that large tasks do not delay small ones.

    Args:
        name: name of the thread.
    """

    def __init__(self, name: str):
        self._waiting: queue.PriorityQueue[tuple[float, int, Future[Any], Callable[[], Any] | None]]
        self._waiting = queue.PriorityQueue()
        self._numbers = itertools.count()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def run(self, size: int, function: Callable[[], _T]) -> _T:
        """Run a function in the thread, before waiting functions of larger size."""
        future: Future[_T] = Future()
        self._waiting.put((size, next(self._numbers), future, function))
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        while True:
            _, _, future, function = self._waiting.get()
            if function is None:
                return
            if future.set_running_or_notify_cancel():  # False if the request was cancelled
                try:
                    future.set_result(function())
                except Exception as error:
                    future.set_exception(error)
            del future, function  # otherwise they would hold a body in memory until the next one comes

    def close(self) -> None:
        """End the thread after all waiting functions."""
        self._waiting.put((math.inf, next(self._numbers), Future(), None))
