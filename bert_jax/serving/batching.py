"""The queue of rows that wait for one model, and the choice of the next batch among the model's static shapes."""

import asyncio
import dataclasses
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

PATIENCE = 0.1  # seconds after which the oldest row goes into the next batch, even if other rows would fill it better
_FIRST_RATE = 20_000.0  # assumed tokens/s before any shape was measured; only the ratios between shapes matter
_OVERHEAD = 64  # assumed fixed cost of a forward pass in tokens, before any shape was measured
_SMOOTHING = 0.2  # weight of the newest measurement in the mean
BRIEF = 8  # a brief batch, short enough for short requests to wait for, has 1 / BRIEF of the tokens of a full one
_FIRST_TOKENS = 256  # maximum padded tokens of a short request; short requests run before long ones
_IN_A_ROW = 3  # batches of the lowest level before one with the oldest row, so that long requests finish too


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
        masked_position: position whose masked-LM logits to return; 0 for other heads.
        pooling_skip: number of leading tokens that are not pooled, in a model that does not pool prompts.
    """

    input_ids: np.ndarray
    token_type_ids: np.ndarray
    masked_position: int = 0
    pooling_skip: int = 0

    @property
    def size(self) -> int:
        """Return the number of tokens."""
        return len(self.input_ids)


def blank_row(size: int) -> Row:
    """Return a row of `size` tokens of id 0."""
    return Row(np.zeros(size, np.int32), np.zeros(size, np.int32))


@dataclasses.dataclass(slots=True, eq=False)
class Submission:
    """The rows of one request.

    Attributes:
        rows: the rows.
        future: resolved with `outputs`, in the event loop.
        submitted: time (`time.monotonic`) at which it was queued.
        begun: time at which its first row was put into a batch; 0 before that.
        dropped: whether the client is gone; its waiting rows are then left out of batches.
        levels: level -> number of tokens in its waiting rows.
        outputs: the output of each row, once computed.
        left: number of rows without an output.
        waiting: number of rows that are in no batch yet.
        waiting_tokens: number of tokens in these rows.
    """

    rows: Sequence[Row]
    future: "asyncio.Future[list[np.ndarray]]"
    submitted: float
    begun: float = 0.0
    dropped: bool = False
    levels: Counter[int] = dataclasses.field(default_factory=Counter)
    outputs: list[np.ndarray | None] = dataclasses.field(init=False)
    left: int = dataclasses.field(init=False)
    waiting: int = dataclasses.field(init=False)
    waiting_tokens: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.outputs = [None] * len(self.rows)
        self.left = self.waiting = len(self.rows)
        self.waiting_tokens = sum(row.size for row in self.rows)


class Waiting(NamedTuple):
    """A row in a queue: its request, its number in the request, and its level."""

    submission: Submission
    number: int
    level: int


def level_of(before: int, total: int) -> int:
    """Return the level of a row: 0 in a short request; in a long one it grows with the tokens before the row.

    Rows of a lower level run first, so that a request with one text does not wait for another with thousands.

    Args:
        before: number of padded tokens of the request before the row.
        total: number of padded tokens of the request.
    """
    return 0 if total <= _FIRST_TOKENS else 1 + (before // _FIRST_TOKENS).bit_length()


def padding_to(shape: Shape, rows: Sequence[Row]) -> int:
    """Return the number of padding tokens when rows are padded to a shape."""
    return shape.rows * shape.length - sum(row.size for row in rows)


def _assumed_seconds(shape: Shape) -> float:
    return (shape.rows * shape.length + _OVERHEAD) / _FIRST_RATE


class RowBatch(NamedTuple):
    """Rows for one forward pass, with its shape."""

    shape: Shape
    rows: list[Waiting]

    @property
    def tokens(self) -> int:
        """Return the number of tokens without padding."""
        return sum(item.submission.rows[item.number].size for item in self.rows)


class Queue:
    """The waiting rows of one model, by padded length. Not thread-safe: the scheduler holds a lock.

    Args:
        shapes: the static shapes of the model.
        batch_invariant: whether a row is computed only in the shape of its own padded length, so that its output is
            bitwise independent of other requests.
        brief_tokens: maximum tokens in a brief batch, for which short requests may wait; None = any number.

    Attributes:
        clock: seconds of device time that the model has used, for fair turns between models.
        tokens: number of waiting tokens.
        rate: measured tokens/s without padding; 0 = not measured yet.
    """

    def __init__(self, shapes: Sequence[Shape], batch_invariant: bool = False, brief_tokens: int | None = None):
        self.shapes = tuple(shapes)
        brief = [shape for shape in shapes if shape.rows == 1 or shape.rows * shape.length <= (brief_tokens or 0)]
        self._brief = tuple(brief) if brief_tokens and not batch_invariant else self.shapes
        self._batch_invariant = batch_invariant
        self.lengths = sorted({shape.length for shape in shapes})
        self._buckets: dict[int, dict[int, deque[Waiting]]] = {length: {} for length in self.lengths}  # then by level
        self._in_a_row = 0  # consecutive batches of the lowest level while an older row of another level waited
        self._seconds: dict[Shape, float] = {}  # shape -> measured seconds
        self._slowness = 1.0  # mean ratio of measured to assumed time, which scales assumed times of other shapes
        self.clock = self.rate = 0.0
        self.tokens = 0
        self._levels: Counter[int] = Counter()  # level -> number of waiting tokens

    def __bool__(self) -> bool:
        return self.tokens > 0

    def add(self, submission: Submission) -> None:
        """Queue the rows of a request; each row fits the longest padded length."""
        lengths = [next(length for length in self.lengths if length >= row.size) for row in submission.rows]
        before, total = 0, sum(lengths)
        for number, (row, length) in enumerate(zip(submission.rows, lengths, strict=True)):
            level = level_of(before, total)
            self._buckets[length].setdefault(level, deque()).append(Waiting(submission, number, level))
            submission.levels[level] += row.size
            before += length
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
        """Return the number of waiting tokens that run before the last row of a new request of `tokens` tokens."""
        most = level_of(tokens, tokens)
        return sum(count for level, count in self._levels.items() if level <= most)

    @property
    def has_long(self) -> bool:
        """Return whether any rows of long requests are waiting."""
        return self.tokens > self._levels[0]

    def take(self, now: float, brief: bool = False) -> RowBatch | None:
        """Remove and return the next batch; None if no row waits.

        Rows of the lowest level run first, except after `_IN_A_ROW` batches that left older rows waiting. The shape is
        the one with the most tokens per second; if a row of that level has waited longer than `PATIENCE`, only shapes
        of its length count. Rows of other levels, and shorter rows unless the queue is batch invariant, fill the rest
        of the batch.

        Args:
            now: the time (`time.monotonic`).
            brief: whether short requests may come while long ones run. Then the shape for short ones is chosen by their
                rows alone, and long ones run in brief batches.
        """
        heads = self._heads()
        if not heads:
            return None
        level, oldest_level = min(level for _, level in heads), min(heads, key=lambda key: heads[key].submitted)[1]
        self._in_a_row = self._in_a_row + 1 if level != oldest_level else 0
        if self._in_a_row > _IN_A_ROW:
            level, self._in_a_row = oldest_level, 0
        waiting = [length for length, other in heads if other == level]
        oldest = min(waiting, key=lambda length: heads[length, level].submitted)
        if now - heads[oldest, level].submitted > PATIENCE:
            waiting = [oldest]
        shapes = self._brief if brief and level > 0 else self.shapes
        highest = 0 if brief and level == 0 else None
        shape = max((shape for shape in shapes if shape.length in waiting),
                    key=lambda shape: self._expected_rate(shape, highest))  # fmt: skip
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
        """Record how long a batch took, for the choice of shapes and for `rate`."""
        seconds = max(seconds, 1e-6)
        self.clock += seconds
        slowness = seconds / _assumed_seconds(shape)
        self._slowness += (_SMOOTHING if self._seconds else 1.0) * (slowness - self._slowness)
        old = self._seconds.get(shape, seconds)
        self._seconds[shape] = old + _SMOOTHING * (seconds - old)
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

    def _expected_rate(self, shape: Shape, highest: int | None) -> float:
        """Return the tokens per second of a batch of this shape, with rows counted at their padded lengths.

        Args:
            shape: the shape.
            highest: the highest level whose rows are counted; None = rows of all levels.
        """
        free, tokens = shape.rows, 0
        for length in self._lengths_in(shape):
            buckets = self._buckets[length]
            count = min(free, sum(len(buckets[level]) for level in buckets if highest is None or level <= highest))
            free -= count
            tokens += count * length
        return tokens / (self._seconds.get(shape) or self._slowness * _assumed_seconds(shape))


def static_shapes(
    max_length: int, tokens: int, batch_invariant: bool = False, brief_tokens: int | None = None
) -> tuple[Shape, ...]:
    """Return the static shapes of a model: for each padded length a single row, a brief batch and a full one.

    Args:
        max_length: maximum tokens in an input of the model.
        tokens: tokens in a full batch.
        brief_tokens: tokens in a brief batch, for which short requests may wait; None = no such shapes.
        batch_invariant: whether to have full batches only, as outputs of other shapes differ in their last bits.
    """
    lengths = [length for power in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
               for length in (power, power // 2 * 3) if length < max_length]  # fmt: skip
    lengths.append(max_length)
    sizes = [tokens] if batch_invariant else [1, min(brief_tokens or 1, tokens), tokens]
    return tuple(sorted({Shape(max(1, size // length), length) for length in lengths for size in sizes}))
