"""Units of a corpus: one process reads a unit and cuts it into chunks of training text and held-out documents.

A unit is some files, or a range of a file. Units depend on the names and sizes of the files alone. Whether a document
is held out depends on its text alone, except that the first unit holds out at least one. So every process that reads a
unit finds the same chunks in it.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from bert_jax import storage
from bert_jax.data.corpora.readers import Document
from bert_jax.data.corpora.sources import Corpus, Part
from bert_jax.data.pretraining.chunks import RECORDS_DIR, Chunk, PrepareSettings, cut_chunks
from bert_jax.data.pretraining.corpus_checks import Duplicates
from bert_jax.data.pretraining.removal import Removal

_FEWEST_UNITS = 64  # units of a corpus with enough chunks, for the cores of one machine
_MOST_CHUNKS = 4  # chunks in a unit
_KEPT_HASHES = 100_000  # hashes kept per unit, from which the share of duplicates is estimated


@dataclasses.dataclass
class LeftOut:
    """Documents and records left out of some parts.

    Attributes:
        skipped: the errors of what could not be read.
        filtered: name of a filter -> the number of documents that it left out.
    """

    skipped: list[str] = dataclasses.field(default_factory=list)
    filtered: Counter[str] = dataclasses.field(default_factory=Counter)


def documents_of(part: Part, settings: PrepareSettings, left_out: LeftOut) -> Iterator[Document]:
    """Yield the documents of a part that can be read and that the filters keep.

    Raises:
        InputError: a filter raised an error; or, with `settings.invalid` "strict", something cannot be read.
    """
    documents = part.readable(left_out.skipped) if settings.invalid == "skip" else part.read()
    return settings.filters.kept(documents, left_out.filtered)


@dataclasses.dataclass(frozen=True)
class Unit:
    """Parts of a corpus that one process reads one after the other; `index` counts from 0."""

    index: int
    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        """The name of the unit, different for each unit of a corpus."""
        return f"{self.index:05d}"

    @property
    def num_bytes(self) -> int:
        """The size of the unit in bytes."""
        return sum(part.num_bytes for part in self.parts)

    def documents(self, settings: PrepareSettings, left_out: LeftOut) -> Iterator[Document]:
        """Yield the unit's documents, with `Document.end` counted from the unit's start."""
        before = 0
        for part in self.parts:
            for document in documents_of(part, settings, left_out):
                yield dataclasses.replace(document, end=before + document.end) if before else document
            before += part.num_bytes


def cut_units(corpus: Corpus, shard_bytes: int) -> list[Unit]:
    """Return the units of a corpus, of 1 to 4 chunks each: groups of small files, and ranges of large ones."""
    most = max(shard_bytes, min((corpus.num_bytes or 0) // _FEWEST_UNITS, _MOST_CHUNKS * shard_bytes))
    return [Unit(index, tuple(parts)) for index, parts in enumerate(_groups(corpus.parts(most), most))]


def _groups(parts: Iterable[Part], most_bytes: int) -> Iterator[list[Part]]:
    """Yield groups of parts of up to `most_bytes`, or of one larger part; a small remainder joins the last group."""
    before: list[Part] = []
    group: list[Part] = []
    size = 0
    for part in parts:
        if group and size + part.num_bytes > most_bytes:
            if before:
                yield before
            before, group, size = group, [], 0
        group.append(part)
        size += part.num_bytes
    if before and size < most_bytes // 2:
        before, group = before + group, []
    yield from filter(None, (before, group))


def is_held_out(document: Document, fraction: float) -> bool:
    """Return whether a document is held out, which depends on its text alone: equal documents are in one split."""
    return document.number() < fraction * 2**64


@dataclasses.dataclass(frozen=True)
class UnitSummary:
    """The summary of a unit after it has been read.

    Attributes:
        index: the index of the unit.
        held_out: the number of documents held out.
        held_out_characters: their size in characters.
        duplicates: a sample of the texts of all its documents.
        left_out: what was left out.
    """

    index: int
    held_out: int
    held_out_characters: int
    duplicates: Duplicates
    left_out: LeftOut


class UnitReader:
    """Reader of a unit, used once: held-out documents go to a file, the others become chunks.

    Args:
        unit: the unit.
        settings: the settings of `prepare`.
        directory: the directory that is prepared.
    """

    def __init__(self, unit: Unit, settings: PrepareSettings, directory: storage.Path):
        self._unit, self._settings, self._directory = unit, settings, directory
        self._held_out = self._held_out_characters = 0
        self._duplicates = Duplicates(_KEPT_HASHES)
        self._left_out = LeftOut()

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks of training text."""
        with storage.open_atomically(_held_out_path(self._directory, self._unit.index)) as file:
            documents = self._training(file)
            yield from cut_chunks(documents, "train", self._unit.name, self._settings.shard_bytes)

    def summary(self) -> UnitSummary:
        """Return the summary; to be called after the last chunk."""
        return UnitSummary(
            self._unit.index,
            self._held_out,
            self._held_out_characters,
            self._duplicates,
            self._left_out,
        )

    def _training(self, file: TextIO) -> Iterator[Document]:
        """Yield the documents that are neither left out nor held out, and write those held out."""
        fraction = self._settings.validation_fraction
        needs_one = self._unit.index == 0 and fraction > 0
        lowest: Document | None = None  # held out from the first unit if no document is chosen
        lowest_number = 2**64
        for document in self._documents():
            number = document.number()
            self._duplicates.add(number)
            if number < fraction * 2**64:
                self._hold_out(document, file)
            elif needs_one and not self._held_out and number < lowest_number:
                if lowest:
                    yield lowest
                lowest, lowest_number = document, number
            else:
                yield document
        if lowest and self._held_out:
            yield lowest
        elif lowest:
            self._hold_out(lowest, file)

    def _documents(self) -> Iterator[Document]:
        documents = self._unit.documents(self._settings, self._left_out)
        if not self._settings.deduplicate:
            return documents
        return Removal.of_unit(self._unit.index, self._directory).kept(documents)

    def _hold_out(self, document: Document, file: TextIO) -> None:
        self._held_out += 1
        self._held_out_characters += document.characters
        file.write(json.dumps([document.name, document.texts, document.are_sentences]) + "\n")


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """The held-out documents of some units, in order; `index` counts from 0."""

    index: int
    units: tuple[int, ...]

    def chunks(self, shard_bytes: int, directory: storage.Path) -> Iterator[Chunk]:
        """Yield the chunks of the documents."""
        return cut_chunks(self._documents(directory), "validation", f"{self.index:05d}", shard_bytes)

    def _documents(self, directory: storage.Path) -> Iterator[Document]:
        for unit in self.units:
            with _held_out_path(directory, unit).open("rb") as file:
                for line in file:
                    name, texts, are_sentences = json.loads(line)
                    yield Document(name, tuple(texts), are_sentences)


def groups_of_units(summaries: Sequence[UnitSummary], shard_bytes: int) -> list[HeldOut]:
    """Return the held-out documents of the units in groups of about `shard_bytes`, from which chunks are cut."""
    groups: list[list[int]] = []
    size = shard_bytes
    for summary in summaries:
        if size >= shard_bytes:
            groups.append([])
            size = 0
        groups[-1].append(summary.index)
        size += summary.held_out_characters
    if len(groups) > 1 and size < shard_bytes // 2:
        groups[-2:] = [groups[-2] + groups[-1]]
    return [HeldOut(index, tuple(group)) for index, group in enumerate(groups)]


def _held_out_path(directory: storage.Path, unit: int) -> storage.Path:
    return directory / RECORDS_DIR / f"held-out-{unit:05d}.jsonl"
