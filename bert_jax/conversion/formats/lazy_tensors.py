"""Lazy tensors, whose values are read from the file on access; checks that all formats share.

No file is mapped into memory.
"""

import collections
import contextlib
import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bert_jax import storage
from bert_jax.errors import InputError

# Bounds on what a file may claim, so that a small file cannot take much memory or time. The largest BERT has about 400
# tensors, and three times as many variables with optimizer state.
MOST_TENSORS = 2_000
LONGEST_DESCRIPTION = 2**19  # bytes of a header or index
_MARKS_A_TENSOR = 20  # JSON punctuation marks per tensor; a matrix with its checksum has 14
_LONGEST_NAME = 500  # maximum characters of a tensor's name
_MOST_AXES = 32
_CHUNK = 2**18  # bytes that are copied at a time


@dataclasses.dataclass(frozen=True)
class LazyTensor:
    """A tensor in an open file.

    Attributes:
        shape: shape of the array that `read` returns.
        dtype: dtype of that array.
        read: function that reads the values from the file at each call. It raises InputError when they are damaged.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]

    def transposed(self) -> "LazyTensor":
        """Return the tensor with its axes reversed."""
        return LazyTensor(self.shape[::-1], self.dtype, lambda: self.read().T)

    def part(self, index: int, count: int) -> "LazyTensor":
        """Return part `index` of `count` equal parts along the first axis; a remainder of rows is dropped."""
        rows = self.shape[0] // count
        select = slice(index * rows, (index + 1) * rows)
        return LazyTensor((rows, *self.shape[1:]), self.dtype, lambda: self.read()[select])


Tensors = dict[str, LazyTensor]  # name -> tensor


@contextlib.contextmanager
def about(path: storage.Path) -> Iterator[None]:
    """Prefix an InputError raised in the block with `path`, unless it names a file already."""
    try:
        yield
    except InputError as error:
        named = str(error).startswith((f"{path}: ", f"{path.parent}/"))
        raise error if named else InputError(f"{path}: {error}") from None
    except RecursionError:
        raise InputError(f"{path}: expected weights, found values that are nested too deeply") from None


def parse_header(text: bytes, what: str) -> dict[str, Any]:
    """Parse the JSON object of a header or index, in which no name may occur twice.

    Raises:
        InputError: the text is no JSON object, or is larger or more deeply nested than MOST_TENSORS tensors need.
    """
    if len(text) > LONGEST_DESCRIPTION:
        raise InputError(f"expected {what} of at most {LONGEST_DESCRIPTION} bytes, found {len(text)}")
    # Each punctuation mark makes a Python object, which takes up to a hundred times its bytes.
    if sum(text.count(mark) for mark in (b"{", b"[", b":", b",")) > _MARKS_A_TENSOR * MOST_TENSORS:
        raise InputError(f"expected {what} with at most {MOST_TENSORS} tensors, found more")
    try:
        content = json.loads(text.decode(), object_pairs_hook=_without_repetition)
    except RecursionError:
        raise InputError(f"expected {what}, found values that are nested too deeply") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        reason = " ".join(str(error).split())[:100]
        raise InputError(f"expected {what} in JSON, found: {reason}") from None
    if not isinstance(content, dict):
        raise InputError(f"expected {what}, a JSON object, found {type(content).__name__}")
    return content


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        twice = collections.Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise InputError(f"expected each name once, found {twice[:80]!r} twice")
    return content


def checked_name(name: str) -> str:
    """Return a tensor's name from a file. Raises InputError when it is too long."""
    if len(name) > _LONGEST_NAME:
        raise InputError(f"expected names of at most {_LONGEST_NAME} characters, found {name[:80]!r}...")
    return name


def checked_shape(shape: Any, what: str) -> tuple[int, ...]:
    """Return a shape from a file as a tuple. Raises InputError, naming `what`, when no array can have it."""
    sizes = tuple(shape) if isinstance(shape, list | tuple) else (None,)
    if not all(type(size) is int and 0 <= size < 2**48 for size in sizes) or len(sizes) > _MOST_AXES:
        raise InputError(f"{what}: expected a shape of non-negative integers, found {repr(shape)[:80]}")
    if math.prod(max(1, size) for size in sizes) >= 2**58:
        raise InputError(f"{what}: expected a shape that fits into memory, found {list(sizes)}")
    return sizes


def pieces(array: np.ndarray) -> Iterator[memoryview]:
    """Yield the bytes of an array in C order: at once if it is contiguous, else some rows at a time."""
    if array.flags.c_contiguous:
        yield memoryview(array.reshape(-1).view(np.uint8))
        return
    rows = max(1, _CHUNK * len(array) // array.nbytes)
    for start in range(0, len(array), rows):
        yield memoryview(np.ascontiguousarray(array[start : start + rows]).reshape(-1).view(np.uint8))
