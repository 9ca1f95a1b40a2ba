"""Find documents that repeat an earlier one of the corpus, in bounded memory and in any order of processing.

1. `write_keys`, for each unit, writes a row for each document (its key and its number in the unit), sorted by key.
2. `find_repeated`, for each range of keys, finds documents of all units with equal keys, and writes which to leave out:
   all but the first in the order of the corpus.
3. `removal.py` reads which documents of a unit to leave out.

Keys are uniformly distributed, so the ranges have about the same size. Each step writes its own files atomically, which
depend on the corpus alone. So any process can do any part of the work, and do it again.
"""

import concurrent.futures
import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Protocol

import numpy as np

from bert_jax import storage
from bert_jax.data.corpora.readers import Document
from bert_jax.data.pretraining.chunks import RECORDS_DIR, PrepareSettings
from bert_jax.data.pretraining.grouped_rows import read_grouped, write_grouped
from bert_jax.data.pretraining.removal import (
    COMPARISON_FILE,
    REPEATED,
    Comparison,
    TextsDigest,
    UnitTexts,
    record_path,
    result_path,
)
from bert_jax.data.pretraining.units import LeftOut, Unit, documents_of

REMOVED_FILE = "removed.jsonl"
_BUCKETS = 4096  # buckets of a key file, by the keys' upper bits; a key range is a run of buckets
_BUCKET_SHIFT = np.uint64(52)
_RANGE_BYTES = 64 << 20  # bytes of keys in memory at a time
_CONCURRENT = 16  # units whose keys are read at a time
_BATCH = 1024  # documents whose keys are made together


class Keys(Protocol):
    """A way to compare documents.

    Attributes:
        kind: its name.
        rows_each: the maximum number of rows per document.
        dtype: the dtype of a row, with fields `key`, uniform uint64, and `number`, the document's number in its unit.
    """

    kind: ClassVar[str]
    rows_each: ClassVar[int]
    dtype: ClassVar[np.dtype]

    def collected(self, documents: Sequence[Document]) -> np.ndarray:
        """Return the rows from which keys are made, one for each document."""
        ...

    def sorted_rows(self, collected: Sequence[np.ndarray]) -> tuple[np.ndarray, Iterator[np.ndarray]]:
        """Return the keys of all documents of a unit, in any order, and blocks of their rows, sorted by the key.

        Args:
            collected: the results of `collected` for documents 0, 1, ... of the unit; at least one.
        """
        ...

    def repeated(self, rows: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Return REPEATED rows of the documents that repeat an earlier one.

        Args:
            rows: the rows of all units in a range of keys, in the order of the corpus for equal keys.
            units: int [R], the unit of each row.
        """
        ...


@dataclasses.dataclass(frozen=True)
class ExactKeys:
    """Compare documents exactly: by their paragraphs, ignoring blank lines and trailing white space."""

    kind: ClassVar[str] = "exact"
    rows_each: ClassVar[int] = 1
    dtype: ClassVar[np.dtype] = np.dtype([("key", "<u8"), ("rest", "<u8"), ("number", "<u4")])

    def collected(self, documents: Sequence[Document]) -> np.ndarray:
        """Return digests, uint64 [N, 2]."""
        return np.frombuffer(b"".join(document.digest(16) for document in documents), "<u8").reshape(-1, 2)

    def sorted_rows(self, collected: Sequence[np.ndarray]) -> tuple[np.ndarray, Iterator[np.ndarray]]:
        """Return the keys of all documents, in any order, and one block of their rows, sorted by the key."""
        digests = np.concatenate(collected)
        rows = np.empty(len(digests), self.dtype)
        rows["number"] = np.argsort(digests[:, 0], kind="stable")
        rows["key"], rows["rest"] = digests[rows["number"]].T
        return rows["key"], iter([rows])

    def repeated(self, rows: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Return REPEATED rows of the documents that repeat an earlier one."""
        order = np.lexsort((rows["rest"], rows["key"]))  # stable, so equal keys stay in the order of the corpus
        rows, units = rows[order], units[order]
        is_first = np.ones(len(rows), bool)
        is_first[1:] = (rows["key"][1:] != rows["key"][:-1]) | (rows["rest"][1:] != rows["rest"][:-1])
        first = np.maximum.accumulate(np.where(is_first, np.arange(len(rows)), 0))
        duplicates = np.empty(np.count_nonzero(~is_first), REPEATED)
        duplicates["unit"], duplicates["number"] = units[~is_first], rows["number"][~is_first]
        duplicates["first_unit"], duplicates["first_number"] = units[first][~is_first], rows["number"][first][~is_first]
        return duplicates


def write_keys(unit: Unit, kinds: Iterable[Keys], settings: PrepareSettings, directory: storage.Path) -> UnitTexts:
    """Write the keys of the documents of a unit and the record of its texts, unless an earlier run has written them.

    Args:
        unit: the unit.
        kinds: the ways to compare documents.
        settings: the settings of `prepare`.
        directory: the directory that is prepared.
    """
    kinds = tuple(kinds)
    requested = [*map(repr, kinds), f"invalid={settings.invalid}", repr(settings.filters)]
    parts = [[part.name, part.num_bytes] for part in unit.parts]
    path = record_path(unit.index, directory)
    if path.exists():
        earlier = UnitTexts.read(unit.index, directory)
        if (earlier.parts, earlier.kinds) == (parts, requested):
            return earlier
        path.unlink()  # remove the record before any of its keys is replaced
    collected: dict[Keys, list[np.ndarray]] = {keys: [] for keys in kinds}
    counts, digest = [], TextsDigest()
    for part in unit.parts:
        documents, count = documents_of(part, settings, LeftOut()), 0
        while batch := list(itertools.islice(documents, _BATCH)):
            count += len(batch)
            for document in batch:
                digest.add(document)
            for keys, batches in collected.items():
                batches.append(keys.collected(batch))
        counts.append(count)
    for keys, batches in collected.items():
        all_keys, blocks = keys.sorted_rows(batches) if batches else (np.empty(0, np.uint64), iter(()))
        sizes = np.bincount((all_keys >> _BUCKET_SHIFT).astype(np.int64), minlength=_BUCKETS)
        write_grouped(_keys_path(keys, unit.index, directory), sizes, blocks)
    texts = UnitTexts(requested, parts, counts, digest.hexdigest())
    storage.write_atomically(path, json.dumps(dataclasses.asdict(texts)))
    return texts


@dataclasses.dataclass(frozen=True)
class KeyRange:
    """One of `count` ranges of the keys of a kind in all units; `number` counts from 0."""

    keys: Keys
    number: int
    count: int
    units: int


def key_ranges(kinds: Iterable[Keys], texts: Sequence[UnitTexts], directory: storage.Path) -> list[KeyRange]:
    """Return the ranges of keys to compare, and record how many there are for `Removal`."""
    ranges = []
    documents = sum(sum(unit.documents) for unit in texts)
    for keys in kinds:
        count = 1
        while count < _BUCKETS and documents * keys.rows_each * keys.dtype.itemsize > count * _RANGE_BYTES:
            count *= 2
        ranges += [KeyRange(keys, number, count, len(texts)) for number in range(count)]
    comparison = Comparison(len(texts), {key_range.keys.kind: key_range.count for key_range in ranges})
    storage.write_atomically(directory / RECORDS_DIR / COMPARISON_FILE, json.dumps(dataclasses.asdict(comparison)))
    return ranges


def find_repeated(part: KeyRange, directory: storage.Path) -> None:
    """Write which documents in a range of keys repeat an earlier one."""
    first, stop = (_BUCKETS * number // part.count for number in (part.number, part.number + 1))

    def read(unit: int) -> np.ndarray:
        return read_grouped(_keys_path(part.keys, unit, directory), part.keys.dtype, _BUCKETS, first, stop)

    with concurrent.futures.ThreadPoolExecutor(_CONCURRENT) as pool:  # each read takes two requests in an object store
        rows = list(pool.map(read, range(part.units)))
    of_unit = np.repeat(np.arange(part.units), [len(duplicates) for duplicates in rows])
    duplicates = np.sort(part.keys.repeated(np.concatenate(rows), of_unit))
    sizes = np.bincount(duplicates["unit"], minlength=part.units)
    write_grouped(result_path(part.keys.kind, part.number, directory), sizes, [duplicates])


def _keys_path(keys: Keys, unit: int, directory: storage.Path) -> storage.Path:
    return directory / RECORDS_DIR / f"keys-{keys.kind}-{unit:05d}.bin"
