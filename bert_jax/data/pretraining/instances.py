"""Cut documents into pretraining examples, and encode them as records without masks (`masking.py` draws those).

- nsp, next sentence prediction: as google-research/bert `create_pretraining_data.py`.
- sop, sentence order prediction: as google-research/albert `create_pretraining_data.py` (Lan et al. 2020,
  arXiv:1909.11942, section 3.1).
- mlm, masks only: whole sentences until a row is full, across documents with a [SEP] between them (FULL-SENTENCES of
  Liu et al. 2019, arXiv:1907.11692, section 4.2).
"""

import bisect
import dataclasses
import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.data.packing import count_within
from bert_jax.tokenization import RowLayout

OBJECTIVES = ("nsp", "sop", "mlm")
_SMALLEST_TARGET = 2
_TRIES_FOR_ANOTHER_DOCUMENT = 10


def num_special(objective: str, layout: RowLayout) -> int:
    """Return the number of special tokens of an instance."""
    return layout.num_special(pair=objective != "mlm")


def smallest_seq_length(layout: RowLayout) -> int:
    """Return the number of tokens of a row whose two segments have one token each."""
    return layout.num_special(pair=True) + 2


@dataclasses.dataclass(frozen=True)
class TokenDocument:
    """The sentences of a document, concatenated.

    Attributes:
        tokens: ids.
        bounds: offsets of the first token of each sentence, and the end of the last; no sentence is empty.
    """

    tokens: np.ndarray
    bounds: list[int]

    @classmethod
    def of(cls, sentences: Iterable[Sequence[int] | np.ndarray], dtype: Any = None) -> "TokenDocument":
        """Build a document from sentences, without empty ones."""
        kept = [sentence for sentence in sentences if len(sentence)]
        tokens = np.array(list(itertools.chain.from_iterable(kept)), dtype)
        return cls(tokens, [0, *itertools.accumulate(map(len, kept))])

    def __len__(self) -> int:
        """Return the number of sentences."""
        return len(self.bounds) - 1

    def slice(self, first: int, stop: int) -> np.ndarray:
        """Return the ids of sentences `first` to `stop - 1`."""
        return self.tokens[self.bounds[first] : self.bounds[stop]]


@dataclasses.dataclass(frozen=True)
class Instance:
    """One or two segments, unmasked and without special tokens around them.

    Attributes:
        tokens_a: ids of segment A; at least one.
        tokens_b: ids of segment B; none for mlm.
        label: 0 if B follows A in the document; 1 if B is from another document (nsp) or precedes A (sop).
    """

    tokens_a: np.ndarray
    tokens_b: np.ndarray
    label: int

    @property
    def size(self) -> int:
        """The number of tokens, without special ones."""
        return len(self.tokens_a) + len(self.tokens_b)


def pairs_of_document(
    documents: Sequence[TokenDocument],
    index: int,
    max_seq_length: int,
    short_seq_prob: float,
    rng: random.Random,
    objective: str = "nsp",
    num_special: int = 3,
) -> Iterator[Instance]:
    """Yield the instances of one document (`create_instances_from_document`).

    Args:
        documents: the documents that random second segments are drawn from.
        index: the index of the document to cut.
        max_seq_length: the longest instance in tokens, special tokens included.
        short_seq_prob: the probability that this document's instances have a random shorter target length, which
            prepares the model for the short inputs of fine-tuning.
        rng: the source of all random numbers.
        objective: nsp or sop. A lone sentence gets a random second segment in both.
        num_special: the number of special tokens of an instance: BERT's three, or that of the tokenizer's layout.
    """
    document = documents[index]
    room = max_seq_length - num_special
    target = room
    if rng.random() < short_seq_prob:
        target = rng.randint(_SMALLEST_TARGET, room)
    first = last = 0  # the sentences of the current chunk
    while last < len(document):
        if last == len(document) - 1 or document.bounds[last + 1] - document.bounds[first] >= target:
            size = last + 1 - first
            middle = first + (rng.randint(1, size - 1) if size >= 2 else 1)
            tokens_a = document.slice(first, middle)
            label = int(size == 1 or rng.random() < 0.5)
            if label and (objective == "nsp" or size == 1):
                tokens_b = _random_segment(documents, index, target - len(tokens_a), rng)
                last = middle - 1  # the sentences that B did not use go to the next chunk
            else:
                tokens_b = document.slice(middle, last + 1)
                if label:
                    tokens_a, tokens_b = tokens_b, tokens_a
            yield Instance(*_truncate(tokens_a, tokens_b, room, rng), label)
            first = last + 1
        last += 1


def full_sentences(
    documents: Sequence[TokenDocument],
    max_seq_length: int,
    short_seq_prob: float,
    sep_id: int,
    rng: random.Random,
    num_special: int = 2,
) -> Iterator[Instance]:
    """Yield instances of a single segment: whole sentences, documents in random order with `sep_id` between them.

    A sentence goes to the next instance when it does not fit; a sentence longer than an instance is cut.

    Args:
        documents: the documents, all of which are used.
        max_seq_length: the longest instance in tokens, special tokens included.
        short_seq_prob: the probability that an instance has a random shorter target length.
        sep_id: the id of [SEP].
        rng: the source of the random order of documents, different in each pass, and of the lengths.
        num_special: the number of special tokens of an instance.
    """
    room = max_seq_length - num_special

    def next_target() -> int:
        return rng.randint(_SMALLEST_TARGET, room) if rng.random() < short_seq_prob else room

    row: list[np.ndarray] = []
    length, target = 0, next_target()
    for index in rng.sample(range(len(documents)), len(documents)):
        needs_sep = bool(row)  # the document begins in a row that holds another document
        for start, stop in itertools.pairwise(documents[index].bounds):
            sentence = documents[index].tokens[start:stop]
            for piece in (sentence[i : i + room] for i in range(0, len(sentence), room)):
                if row and length + needs_sep + len(piece) > target:
                    yield Instance(np.concatenate(row), np.array([], piece.dtype), 0)
                    row, length, target, needs_sep = [], 0, next_target(), False
                row += [np.array([sep_id], piece.dtype), piece] if needs_sep else [piece]
                length += needs_sep + len(piece)
                needs_sep = False
    if row:
        yield Instance(np.concatenate(row), np.array([], row[0].dtype), 0)


def _random_segment(documents: Sequence[TokenDocument], index: int, length: int, rng: random.Random) -> np.ndarray:
    """Return sentences from a random start in another document (if ten draws find one), up to `length` tokens."""
    other = index
    for _ in range(_TRIES_FOR_ANOTHER_DOCUMENT):
        other = rng.randint(0, len(documents) - 1)
        if other != index:
            break
    document = documents[other]
    start = rng.randint(0, len(document) - 1)
    stop = bisect.bisect_left(document.bounds, document.bounds[start] + length, start + 1)
    return document.slice(start, min(stop, len(document)))


def _truncate(a: np.ndarray, b: np.ndarray, room: int, rng: random.Random) -> tuple[np.ndarray, np.ndarray]:
    """Drop tokens of the longer segment, each from its front or its back with equal chance, until the pair fits."""
    a_start, a_end, b_start, b_end = 0, len(a), 0, len(b)
    while (a_end - a_start) + (b_end - b_start) > room:
        front = rng.random() < 0.5
        if a_end - a_start > b_end - b_start:
            a_start, a_end = (a_start + 1, a_end) if front else (a_start, a_end - 1)
        else:
            b_start, b_end = (b_start + 1, b_end) if front else (b_start, b_end - 1)
    return a[a_start:a_end], b[b_start:b_end]


def token_dtype(vocab_size: int) -> np.dtype:
    """Return the smallest little-endian dtype that holds the ids of a vocabulary."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def encode_record(row: Sequence[Instance], dtype: np.dtype) -> bytes:
    """Encode the instances of a row as a record of unsigned integers: the number of instances; (label, length of A,
    length of B) of each; ids of A and of B of each."""
    header, tokens = [len(row)], []
    for instance in row:
        header += [instance.label, len(instance.tokens_a), len(instance.tokens_b)]
        tokens += [instance.tokens_a, instance.tokens_b]
    return b"".join(part.astype(dtype, copy=False).tobytes() for part in (np.array(header), *tokens))


@dataclasses.dataclass(frozen=True)
class InstanceBatch:
    """The I instances (examples before masking) of several rows, concatenated.

    Attributes:
        rows: int64 [I], the row of each instance, ascending from 0.
        tokens: int32 [sum of lengths], the ids of A, then of B, of each instance in turn.
        lengths_a: int64 [I], the number of tokens of each A.
        lengths_b: int64 [I], the number of tokens of each B.
        labels: int32 [I], `Instance.label` of each.
    """

    rows: np.ndarray
    tokens: np.ndarray
    lengths_a: np.ndarray
    lengths_b: np.ndarray
    labels: np.ndarray


def decode_records(records: np.ndarray) -> InstanceBatch:
    """Decode records of `encode_record`, for R rows at once.

    Args:
        records: unsigned [R, W], one record per row; integers after the end of a record are ignored.
    """
    counts = records[:, 0].astype(np.int64)
    rows = np.repeat(np.arange(len(records)), counts)
    headers = 1 + 3 * count_within(rows)
    labels, lengths_a, lengths_b = (records[rows, headers + i].astype(np.int64) for i in range(3))
    starts = 1 + 3 * counts
    ends = starts + np.bincount(rows, lengths_a + lengths_b, len(records)).astype(np.int64)
    columns = np.arange(records.shape[1])
    tokens = records[(columns >= starts[:, None]) & (columns < ends[:, None])]
    return InstanceBatch(rows, tokens.astype(np.int32), lengths_a, lengths_b, labels.astype(np.int32))
