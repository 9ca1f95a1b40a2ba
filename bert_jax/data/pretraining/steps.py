"""The steps of `prepare`, which any process can do for any part of a corpus, in any order and more than once.

1. With deduplication, `compared_texts` of each unit, then `repeated` of each range of keys.
2. `prepared` of each unit.
3. `prepared` of each group of held-out documents; then `finish` once.

What a step leaves in the directory depends on the corpus and the settings alone.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from bert_jax import storage
from bert_jax.data.pretraining.chunk_shards import prepare_chunk
from bert_jax.data.pretraining.chunks import Chunk, ChunkResult, PrepareSettings
from bert_jax.data.pretraining.corpus_checks import Duplicates, TextCounts, complaints
from bert_jax.data.pretraining.deduplication import (
    REMOVED_FILE,
    ExactKeys,
    KeyRange,
    Keys,
    find_repeated,
    key_ranges,
    write_keys,
)
from bert_jax.data.pretraining.instances import token_dtype
from bert_jax.data.pretraining.manifest import MANIFEST_FILE, SPLITS, TOKENIZER_DIR, InstanceSet, Manifest
from bert_jax.data.pretraining.near_duplicates import NearKeys
from bert_jax.data.pretraining.own_files import note_finished, own_file, remove_own_files, remove_records
from bert_jax.data.pretraining.removal import UnitTexts, removed_documents
from bert_jax.data.pretraining.units import HeldOut, Unit, UnitReader, UnitSummary, groups_of_units
from bert_jax.errors import InputError, logger
from bert_jax.tokenization import Tokenizer, load_tokenizer

SKIPPED_FILE = "skipped.txt"
_logger = logger(__name__)


@dataclasses.dataclass(frozen=True)
class Preparation:
    """The context that all steps share.

    Attributes:
        settings: the settings of `prepare`.
        tokenizer: the tokenizer of the text.
        directory: the directory that is prepared.
    """

    settings: PrepareSettings
    tokenizer: Tokenizer
    directory: storage.Path

    @classmethod
    def begin(cls, settings: PrepareSettings, tokenizer: Tokenizer, directory: storage.Path) -> Self:
        """Write what the steps need into a directory, and return its preparation."""
        names = _tokenizer_files(tokenizer)
        note_finished(directory, [*names, REMOVED_FILE, SKIPPED_FILE])
        own_file(directory, MANIFEST_FILE).unlink(missing_ok=True)  # left by a run that was killed at its very end
        for name in names:
            own_file(directory, name)
        tokenizer.save(directory / TOKENIZER_DIR)
        return cls(settings, tokenizer, directory)

    @classmethod
    def opened(cls, settings: PrepareSettings, directory: storage.PathLike) -> Self:
        """Return the preparation of a directory that another process began."""
        directory = storage.Path(directory)
        return cls(settings, load_tokenizer(directory / TOKENIZER_DIR), directory)

    @property
    def kinds(self) -> tuple[Keys, ...]:
        """The ways in which documents are compared."""
        near = (NearKeys(self.settings.similarity),) if self.settings.deduplicate == "near" else ()
        return (ExactKeys(), *near) if self.settings.deduplicate else ()


def _tokenizer_files(tokenizer: Tokenizer) -> list[str]:
    return [f"{TOKENIZER_DIR}/{name}" for name in tokenizer.saved_files]


class Prepared(NamedTuple):
    """The result of some parts: their chunks, and the summaries of those that are units."""

    chunks: list[ChunkResult]
    summaries: list[UnitSummary]

    @classmethod
    def total(cls, results: Iterable[Self]) -> Self:
        """Return the result of all parts, in the order of the corpus."""
        results = list(results)
        chunks = sorted((chunk for result in results for chunk in result.chunks), key=lambda chunk: chunk.place)
        summaries = [summary for result in results for summary in result.summaries]
        return cls(chunks, sorted(summaries, key=lambda summary: summary.index))


def compared_texts(job: Preparation, unit: Unit) -> UnitTexts:
    """Write the keys by which the documents of a unit are compared."""
    return write_keys(unit, job.kinds, job.settings, job.directory)


def ranges_of_keys(job: Preparation, texts: Sequence[UnitTexts]) -> list[KeyRange]:
    """Return the ranges of the keys of all units."""
    return key_ranges(job.kinds, texts, job.directory)


def repeated(job: Preparation, part: KeyRange) -> None:
    """Write which documents in a range of keys repeat an earlier one."""
    find_repeated(part, job.directory)


def prepared(job: Preparation, part: Unit | Chunk | HeldOut) -> Prepared:
    """Write the shards of a part, and the held-out documents of a unit."""
    if isinstance(part, Unit):
        reader = UnitReader(part, job.settings, job.directory)
        return Prepared([_prepare_chunk(job, chunk) for chunk in reader.chunks()], [reader.summary()])
    chunks = [part] if isinstance(part, Chunk) else part.chunks(job.settings.shard_bytes, job.directory)
    return Prepared([_prepare_chunk(job, chunk) for chunk in chunks], [])


def _prepare_chunk(job: Preparation, chunk: Chunk) -> ChunkResult:
    return prepare_chunk(chunk, job.settings, job.tokenizer, job.directory)


def groups_of_held_out(job: Preparation, train: Prepared) -> list[HeldOut]:
    """Return the groups of held-out documents."""
    return groups_of_units(train.summaries, job.settings.shard_bytes)


def finish(job: Preparation, corpus: str, done: Prepared) -> Manifest:
    """Write the list of removed documents and the manifest, warn about poor text, and remove temporary files.

    Args:
        job: the context that the steps share.
        corpus: the name of the corpus.
        done: the results of the units and of the groups of held-out documents.

    Raises:
        InputError: the corpus has no text, or only one document where one is to be held out.
    """
    directory, settings = job.directory, job.settings
    skipped = [error for summary in done.summaries for error in summary.left_out.skipped]
    _list_skipped(job, skipped)
    filtered = sum((summary.left_out.filtered for summary in done.summaries), Counter())
    if filtered and not done.chunks:
        raise InputError(f"{corpus}: expected documents that the filters keep, found none: {dict(filtered)}")
    manifest = _manifest(job, corpus, done.chunks)
    manifest = dataclasses.replace(manifest, removed=_list_removed(job), skipped=len(skipped), filtered=dict(filtered))
    shards = {shard.name for instances in manifest.sets for shard in instances.shards}
    lists = {REMOVED_FILE for _ in job.kinds} | {SKIPPED_FILE for _ in skipped}
    remove_own_files(directory, kept={*shards, *_tokenizer_files(job.tokenizer), *lists})  # made with other settings
    counts, duplicates = TextCounts.total(chunk.counts for chunk in done.chunks), Duplicates()
    for summary in done.summaries:
        duplicates.merge(summary.duplicates)
    sets = [instances for instances in manifest.sets if instances.split == "train"]
    if corpus != "python-docs":  # no advice on the demo's corpus, which its user cannot change
        for complaint in complaints(counts, duplicates.share, sets, settings.objective, settings.packed):
            _logger.warning("%s: %s", corpus, complaint)
    manifest.write(directory)
    # Removed after the manifest is written, so that a run killed before that repeats little work.
    remove_records(directory)
    return manifest


def _list_removed(job: Preparation) -> int:
    """Write `removed.jsonl` where documents are compared; return the number of its lines."""
    count = 0
    if not job.kinds:
        return 0
    with storage.open_atomically(own_file(job.directory, REMOVED_FILE)) as file:
        for removed in removed_documents(job.directory):
            file.write(json.dumps(removed) + "\n")
            count += 1
    return count


def _list_skipped(job: Preparation, errors: Sequence[str]) -> None:
    """Write `skipped.txt` where something could not be read."""
    if errors:
        path = own_file(job.directory, SKIPPED_FILE)
        storage.write_atomically(path, "".join(f"{error}\n" for error in errors))


def _manifest(job: Preparation, corpus: str, done: Sequence[ChunkResult]) -> Manifest:
    settings, tokenizer = job.settings, job.tokenizer
    documents = {split: sum(r.documents for r in done if r.split == split) for split in SPLITS}
    if not any(documents.values()):
        raise InputError(f"{corpus}: expected documents with text, found none")
    if settings.validation_fraction and not all(documents.values()):
        raise InputError(f"{corpus}: expected documents to hold out, found only one text; set validation_fraction to 0")
    sets = []
    for split in SPLITS:
        for length in settings.max_seq_lengths:
            parts = [s for r in done for s in r.sets if (s.split, s.max_seq_length) == (split, length)]
            if parts:
                sets.append(
                    InstanceSet(
                        split,
                        length,
                        examples=sum(part.examples for part in parts),
                        most_per_row=max(part.most_per_row for part in parts),
                        tokens=sum(part.tokens for part in parts),
                        label_1=sum(part.label_1 for part in parts),
                        shards=tuple(shard for part in parts for shard in part.shards),
                    )
                )
    return Manifest(
        settings={"corpus": corpus, **dataclasses.asdict(settings)},
        objective=settings.objective,
        packed=settings.packed,
        tokenizer_fingerprint=tokenizer.fingerprint,
        vocab_size=tokenizer.vocab_size,
        token_dtype=token_dtype(tokenizer.vocab_size).name,
        documents=documents,
        sentences={split: sum(r.sentences for r in done if r.split == split) for split in SPLITS},
        sets=tuple(sets),
    )
