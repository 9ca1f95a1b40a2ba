"""Rows of tokens that wait for one model, and the choice of the next batch among its static shapes."""

import asyncio
import dataclasses
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

PATIENCE = 0.1  # seconds after which the oldest row is in the next batch, whatever else would fill a batch better
_FIRST_RATE = 20_000.0  # assumed tokens/s of a shape before it was measured; only the ratios between shapes matter
_OVERHEAD = 64  # tokens that take as long as the fixed cost of a forward pass, before it was measured
_SMOOTHING = 0.2  # weight of the newest measurement in the mean
_FIRST_TOKENS = 256  # tokens of a request that come before the later ones of all long requests
_OLDEST = 4  # one of this many batches has the oldest row, so that long requests end too


class Shape(NamedTuple):
    """A static shape of a forward pass: number of rows, and padded length in tokens."""

    rows: int
    length: int


@dataclasses.dataclass(slots=True, eq=False)
class Row:
    """One row of model input.

    Attributes:
        input_ids: int32 `[S]`, with special tokens.
        token_type_ids: int32 `[S]`.
        masked_position: position whose masked-LM logits are wanted; 0 for other heads.
    """

    input_ids: np.ndarray
    token_type_ids: np.ndarray
    masked_position: int = 0

    @property
    def size(self) -> int:
        """Return the number of tokens."""
        return len(self.input_ids)


def blank_row(size: int) -> Row:
    """Return a row of `size` tokens of id 0."""
    return Row(np.zeros(size, np.int32), np.zeros(size, np.int32))


class Submission:
    """The rows of one request.

    Attributes:
        rows: the rows.
        outputs: the output of each row, once computed.
        future: resolved with `outputs`, in the event loop.
        submitted: time (`time.monotonic`) at which it was queued.
        begun: time at which its first row was in a batch; 0 before.
        left: number of rows without an output.
        waiting: number of rows that are in no batch yet.
        waiting_tokens: their tokens.
        levels: level -> their tokens.
        dropped: whether the client is gone; its waiting rows are left out of batches.
    """

    __slots__ = (
        "begun",
        "dropped",
        "future",
        "left",
        "levels",
        "outputs",
        "rows",
        "submitted",
        "waiting",
        "waiting_tokens",
    )

    def __init__(self, rows: Sequence[Row], future: "asyncio.Future[list[np.ndarray]]", submitted: float):
        self.rows, self.future, self.submitted = rows, future, submitted
        self.outputs: list[np.ndarray | None] = [None] * len(rows)
        self.left = self.waiting = len(rows)
        self.waiting_tokens = sum(row.size for row in rows)
        self.levels: Counter[int] = Counter()
        self.begun = 0.0
        self.dropped = False


class Waiting(NamedTuple):
    """A row in a queue: the request that it belongs to, its number there, and its level."""

    submission: Submission
    number: int
    level: int


def level_of(tokens: int) -> int:
    """Return the level of a row that comes after this many tokens of its request: 0 for the first ones.

    Rows of a lower level run first. So a request of a text does not wait for the thousands of texts of another one.
    """
    return (tokens // _FIRST_TOKENS).bit_length()


def padding_to(shape: Shape, rows: Sequence[Row]) -> int:
    """Return the number of padding tokens where rows are padded to a shape."""
    return shape.rows * shape.length - sum(row.size for row in rows)


class RowBatch(NamedTuple):
    """Rows for one forward pass, with its shape."""

    shape: Shape
    rows: list[Waiting]

    @property
    def tokens(self) -> int:
        """Return the number of tokens without padding."""
        return sum(item.submission.rows[item.number].size for item in self.rows)


class Queue:
    """The waiting rows of one model, by padded length. Not safe for threads: the scheduler holds a lock.

    Args:
        shapes: the static shapes of the model.
        batch_invariant: whether a row is computed only in the shape of its own padded length, so that its output is
            bitwise independent of other requests.

    Attributes:
        clock: seconds of device time that the model has used, for fair turns between models.
        tokens: number of waiting tokens.
        rate: measured tokens/s without padding; 0 = not measured yet.
    """

    def __init__(self, shapes: Sequence[Shape], batch_invariant: bool = False):
        self.shapes = tuple(shapes)
        self._batch_invariant = batch_invariant
        self.lengths = sorted({shape.length for shape in shapes})
        self._buckets: dict[int, dict[int, deque[Waiting]]] = {length: {} for length in self.lengths}  # by level
        self._batches = 0
        self._seconds = {s: (s.rows * s.length + _OVERHEAD) / _FIRST_RATE for s in shapes}
        self._measured: set[Shape] = set()
        self.clock = self.rate = 0.0
        self.tokens = 0
        self._levels: Counter[int] = Counter()  # waiting tokens

    def __bool__(self) -> bool:
        return self.tokens > 0

    def add(self, submission: Submission) -> None:
        """Queue the rows of a request; each row fits the longest padded length."""
        before = 0
        for number, row in enumerate(submission.rows):
            length = next(length for length in self.lengths if length >= row.size)
            level = level_of(before)
            self._buckets[length].setdefault(level, deque()).append(Waiting(submission, number, level))
            submission.levels[level] += row.size
            before += row.size
        self.tokens += submission.waiting_tokens
        self._levels.update(submission.levels)

    def drop(self, submission: Submission) -> None:
        """Leave the waiting rows of a request out of all later batches."""
        if not submission.dropped:
            submission.dropped = True
            self.tokens -= submission.waiting_tokens
            self._levels.subtract(submission.levels)
            submission.waiting = submission.waiting_tokens = 0

    def tokens_before(self, tokens: int) -> int:
        """Return the number of waiting tokens that run before the last row of a new request of so many tokens."""
        most = level_of(tokens)
        return sum(count for level, count in self._levels.items() if level <= most)

    def take(self, now: float) -> RowBatch | None:
        """Remove and return the next batch; None if no row waits.

        Rows of the lowest level run first, except in one of `_OLDEST` batches. The shape is the one with the most
        tokens per second, unless a row of that level has waited longer than `PATIENCE`: then it is the best one for
        that row. Free rows of a batch are filled with others and with shorter ones, unless the batch is invariant.
        """
        heads = self._heads()
        if not heads:
            return None
        self._batches += 1
        level = min(level for _, level in heads)
        if self._batches % _OLDEST == 0 and any(other != level for _, other in heads):
            level = min(heads, key=lambda key: heads[key].submitted)[1]
        waiting = [length for length, other in heads if other == level]
        oldest = min(waiting, key=lambda length: heads[length, level].submitted)
        if now - heads[oldest, level].submitted > PATIENCE:
            waiting = [oldest]
        shape = max((shape for shape in self.shapes if shape.length in waiting), key=self._expected_rate)
        rows: list[Waiting] = []
        for length in self._lengths_in(shape):
            buckets = self._buckets[length]
            for each in sorted(buckets, key=lambda other: (other != level, other)):
                bucket = buckets[each]
                while bucket and len(rows) < shape.rows:
                    item = bucket.popleft()
                    if not item.submission.dropped:
                        self._mark_begun(item, now)
                        rows.append(item)
        return RowBatch(shape, rows)

    def _heads(self) -> dict[tuple[int, int], Submission]:
        """Return (length, level) -> the request of the first row that waits there."""
        heads = {}
        for length, buckets in self._buckets.items():
            for level, bucket in list(buckets.items()):
                while bucket and bucket[0].submission.dropped:
                    bucket.popleft()
                if bucket:
                    heads[length, level] = bucket[0].submission
                else:
                    del buckets[level]
        return heads

    def measured(self, shape: Shape, tokens: int, seconds: float) -> None:
        """Note how long a batch took, for the choice of shapes and for `rate`."""
        seconds = max(seconds, 1e-6)
        self.clock += seconds
        old = self._seconds[shape] if shape in self._measured else seconds
        self._seconds[shape] = old + _SMOOTHING * (seconds - old)
        self._measured.add(shape)
        rate = tokens / seconds
        self.rate = self.rate + _SMOOTHING * (rate - self.rate) if self.rate else rate

    def _mark_begun(self, item: Waiting, now: float) -> None:
        submission = item.submission
        size = submission.rows[item.number].size
        submission.waiting -= 1
        submission.waiting_tokens -= size
        submission.levels[item.level] -= size
        self._levels[item.level] -= size
        submission.begun = submission.begun or now
        self.tokens -= size

    def _lengths_in(self, shape: Shape) -> list[int]:
        """Return the padded lengths whose rows may be in a batch of this shape, the longest first."""
        if self._batch_invariant:
            return [shape.length]
        return [length for length in reversed(self.lengths) if length <= shape.length]

    def _expected_rate(self, shape: Shape) -> float:
        """Return the tokens per second of a batch of this shape, with rows counted at their padded lengths."""
        free, tokens = shape.rows, 0
        for length in self._lengths_in(shape):
            count = min(free, sum(map(len, self._buckets[length].values())))
            free -= count
            tokens += count * length
        return tokens / self._seconds[shape]


def static_shapes(max_length: int, tokens: int, batch_invariant: bool = False) -> tuple[Shape, ...]:
    """Return the static shapes of a model: for each padded length a single row, and a full batch.

    Args:
        max_length: most tokens in an input of the model.
        tokens: tokens in a full batch.
        batch_invariant: whether to leave out the single rows, whose outputs differ in their last bits.
    """
    lengths = [length for power in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
               for length in (power, power // 2 * 3) if length < max_length]  # fmt: skip
    lengths.append(max_length)
    smallest = set() if batch_invariant else {1}
    return tuple(sorted({Shape(rows, length) for length in lengths for rows in smallest | {max(1, tokens // length)}}))
