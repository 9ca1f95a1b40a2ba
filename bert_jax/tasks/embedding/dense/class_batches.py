"""Texts with classes, and batches with several rows of a class, for losses over the triplets of a batch."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.data.finetuning.batching import TrainSource
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.invalid_rows import place
from bert_jax.errors import InputError
from bert_jax.jobs import setup
from bert_jax.jobs.base import Job
from bert_jax.jobs.fine_tuning import hold_out, invalid_rows, negative_columns
from bert_jax.jobs.synthetic_rows import only_shapes
from bert_jax.metrics.retrieval import ranks_among
from bert_jax.recipes import Recipe
from bert_jax.tasks.embedding.text_pairs import PairRow

_LEAST_ROWS = 4  # rows of the smallest batch: two of each of two classes
_COMPARED = 1024  # texts that are compared with all texts at once


def read_rows_with_classes(recipe: Recipe, columns: Columns) -> tuple[list[PairRow], list[PairRow]]:
    """Read the training rows of a recipe, and its evaluation rows ([] = none), each a text with a class.

    They are rows of `read_pairs`, whose label is the number of the class among the sorted labels of the training data.

    Raises:
        InputError: as `bert_jax.data.finetuning.labelled_rows.read_labelled`.
    """
    from bert_jax.data.finetuning.labelled_rows import labels_of, read_labelled

    data, names = recipe.data, None

    def read(spec: str) -> tuple[list[PairRow], np.ndarray]:
        nonlocal names
        rows, names = read_labelled(spec, columns, names, regression=False, bad=invalid_rows(recipe, spec))
        numbers = labels_of(rows, columns, names)
        pairs = zip(rows, numbers.tolist(), strict=True)
        return [(row.line, {columns.text: row.text, columns.label: str(number)}) for row, number in pairs], numbers

    rows, held = hold_out(recipe, *read(data.train))
    return rows, read(data.dev)[0] if data.dev else held


def check_pair_labels(rows: Sequence[PairRow], data: Any) -> None:
    """Raise InputError for the first row of `read_pairs` whose label is neither 0 nor 1, with a loss that needs these.

    `data` is the data section of the recipe.
    """
    for line, values in rows if data.loss in ("contrastive", "online_contrastive") else ():
        if float(values[data.label_column]) not in (0, 1):
            expected = f"0 or 1 in column {data.label_column!r} for loss {data.loss!r}"
            found = values[data.label_column]
            raise InputError(f"{place(data.train, line)}: expected {expected}, found {found}")


def check_negatives(data: Any) -> None:
    """Raise InputError when a data section names columns of negatives, which a loss over classes does not read."""
    if negative := negative_columns(data):
        expected = f"() for loss {data.loss!r}, whose negatives are rows of other classes"
        raise InputError(f"config.data.negative_columns: expected {expected}, found {negative}")


class ClassSource(TrainSource):
    """Endless batches in which each class of a row has at least two rows; `batch` is a pure function of (seed, step).

    In each epoch the rows of a class are shuffled and paired. The classes take turns, in a random order of each round,
    and add a pair to the stream of rows that is cut into batches. The stream ends when only one class has pairs left;
    its other rows, and the last row of classes with an odd number, are left to other epochs. Each batch is padded to
    the bucket of its longest row.

    Args:
        source: batches of the same rows in any order.
        classes: int `[n]`, the class of each row.

    Raises:
        InputError: fewer than two classes have at least two rows, or the batch size is odd or below 4.
    """

    def __init__(self, source: TrainSource, classes: np.ndarray):
        if source.batch_size % 2 or source.batch_size < _LEAST_ROWS:
            expected = f"an even number of at least {_LEAST_ROWS} for a loss over the classes of a batch"
            raise InputError(f"config.global_batch_size: expected {expected}, found {source.batch_size}")
        super().__init__(source.features, source.batch_size, source.buckets, source._pad_id, source._seed)
        self._classes = classes
        members = [np.flatnonzero(classes == number) for number in np.unique(classes)]
        self._members = [rows for rows in members if len(rows) >= 2]
        if len(self._members) < 2:
            found = f"{len(self._members)} of {len(members)}"
            raise InputError(f"config.data.train: expected at least two classes with two rows or more, found {found}")
        pairs = sorted((len(rows) // 2 for rows in self._members), reverse=True)
        self._rounds = pairs[1]  # after these rounds, only one class may have pairs left
        self._rows = 2 * sum(min(count, self._rounds) for count in pairs)

    def resized(self, batch_size: int, buckets: Sequence[int]) -> "ClassSource":
        """Return a source of the same rows with another batch size and other buckets."""
        changed = ClassSource(TrainSource.resized(self, batch_size, buckets), self._classes)
        changed._values, changed._num_steps = self._values, self._num_steps
        return changed

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch, including an incomplete one of at least 4 rows."""
        full, left = divmod(self._rows, self.batch_size)
        return max(full + (left >= _LEAST_ROWS), 1)

    def _make_plan(self, epoch: int) -> tuple[np.ndarray, list[int]]:
        """Return the example index of each row `[steps, B]` (-1 is padding) and the padded length of each batch."""
        random = np.random.default_rng([self._seed, epoch])
        shuffled = [random.permutation(rows)[: 2 * min(len(rows) // 2, self._rounds)] for rows in self._members]
        pairs = np.concatenate([rows.reshape(-1, 2) for rows in shuffled])
        of_class = np.repeat(np.arange(len(shuffled)), [len(rows) // 2 for rows in shuffled])
        turns = np.concatenate([np.arange(len(rows) // 2) for rows in shuffled])
        order = np.lexsort((random.permutation(len(pairs)), turns))
        starts = np.flatnonzero(np.diff(turns[order])) + 1
        for start in starts:  # a class whose pairs followed each other could fill a batch of two pairs
            if of_class[order[start]] == of_class[order[start - 1]]:
                order[[start, start + 1]] = order[[start + 1, start]]
        rows = pairs[order].ravel()[: self.steps_per_epoch * self.batch_size]
        rows = np.pad(rows, (0, self.steps_per_epoch * self.batch_size - len(rows)), constant_values=-1)
        batches = rows.reshape(-1, self.batch_size)
        buckets = np.where(batches >= 0, self._bucket_of[batches], 0).max(1)
        return batches, [self.buckets[number] for number in buckets]


def with_class_batches(job: Job, recipe: Recipe, classes: np.ndarray) -> Job:
    """Return the job of a loss over classes, whose batches have several rows of a class.

    Args:
        job: the job.
        recipe: its resolved recipe.
        classes: int `[n]`, the class of each training row.
    """
    if only_shapes(recipe):
        return job
    assert isinstance(job.train_source, TrainSource)
    source = ClassSource(job.train_source, classes)
    steps = recipe.num_steps or setup.steps_of_epochs(recipe.num_epochs, source.steps_per_epoch)
    return dataclasses.replace(job, train_source=source, num_steps=steps)


def class_ranks(vectors: np.ndarray, classes: np.ndarray, similarity: str) -> np.ndarray:
    """Return the rank, from 1, of the nearest text of a text's own class among all other texts.

    Args:
        vectors: `[n, D]`.
        classes: `[n]`.
        similarity: as for `bert_jax.inference.similarity.similarities`.

    Returns:
        float64 `[m]`, for the m texts whose class has another text.

    Raises:
        InputError: no class has two texts.
    """
    from bert_jax.inference.similarity import comparable, compare

    _, numbers, counts = np.unique(classes, return_inverse=True, return_counts=True)
    kept, sides, ranks = np.flatnonzero(counts[numbers] > 1), comparable(similarity, vectors.astype(np.float64)), []
    if not len(kept):
        raise InputError(f"evaluation: expected a class with at least two texts, found {len(counts)} of one text each")
    for start in range(0, len(kept), _COMPARED):
        rows = kept[start : start + _COMPARED]
        scores = compare(similarity, sides[rows], sides)
        scores[np.arange(len(rows)), rows] = -np.inf  # a text is not among the others
        nearest = np.where(classes == classes[rows][:, None], scores, -np.inf).argmax(1)
        ranks.append(ranks_among(scores.__getitem__, nearest))
    return np.concatenate(ranks)
