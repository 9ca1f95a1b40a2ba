"""Token features of labelled texts in memory, and batches of a few static lengths made from them.

Every distinct batch shape costs a compilation and every padded token costs arithmetic, so batches are made of rows of
about one length and padded to one of at most a handful of lengths that the data itself chooses.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.labels import (
    MAX_CLASSES,
    Cell,
    Labelling,
    LabelRules,
    check_count,
    is_missing,
    ordered,
    read_cell,
    shown,
)
from bert_jax.data.finetuning.records import table_name
from bert_jax.data.finetuning.tables import Example, read_examples
from bert_jax.data.finetuning.windows import text_windows
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows, check_texts, number_of, place
from bert_jax.errors import InputError, logger
from bert_jax.tokenization import Tokenizer

_log = logger(__name__)
_CHUNK = 8192  # texts tokenised at a time: enough for every thread, few enough for memory


class Paddable(Protocol):
    """Tokenised examples from which batches are cut."""

    @property
    def lengths(self) -> np.ndarray:
        """int64 `[n]`, tokens that each example needs its batch to be padded to."""
        ...

    def __len__(self) -> int: ...

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """The batch of the examples `index` [B], padded to `length`; an index of -1 makes a row of weight 0."""
        ...


class Packable(Paddable, Protocol):
    """Tokenised examples of which several may share a row.

    Attributes:
        token_fills: arrays of a batch that have a value for each token, besides `input_ids` -> that of padding.
    """

    token_fills: ClassVar[Mapping[str, int]]


@dataclasses.dataclass(frozen=True, eq=False)
class Features:
    """Tokenised examples as one ragged array.

    Attributes:
        tokens: int32 `[total]`, the sequences ([CLS] A [SEP] or [CLS] A [SEP] B [SEP]) one after the other.
        starts: int64 `[n + 1]`, where each begins, and the end.
        first: int32 `[n]`, how many of its tokens are in segment 0.
        labels: `[n]`, int32 classes or float32 targets, or float32 `[n, C]`, 1 for each class that a text belongs to;
            zeros where there are none.
    """

    tokens: np.ndarray
    starts: np.ndarray
    first: np.ndarray
    labels: np.ndarray

    token_fills: ClassVar[Mapping[str, int]] = {"token_type_ids": 0}

    def __len__(self) -> int:
        return len(self.first)

    @property
    def num_examples(self) -> int:
        """Rows of the table that they come from."""
        return len(self)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """int64 `[n]`, tokens of each sequence."""
        return np.diff(self.starts)

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """The batch of the examples `index` [B], padded to `length`; an index of -1 makes a row of weight 0."""
        real = index >= 0
        row = np.where(real, index, 0)
        positions = np.arange(length)
        mask = positions < np.where(real, self.lengths[row], 0)[:, None]
        tokens = self.tokens[np.minimum(self.starts[row][:, None] + positions, len(self.tokens) - 1)]
        return {
            "input_ids": np.where(mask, tokens, pad_id).astype(np.int32),
            "attention_mask": mask.astype(np.int32),
            "token_type_ids": (mask & (positions >= self.first[row][:, None])).astype(np.int32),
            "labels": np.where(real.reshape(-1, *[1] * (self.labels.ndim - 1)), self.labels[row], 0).astype(
                self.labels.dtype
            ),
            "example_weights": real.astype(np.float32),
        }


@dataclasses.dataclass(frozen=True, eq=False)
class WindowFeatures(Features):
    """Windows of texts as one ragged array, each with the label of its text.

    Attributes:
        documents: int32 `[n]`, the number of the text that each window is of.
    """

    documents: np.ndarray

    @property
    def num_examples(self) -> int:
        return int(self.documents[-1]) + 1

    @functools.cached_property
    def shares(self) -> np.ndarray:
        """float32 `[n]`, the share of each window in its text: one over their number."""
        return (1 / np.bincount(self.documents)[self.documents]).astype(np.float32)

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """As `Features.pad`; a window weighs its share, and `documents` int32 [B] is added, -1 in rows of weight 0."""
        real = index >= 0
        return super().pad(index, length, pad_id) | {
            "documents": np.where(real, self.documents[index], -1).astype(np.int32),
            "example_weights": np.where(real, self.shares[index], 0).astype(np.float32),
        }


def encode(
    tokenizer: Tokenizer, rows: Sequence[Example], labels: np.ndarray, max_length: int, stride: int | None = None
) -> Features:
    """Tokenises `rows`. A sequence over `max_length` tokens loses the end of its longer text or, where a `stride` is
    given, becomes windows, each that number of tokens after the one before it (`windows.text_windows`).

    Raises:
        InputError: windows over pairs of texts.
    """
    if stride is not None:
        return _encode_windows(tokenizer, rows, labels, max_length, stride)
    parts = []
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        pairs = None if chunk[0].pair is None else [row.pair or "" for row in chunk]
        batch = tokenizer([row.text for row in chunk], pairs, max_length=max_length)
        mask = batch["attention_mask"] > 0
        parts.append((batch["input_ids"][mask], mask.sum(1), (mask & (batch["token_type_ids"] == 0)).sum(1)))
    tokens, lengths, first = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Features(tokens, np.concatenate([[0], np.cumsum(lengths)]), first.astype(np.int32), labels)


def _encode_windows(
    tokenizer: Tokenizer, rows: Sequence[Example], labels: np.ndarray, max_length: int, stride: int
) -> WindowFeatures:
    if rows[0].pair is not None:
        raise InputError("expected single texts to read in windows, found pairs of texts, which can only be cut")
    tokens, lengths, documents = [], [], []
    for start in range(0, len(rows), _CHUNK):
        ids = tokenizer.encode_batch([row.text for row in rows[start : start + _CHUNK]])
        windows, numbers = text_windows(ids, tokenizer.layout, max_length, stride)
        lengths += [len(window) for window in windows]
        tokens.append(np.fromiter(itertools.chain.from_iterable(windows), np.int32))
        documents.append(start + numbers)
    starts, document = np.concatenate([[0], np.cumsum(lengths)]), np.concatenate(documents)
    return WindowFeatures(
        np.concatenate(tokens), starts, np.array(lengths, np.int32), labels[document], document.astype(np.int32)
    )


def read_labelled(
    spec: Any,
    columns: Columns,
    names: Sequence[str] | None,
    regression: bool,
    bad: InvalidRows | None = None,
    rules: LabelRules = LabelRules(),  # noqa: B008 (frozen)
) -> tuple[list[Example], tuple[str, ...]]:
    """The rows of a labelled table, each with something to read and a label that can be learned or scored.

    Args:
        spec: what `read_examples` takes.
        columns: text, maybe pair, and label; with a separator, a row may have several labels.
        names: the labels that there may be, in the order of their classes; None to take those found, sorted.
        regression: whether labels are numbers; then there are no names.
        bad: what becomes of rows that do not fit; None: they are an error.
        rules: how to treat labels that are probably not meant as classes.

    Returns:
        The rows, the label of each as its class is named (several with the separator between), and the names.

    Raises:
        InputError: as `read_examples`, or rows with an empty text, an unknown label, or one that is no number; or there
            are fewer than two labels, or so many that they are no classes.
    """
    bad = bad or InvalidRows(table_name(spec))
    spec, table = table_name(spec), spec
    columns = dataclasses.replace(columns, optional_label=rules.missing == "drop")
    seen: set[str] = set()

    def checked(row: Example) -> tuple[Example, Cell]:
        where = place(spec, row.line)
        check_texts(where, texts_of(row, columns))
        label = row.label or ""
        if regression:
            if not (columns.optional_label and is_missing(label)):
                number_of(where, label)
            return row, Cell((label.strip(),), False)
        cell = read_cell(where, label, columns)
        if not columns.separator and cell.labels == ("",) and not columns.optional_label:
            raise InvalidRow(f"{where}: expected a label, found an empty column", "an empty label")
        seen.update(cell.labels)
        if len(seen) > MAX_CLASSES and names is None:
            check_count(spec, seen, len(seen), columns)
        return row, cell

    read = list(bad.kept(bad.each(read_examples(table, columns, bad), checked)))
    if regression:
        return _with_numbers(spec, bad, read), ()
    labelling = Labelling(spec, [cell for _, cell in read], columns, rules, names)
    dropped: collections.Counter[str] = collections.Counter()

    def labelled(found: tuple[Example, Cell]) -> Example | None:
        row, cell = found
        labels = labelling.labels_of(place(spec, row.line), cell)
        if labels is None:
            dropped[cell.labels[0] if cell.labels else ""] += 1
            return None
        label = columns.separator.join(labels)
        return row if label == row.label else row._replace(label=label)

    rows = [row for row in bad.fitting(bad.each(read, labelled)) if row is not None]
    if labelling.names is not None:
        labelling.warn({}, dropped)
        return _checked_any(spec, rows), labelling.names
    counts = collections.Counter(label for row in rows for label in _labels(row, columns))
    counts.update(dict.fromkeys(map(str, range(labelling.width)), 0))
    check_count(spec, counts, len(rows), columns)
    if len(counts) < 2:
        found = f"only {shown(sorted(counts))}" if counts else "none"
        raise InputError(f"{spec}: expected at least two labels, found {found}")
    labelling.warn(counts, dropped)
    return rows, ordered(counts)


def _with_numbers(spec: str, bad: InvalidRows, read: Sequence[tuple[Example, Cell]]) -> list[Example]:
    """The rows whose label is a number; the others, which `checked` let through, are left out."""
    rows = list(bad.fitting(row for row, _ in read))
    kept = [row for row in rows if not is_missing(row.label or "")]
    if len(kept) < len(rows):
        _log.warning("%s: left out %s rows without a label", spec, f"{len(rows) - len(kept):,}")
    return _checked_any(spec, kept)


def _checked_any(spec: str, rows: list[Example]) -> list[Example]:
    if not rows:
        raise InputError(f"{spec}: expected at least one row with a label, found none")
    return rows


def texts_of(row: Example, columns: Columns) -> dict[str, str]:
    """The texts of a row by the names of their columns."""
    return {columns.text: row.text} | ({} if row.pair is None else {columns.pair: row.pair})


def labels_of(rows: Sequence[Example], columns: Columns, names: Sequence[str]) -> np.ndarray:
    """The labels of rows that `read_labelled` has checked, as `Features` has them; numbers where there are no names."""
    if not names:
        return np.array([float(row.label or "") for row in rows], np.float32)
    number = {name: i for i, name in enumerate(names)}
    if not columns.separator:
        return np.array([number[row.label or ""] for row in rows], np.int32)
    labels = np.zeros((len(rows), len(names)), np.float32)
    for i, row in enumerate(rows):
        labels[i, [number[name] for name in _labels(row, columns)]] = 1
    return labels


def count_classes(rows: Sequence[Example], columns: Columns, names: Sequence[str]) -> dict[str, int]:
    """Class -> number of rows of `read_labelled` that have it; empty where there are no classes."""
    counts = collections.Counter(label for row in rows for label in _labels(row, columns)) if names else {}
    return {name: counts[name] for name in names}


def _labels(row: Example, columns: Columns) -> list[str]:
    if not columns.separator:
        return [row.label or ""]
    return [label.strip() for label in (row.label or "").split(columns.separator) if label.strip()]


def choose_buckets(
    lengths: np.ndarray, limit: int, *, most: int = 6, multiple: int = 8, least_gain: float = 0.02
) -> tuple[int, ...]:
    """The padded lengths that waste least when each sequence is padded to the next of them.

    Exact, by dynamic programming over the histogram of `lengths` [n]. One more length is added only while it saves
    `least_gain` of the tokens, since it also costs a compilation.

    Args:
        lengths: tokens of each sequence.
        limit: the longest that a sequence may be, in tokens.
        most: how many lengths at most.
        multiple: each is a multiple of it, the limit aside.
        least_gain: share of the padded tokens that one more length must save.
    """
    counts = np.bincount(-(-np.asarray(lengths) // multiple))
    total, top = np.cumsum(counts), len(counts) - 1
    # cost[k][j]: fewest padded tokens, in multiples, of all sequences up to j when k lengths end with j.
    cost = [np.where(np.arange(top + 1) == 0, 0.0, np.inf)]
    came_from = []
    for k in range(1, most + 1):
        step = cost[-1][:, None] + (total[None, :] - total[:, None]) * np.arange(top + 1)
        step[np.tril_indices(top + 1)] = np.inf
        came_from.append(step.argmin(0))
        cost.append(step.min(0))
        if k > 1 and cost[k][top] > (1 - least_gain) * cost[k - 1][top]:
            came_from.pop()
            break
    buckets, j = [], top
    for previous in reversed(came_from):
        buckets.append(min(int(j) * multiple, limit))
        j = previous[j]
    return tuple(reversed(buckets))


def few_buckets(lengths: np.ndarray, limit: int) -> tuple[int, ...]:
    """The padded lengths for rows that are seen once or seldom: compiling a shape costs as much as hundreds of them."""
    return choose_buckets(lengths, limit, most=3, least_gain=0.1)


def buckets_of(given: tuple[int, ...], lengths: np.ndarray, limit: int) -> tuple[int, ...]:
    """The padded lengths of a recipe, and one for longer texts where these do not fit; chosen when it names none."""
    if not given:
        return choose_buckets(lengths, limit)
    longest = int(lengths.max())
    return (*sorted(set(given)), *((longest,) if longest > max(given) else ()))


class TrainSource:
    """Shuffled batches of rows of similar length, for ever; `batch` is a pure function of (seed, step).

    Each epoch is a seeded permutation. It is dealt to the buckets; each bucket is cut into batches, and what is left of
    one joins the next longer one. So every epoch has the same number of batches of each shape and holds each example
    exactly once. The one batch that is not full (in the longest bucket) is filled with rows of weight 0. Then the order
    of the batches is shuffled.
    """

    def __init__(self, features: Paddable, batch_size: int, buckets: Sequence[int], pad_id: int, seed: int):
        self.features, self.batch_size, self.buckets = features, batch_size, tuple(buckets)
        self._pad_id, self._seed = pad_id, seed
        self._bucket_of = np.searchsorted(self.buckets, features.lengths)
        # Random access with the epochs in hand that a prefetching reader alternates between.
        self._plan = functools.lru_cache(maxsize=2)(self._make_plan)

    @property
    def num_examples(self) -> int:
        """Examples in an epoch."""
        return len(self.features)

    @property
    def steps_per_epoch(self) -> int:
        """Batches in an epoch, the one that is not full included."""
        return -(-len(self.features) // self.batch_size)

    def batch(self, step: int, rows: slice | np.ndarray = slice(None)) -> Batch:
        """The rows `rows` of the global batch of `step`; its padded length is that of the global batch."""
        index, lengths = self._plan(step // self.steps_per_epoch)
        at = step % self.steps_per_epoch
        return self.features.pad(index[at][rows], lengths[at], self._pad_id)

    def shapes(self) -> dict[int, int]:
        """Padded length -> batches of that length in an epoch."""
        values, counts = np.unique(self._plan(0)[1], return_counts=True)
        return dict(zip(values.tolist(), counts.tolist(), strict=True))

    def _make_plan(self, epoch: int) -> tuple[np.ndarray, list[int]]:
        """Example index of each row `[steps, B]` (-1 fills up) and the padded length of each batch."""
        random = np.random.default_rng([self._seed, epoch])
        order = random.permutation(len(self.features))
        buckets = self._bucket_of[order]
        batches, lengths, left = [], [], np.empty(0, order.dtype)
        for number, length in enumerate(self.buckets):
            pool = np.concatenate([left, order[buckets == number]])
            full = len(pool) // self.batch_size
            batches.append(pool[: full * self.batch_size].reshape(full, self.batch_size))
            lengths += [length] * full
            left = pool[full * self.batch_size :]
        if len(left):
            batches.append(np.pad(left, (0, self.batch_size - len(left)), constant_values=-1)[None])
            lengths.append(self.buckets[-1])
        shuffled = random.permutation(len(lengths))
        return np.concatenate(batches)[shuffled], [lengths[i] for i in shuffled]


class EvalSource:
    """All examples exactly once, sorted by length; the last batch is filled with rows of weight 0.

    Attributes:
        num_batches: how many.
        order: int64 `[n]`, the example at each place; `original[order] = np.concatenate(outputs)[:n]` restores.
    """

    def __init__(self, features: Paddable, batch_size: int, buckets: Sequence[int], pad_id: int):
        self._features, self._batch_size, self._pad_id = features, batch_size, pad_id
        self.order = np.argsort(features.lengths, kind="stable")
        self.num_batches = -(-len(features) // batch_size)
        longest = int(features.lengths.max())
        self._buckets = (*buckets, *((longest,) if longest > buckets[-1] else ()))

    @property
    def num_examples(self) -> int:
        """Examples in all batches together."""
        return len(self._features)

    def batch(self, i: int, rows: slice | np.ndarray = slice(None)) -> Batch:
        """The rows `rows` of batch `i`."""
        index = self.order[i * self._batch_size : (i + 1) * self._batch_size]
        length = self._buckets[int(np.searchsorted(self._buckets, self._features.lengths[index[-1]]))]
        index = np.pad(index, (0, self._batch_size - len(index)), constant_values=-1)
        return self._features.pad(index[rows], length, self._pad_id)

    def restore(self, outputs: Sequence[np.ndarray]) -> np.ndarray:
        """Per-batch outputs `[B, ...]` as one array `[n, ...]` in the order of the file."""
        together = np.concatenate(outputs)[: len(self.order)]
        original = np.empty_like(together)
        original[self.order] = together
        return original
