"""Batches whose first texts, which are often short queries, are padded to a length of their own."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.data.batches import POOLING_MASK, TEXT_INPUTS, Batch
from bert_jax.data.finetuning.batching import TrainSource
from bert_jax.data.finetuning.groups import Groups
from bert_jax.jobs.base import Job
from bert_jax.jobs.synthetic_rows import only_shapes
from bert_jax.jobs.teaching import distillation_of
from bert_jax.recipes import Recipe

# Input of texts -> the name of the same input of the first text of each row.
QUERY_NAMES = {
    "input_ids": "query_ids", "attention_mask": "query_mask", "token_type_ids": "query_token_type_ids",
    POOLING_MASK: "query_pooling_mask",
}  # fmt: skip
_LEAST_SAVED = 0.1  # the share of tokens, padding included, that lengths of their own must save
_MULTIPLE = 8  # padded lengths, except the limit, are multiples of this number
_CANDIDATES = 48  # padded lengths of each kind among which the choice is optimal


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Padded lengths, in tokens, of the first texts of a batch and of its other texts."""

    query: int
    other: int


class QuerySource(TrainSource):
    """Endless shuffled batches; `batch` is a pure function of (seed, step), see `TrainSource`.

    The first text of each row is not in `input_ids` `[B, T - 1, S]` and the other inputs of this shape, but in
    `query_ids` `[B, Q]` and the others of `QUERY_NAMES`. `buckets` are the numbers of the lengths, from 0.

    Args:
        source: batches of the same rows, which are `Groups` or contain them.
        lengths: padded lengths of batches, each at least as long as the last; the last one has room for every row.
    """

    def __init__(self, source: TrainSource, lengths: Sequence[Lengths]):
        super().__init__(source.features, source.batch_size, source.buckets, source._pad_id, source._seed)
        self._values, self._num_steps = source._values, source._num_steps
        self.lengths = tuple(lengths)
        of_texts = text_lengths(source.features)
        query, other = of_texts[:, 0], of_texts[:, 1:].max(1)
        fits = [(query <= each.query) & (other <= each.other) for each in self.lengths]
        self._bucket_of = np.argmax(fits, axis=0)
        self.buckets = tuple(range(len(self.lengths)))

    def resized(self, batch_size: int, buckets: Sequence[int]) -> "QuerySource":
        """Return a source of the same rows with another batch size, and the lengths with the numbers `buckets`."""
        return QuerySource(TrainSource.resized(self, batch_size, buckets), [self.lengths[number] for number in buckets])

    def pad(self, index: np.ndarray, bucket: int) -> Batch:
        """Return the batch of the examples `index`, padded to the lengths with the number `bucket`."""
        lengths = self.lengths[bucket]
        batch = self.features.pad(index, max(lengths.query, lengths.other), self._pad_id)
        for name in TEXT_INPUTS:
            if name in batch:
                texts = batch[name]
                batch[name] = np.ascontiguousarray(texts[:, 1:, : lengths.other])
                batch[QUERY_NAMES[name]] = np.ascontiguousarray(texts[:, 0, : lengths.query])
        return batch


def queries_of(batch: Batch) -> Batch:
    """Return the inputs `[B, 1, Q]` of the first texts of a batch of `QuerySource`."""
    return {name: batch[own][:, None] for name, own in QUERY_NAMES.items() if own in batch}


def text_lengths(rows: Any) -> np.ndarray:
    """Return the tokens of each text of each row, int64 `[n, T]`."""
    while not isinstance(rows, Groups):  # rows with outputs of a guide
        rows = rows.rows
    lengths: np.ndarray = rows.sequences.lengths.reshape(-1, rows.size)
    return lengths


def with_query_lengths(job: Job, recipe: Recipe) -> Job:
    """Return the job with batches that pad first texts to a length of their own, if that saves a tenth of the tokens.

    Args:
        job: the job of sentence embeddings.
        recipe: its resolved recipe.
    """
    data, source = recipe.data, job.train_source
    if data.loss == "tsdae" or data.length_buckets or distillation_of(recipe) or only_shapes(recipe):
        return job
    assert isinstance(source, TrainSource)
    lengths_of_texts = text_lengths(source.features)
    others = lengths_of_texts.shape[1] - 1
    if not others:
        return job
    query, other = lengths_of_texts[:, 0], lengths_of_texts[:, 1:].max(1)
    lengths, tokens = choose_lengths(query, other, others, data.max_seq_length)
    counts = np.bincount(source._bucket_of, minlength=len(source.buckets))
    if tokens > (1 - _LEAST_SAVED) * (1 + others) * (counts * source.buckets).sum():
        return job
    fingerprint = job.data
    pairs = [list(dataclasses.astuple(each)) for each in lengths]
    return dataclasses.replace(
        job, train_source=QuerySource(source, lengths), data=lambda: fingerprint() | {"lengths": pairs}
    )


def choose_lengths(
    query: np.ndarray, other: np.ndarray, others: int, limit: int, *, most: int = 6, least_gain: float = 0.05
) -> tuple[tuple[Lengths, ...], float]:
    """Choose the padded lengths that need the least padding, each at least as long as the last in both lengths.

    The choice is optimal, by dynamic programming over the histogram of both lengths. Lengths are added only while they
    save `least_gain` of the tokens, since they also cost a compilation.

    Args:
        query: int [n], tokens of the first text of each row.
        other: int [n], tokens of the longest of its other texts.
        others: the number of other texts of a row.
        limit: the maximum length of a text, in tokens.
        most: the maximum number of choices.
        least_gain: the share of all tokens, padding included, that one more choice must save.

    Returns:
        the lengths, and the number of tokens of all rows, padding included.
    """
    sizes = [_candidates(lengths, limit) for lengths in (query, other)]
    counts = np.zeros([len(axis) for axis in sizes])
    np.add.at(counts, (np.searchsorted(sizes[0], query), np.searchsorted(sizes[1], other)), 1)
    fitting = counts.cumsum(0).cumsum(1)  # the number of rows that fit into both lengths
    tokens = sizes[0][:, None] + others * sizes[1][None, :]
    cost = [fitting * tokens]  # of all rows that fit, with one choice
    came_from: list[np.ndarray] = []
    while len(cost) < most:
        best, previous = np.full(tokens.shape, np.inf), np.zeros(tokens.shape, np.int64)
        for i, j in itertools.product(*map(range, tokens.shape)):
            below = cost[-1][: i + 1, : j + 1] + (fitting[i, j] - fitting[: i + 1, : j + 1]) * tokens[i, j]
            chosen = np.unravel_index(below.argmin(), below.shape)
            best[i, j], previous[i, j] = below[chosen], np.ravel_multi_index(chosen, tokens.shape)
        if best[-1, -1] > (1 - least_gain) * cost[-1][-1, -1]:
            break
        cost.append(best)
        came_from.append(previous)
    chain, node = [], (tokens.shape[0] - 1, tokens.shape[1] - 1)
    for previous in [*reversed(came_from), None]:
        chain.append(Lengths(int(sizes[0][node[0]]), int(sizes[1][node[1]])))
        if previous is not None:
            node = tuple(map(int, np.unravel_index(previous[node], tokens.shape)))
    return tuple(reversed(chain)), float(cost[-1][-1, -1])


def _candidates(lengths: np.ndarray, limit: int) -> np.ndarray:
    """Return the padded lengths to choose from, in ascending order."""
    rounded = np.minimum(-(-np.maximum(lengths, 1) // _MULTIPLE) * _MULTIPLE, limit)
    values = np.unique(rounded)
    if len(values) > _CANDIDATES:
        values = np.unique(np.quantile(rounded, np.linspace(0, 1, _CANDIDATES), method="higher"))
    return values
