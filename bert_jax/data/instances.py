"""Sentence pairs for next sentence prediction, and the records that hold them.

Follows google-research/bert `create_pretraining_data.py`; the masks, which it bakes in here, are drawn when a batch is
made (`masking.py`), so that every epoch has its own.
"""

import dataclasses
import random
from collections.abc import Iterator, Sequence

import numpy as np

TokenDocument = Sequence[np.ndarray]  # one array of token ids a sentence, none empty

SPECIAL_TOKENS_PER_PAIR = 3  # [CLS] A [SEP] B [SEP]
_SMALLEST_TARGET = 2
_TRIES_FOR_ANOTHER_DOCUMENT = 10


@dataclasses.dataclass(frozen=True)
class Instance:
    """Two segments, unmasked and without special tokens.

    Attributes:
        tokens_a: ids of A; at least one.
        tokens_b: ids of B; at least one.
        is_random_next: whether B comes from a random document (label 1) instead of following A (label 0).
    """

    tokens_a: np.ndarray
    tokens_b: np.ndarray
    is_random_next: bool


def make_instances(
    documents: Sequence[TokenDocument], index: int, max_seq_length: int, short_seq_prob: float, rng: random.Random
) -> Iterator[Instance]:
    """Yields the instances of one document (`create_instances_from_document`).

    Args:
        documents: where random second segments come from.
        index: which of them is cut up.
        max_seq_length: longest instance in tokens, the three special ones counted.
        short_seq_prob: probability that this document's instances aim at a random shorter length, so that fine-tuning's
            short inputs are no surprise.
        rng: draws everything.
    """
    document = documents[index]
    room = max_seq_length - SPECIAL_TOKENS_PER_PAIR
    target = room
    if rng.random() < short_seq_prob:
        target = rng.randint(_SMALLEST_TARGET, room)
    chunk: list[np.ndarray] = []
    length = i = 0
    while i < len(document):
        chunk.append(document[i])
        length += len(document[i])
        if i == len(document) - 1 or length >= target:
            a_end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            tokens_a = np.concatenate(chunk[:a_end])
            is_random_next = len(chunk) == 1 or rng.random() < 0.5
            if is_random_next:
                tokens_b = _random_segment(documents, index, target - len(tokens_a), rng)
                i -= len(chunk) - a_end  # the sentences that B did not use are gone through again
            else:
                tokens_b = np.concatenate(chunk[a_end:])
            yield Instance(*_truncate(tokens_a, tokens_b, room, rng), is_random_next)
            chunk, length = [], 0
        i += 1


def _random_segment(documents: Sequence[TokenDocument], index: int, length: int, rng: random.Random) -> np.ndarray:
    """Sentences from a random start in another document (if ten draws find one) until `length` tokens are reached."""
    other = index
    for _ in range(_TRIES_FOR_ANOTHER_DOCUMENT):
        other = rng.randint(0, len(documents) - 1)
        if other != index:
            break
    document = documents[other]
    end = start = rng.randint(0, len(document) - 1)
    total = 0
    while end < len(document):
        total += len(document[end])
        end += 1
        if total >= length:
            break
    return np.concatenate(document[start:end])


def _truncate(a: np.ndarray, b: np.ndarray, room: int, rng: random.Random) -> tuple[np.ndarray, np.ndarray]:
    """Drops tokens of the longer segment, each from its front or its back with equal chance, until the pair fits."""
    a_start, a_end, b_start, b_end = 0, len(a), 0, len(b)
    while (a_end - a_start) + (b_end - b_start) > room:
        front = rng.random() < 0.5
        if a_end - a_start > b_end - b_start:
            a_start, a_end = (a_start + 1, a_end) if front else (a_start, a_end - 1)
        else:
            b_start, b_end = (b_start + 1, b_end) if front else (b_start, b_end - 1)
    return a[a_start:a_end], b[b_start:b_end]


def token_dtype(vocab_size: int) -> np.dtype:
    """Returns the smallest little-endian type that holds the ids of a vocabulary."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def encode_record(instance: Instance, dtype: np.dtype) -> bytes:
    """Returns a record: is_random_next, length of A, ids of A, ids of B, all of one unsigned type."""
    header = np.array([instance.is_random_next, len(instance.tokens_a)], dtype)
    return np.concatenate([header, instance.tokens_a, instance.tokens_b]).astype(dtype).tobytes()


@dataclasses.dataclass(frozen=True)
class InstanceBatch:
    """B instances, laid end to end.

    Attributes:
        tokens: int32 [sum of lengths], the ids of A then B of each instance in turn.
        lengths_a: int64 [B].
        lengths_b: int64 [B].
        is_random_next: int32 [B].
    """

    tokens: np.ndarray
    lengths_a: np.ndarray
    lengths_b: np.ndarray
    is_random_next: np.ndarray


def decode_records(records: Sequence[bytes], dtype: np.dtype) -> InstanceBatch:
    """Returns what `encode_record` wrote, for a batch at once."""
    flat = np.frombuffer(b"".join(records), dtype)
    sizes = np.fromiter((len(record) for record in records), np.int64, len(records)) // dtype.itemsize
    starts = np.cumsum(sizes) - sizes
    lengths_a = flat[starts + 1].astype(np.int64)
    is_token = np.ones(len(flat), np.bool_)
    is_token[starts] = is_token[starts + 1] = False
    return InstanceBatch(
        flat[is_token].astype(np.int32), lengths_a, sizes - 2 - lengths_a, flat[starts].astype(np.int32)
    )
