"""Documents of a unit that are left out of the prepared directory, as `deduplication.py` found them."""

import bisect
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from bert_jax import storage
from bert_jax.data.corpora.readers import Document
from bert_jax.data.pretraining.chunks import RECORDS_DIR
from bert_jax.data.pretraining.grouped_rows import read_grouped
from bert_jax.errors import InputError

COMPARISON_FILE = "comparison.json"
REPEATED = np.dtype([("unit", "<u4"), ("number", "<u4"), ("first_unit", "<u4"), ("first_number", "<u4")])


class Place(NamedTuple):
    """A document: its unit, and its number in it, from 0."""

    unit: int
    number: int


class Origin(NamedTuple):
    """The earlier document for which a document is left out, and how they were compared: exact or near."""

    place: Place
    kind: str


@dataclasses.dataclass(frozen=True)
class UnitTexts:
    """The texts of a unit, as compared in the search for repeated documents.

    Attributes:
        kinds: the ways in which they are compared.
        parts: name and number of bytes of each part.
        documents: the number of documents in each part.
        digest: a digest of their texts.
    """

    kinds: list[str]
    parts: list[list[Any]]
    documents: list[int]
    digest: str

    @classmethod
    def read(cls, unit: int, directory: storage.Path) -> Self:
        """Read the record of a unit."""
        return cls(**storage.read_json(record_path(unit, directory)))

    def name(self, number: int) -> str:
        """Return the name of a document: its part, and its 0-based number among those that the filters keep."""
        part = bisect.bisect_right(self._starts, number) - 1
        return f"{self.parts[part][0]}#{number - self._starts[part]}"

    @functools.cached_property
    def _starts(self) -> list[int]:
        return [0, *itertools.accumulate(self.documents)]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The extent of a comparison: the number of units, and kind -> the number of ranges of its keys."""

    units: int
    ranges: Mapping[str, int]

    @classmethod
    def read(cls, directory: storage.Path) -> Self:
        """Read the file that `key_ranges` wrote."""
        return cls(**storage.read_json(directory / RECORDS_DIR / COMPARISON_FILE))

    def origins(self, unit: int, directory: storage.Path) -> dict[int, Origin]:
        """Return number -> earlier document, by ascending number, for the documents of a unit to leave out."""
        origins: dict[int, Origin] = {}
        for kind, ranges in self.ranges.items():
            duplicates = [
                read_grouped(result_path(kind, number, directory), REPEATED, self.units, unit, unit + 1)
                for number in range(ranges)
            ]
            for _, number, *first in np.sort(np.concatenate(duplicates)).tolist():
                origins.setdefault(number, Origin(Place(*first), kind))
        return dict(sorted(origins.items()))


@dataclasses.dataclass(frozen=True)
class Removal:
    """The documents to leave out of a unit.

    Attributes:
        texts: the texts in which they were found.
        numbers: their numbers.
    """

    texts: UnitTexts
    numbers: frozenset[int]

    @classmethod
    def of_unit(cls, unit: int, directory: storage.Path) -> Self:
        """Read what to leave out of a unit from a directory in which `find_repeated` has run for all ranges of keys."""
        return cls(UnitTexts.read(unit, directory), frozenset(Comparison.read(directory).origins(unit, directory)))

    def kept(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yield the documents of the unit to keep.

        Raises:
            InputError: after the last document, if the texts differ from those that were searched for repeats.
        """
        digest = TextsDigest()
        for number, document in enumerate(documents):
            digest.add(document)
            if number not in self.numbers:
                yield document
        if digest.hexdigest() != self.texts.digest:
            name = self.texts.parts[0][0]
            raise InputError(f"{name}: expected the text that was searched for repeated documents, found another; "
                             "prepare it again in a new directory")  # fmt: skip


class TextsDigest:
    """A digest of the texts of documents, in order."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, document: Document) -> None:
        """Add the next document."""
        self._digest.update(document.digest(16))

    def hexdigest(self) -> str:
        """Return the digest, in hex."""
        return self._digest.hexdigest()


def record_path(unit: int, directory: storage.Path) -> storage.Path:
    """Return the path of the record of a unit's texts."""
    return directory / RECORDS_DIR / f"texts-{unit:05d}.json"


def result_path(kind: str, number: int, directory: storage.Path) -> storage.Path:
    """Return the path of the repeated documents of a range of keys."""
    return directory / RECORDS_DIR / f"repeated-{kind}-{number:04d}.bin"


def removed_documents(directory: storage.Path) -> Iterator[dict[str, str]]:
    """Yield the names of each left-out document and of the earlier one, and how they were compared."""
    comparison = Comparison.read(directory)
    texts = [UnitTexts.read(unit, directory) for unit in range(comparison.units)]
    for unit in range(comparison.units):
        for number, origin in comparison.origins(unit, directory).items():
            first = texts[origin.place.unit].name(origin.place.number)
            yield {"document": texts[unit].name(number), "first": first, "kind": origin.kind}
