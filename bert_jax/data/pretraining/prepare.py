"""Turn a corpus into shards of examples in bounded memory; the result does not depend on which process does which part.

A corpus is cut into units (`units.py`). One process reads a unit, and cuts it into chunks of about `shard_bytes` of
text. It tokenizes a chunk, draws random second segments from the other documents of the chunk, with random numbers
keyed by the chunk's name, and writes one shard per sequence length. Held-out documents are few, so those of many units
share a chunk. The result of each chunk is recorded beside its shards, so that a killed run resumes.
"""

import dataclasses
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bert_jax import storage
from bert_jax.data.corpora.sources import Corpus, open_corpus
from bert_jax.data.pretraining.chunks import Chunk, PrepareSettings
from bert_jax.data.pretraining.filters import Filters
from bert_jax.data.pretraining.instances import smallest_seq_length
from bert_jax.data.pretraining.manifest import Manifest
from bert_jax.data.pretraining.own_files import remove_own_files, remove_records
from bert_jax.data.pretraining.steps import (
    Preparation,
    Prepared,
    compared_texts,
    finish,
    groups_of_held_out,
    prepared,
    ranges_of_keys,
    repeated,
)
from bert_jax.data.pretraining.units import HeldOut, Unit, UnitReader, UnitSummary, cut_units
from bert_jax.data.pretraining.work import Workers
from bert_jax.errors import InputError
from bert_jax.extras import how_to_install
from bert_jax.storage import PathLike
from bert_jax.tokenization import Tokenizer

_MOST_CHUNKS = 8  # a unit of more chunks is large: the main process reads it, unless there are _MANY per process
_MANY = 4  # large units for each process: enough to keep all processes busy nearly to the end


@dataclasses.dataclass(frozen=True)
class PrepareProgress:
    """Progress of `prepare`: numbers of documents, of characters and of instances, and the share of the corpus that is
    done (None where the size of the corpus is not known)."""

    documents: int
    characters: int
    instances: int
    share: float | None


def prepare(
    corpus: Corpus | str | Sequence[str],
    tokenizer: Tokenizer,
    out_dir: PathLike,
    *,
    objective: str = "nsp",
    packed: bool = False,
    max_seq_length: int | Sequence[int] = 128,
    dupe_factor: int = 5,
    short_seq_prob: float = 0.1,
    validation_fraction: float = 0.01,
    seed: int = 0,
    num_workers: int | None = None,
    shard_bytes: int = 16 << 20,
    deduplicate: str = "",
    similarity: float = 0.8,
    invalid: str = "strict",
    languages: Sequence[str] = (),
    filters: Sequence[str] = (),
    on_progress: Callable[[PrepareProgress], None] | None = None,
    beam_options: Sequence[str] | None = None,
) -> Manifest:
    """Write the instances of a corpus, their manifest and a copy of the tokenizer into a new directory.

    A local directory appears only when everything is written; in an object store, the manifest is written last. A call
    after an interrupted one resumes it.

    Args:
        corpus: documents, or the spec of a corpus (`bert_jax.data.corpora.sources`).
        tokenizer: the tokenizer of the text; "[MASK]" and the like within the text are ordinary characters.
        out_dir: a new or empty directory, on a disk or in an object store.
        objective: the objective besides masked LM: `nsp` = next-sentence prediction as in BERT, `sop` = sentence order
            as in ALBERT, `mlm` = none (examples are filled with full sentences as in RoBERTa).
        packed: whether to pack several short examples into a row; they do not attend to each other.
        max_seq_length: the longest instance in tokens with [CLS] and [SEP]; several lengths make several sets, from
            which `PretrainingSource` selects one by its `seq_length` (128 then 512, as in the paper).
        dupe_factor: number of times that training documents are cut into examples, each time differently. Masks are
            drawn when the examples are read.
        short_seq_prob: probability that a document (for mlm, an example) has a random shorter target length.
        validation_fraction: share of documents held out, chosen by a hash of their text; at least one.
        seed: seed of all random numbers.
        num_workers: number of processes; None = one per core. The result does not depend on it.
        shard_bytes: characters of text per shard; a longer chunk draws random segments from more documents and costs
            about ten times as many bytes of memory in each process.
        deduplicate: which documents are left out: "exact" = those with the text of an earlier one (`deduplication.py`),
            "near" = also those similar to an earlier one (`near_duplicates.py`), "" = none.
        similarity: minimum Jaccard similarity of the word 5-grams of documents that are "near".
        invalid: what to do with rows and files that cannot be read: "strict" = raise the first error, "skip" = leave
            them out, count them in the manifest and list them in `skipped.txt`; a file that is damaged or not text is
            left out from that point on.
        languages: the languages of the documents to keep, as ISO 639-1 codes; () = all.
        filters: functions that say which documents are kept, or change their text (`filters.py`): `FILE.py:FUNCTION` or
            `MODULE:FUNCTION`. Filters come before the comparison of documents. The manifest counts what they leave out.
        on_progress: called after each part, except on Beam.
        beam_options: options of Apache Beam and of its runner, which does the work in place of `num_workers` processes.
            The result does not depend on the runner. None = without Beam.

    Returns:
        The manifest of the new directory.

    Raises:
        InputError: the corpus cannot be read, is empty or is too small to hold documents out; or a setting is invalid.
    """
    lengths = (max_seq_length,) if isinstance(max_seq_length, int) else tuple(sorted(set(max_seq_length)))
    settings = PrepareSettings(
        objective,
        packed,
        lengths,
        dupe_factor,
        short_seq_prob,
        validation_fraction,
        seed,
        shard_bytes,
        deduplicate,
        similarity,
        invalid,
        Filters(tuple(languages), tuple(filters)),
    )
    settings.filters.check()
    if min(lengths, default=0) < (smallest := smallest_seq_length(tokenizer.layout)):
        raise InputError(f"max_seq_length: expected lengths of at least {smallest}, found {lengths}")
    corpus = corpus if isinstance(corpus, Corpus) else open_corpus(corpus, has_empty=invalid == "skip")
    units = cut_units(corpus, shard_bytes)
    if beam_options is not None and not _is_picklable(units):
        raise InputError(f"{corpus.spec}: expected a corpus that workers of Beam can open, found one in memory")
    with storage.directory_resumably(out_dir, _remove_all) as directory:
        job = Preparation.begin(settings, tokenizer, directory)
        if beam_options is not None:
            return _import_beam().run_on_beam(job, corpus.spec, units, beam_options)
        return _run_here(job, corpus, units, num_workers or os.cpu_count() or 1, on_progress)


def _remove_all(directory: storage.Path) -> None:
    """Remove what this preparation and killed ones before it wrote into a directory."""
    remove_own_files(directory)
    remove_records(directory)


def _run_here(
    job: Preparation,
    corpus: Corpus,
    units: Sequence[Unit],
    num_workers: int,
    on_progress: Callable[[PrepareProgress], None] | None,
) -> Manifest:
    """Run all steps in processes of this machine."""
    is_sent = num_workers > 1 and _is_picklable(units)
    progress = _Progress(corpus.num_bytes, on_progress)
    with Workers(job, num_workers) as workers:
        if job.kinds:
            compared = workers.map(compared_texts, units) if is_sent else ((u, compared_texts(job, u)) for u in units)
            list(workers.map(repeated, ranges_of_keys(job, [texts for _, texts in compared])))
        read_here: list[UnitSummary] = []
        parts = _parts(job, units, num_workers if is_sent else 0, read_here)
        train = Prepared.total([*map(progress.add, workers.map(prepared, parts)), Prepared([], read_here)])
        groups = groups_of_held_out(job, train)
        validation = list(map(progress.add, workers.map(prepared, groups)))
    return finish(job, corpus.spec, Prepared.total([train, *validation]))


def _import_beam() -> Any:
    """Return the module that runs a preparation on Apache Beam. Raises InputError where Beam is not installed."""
    try:
        from bert_jax.data.pretraining import beam
    except ImportError as error:
        raise InputError(f"--beam: expected Apache Beam: {how_to_install('beam')} ({error})") from None
    return beam


def _parts(
    job: Preparation, units: Sequence[Unit], readers: int, read_here: list[UnitSummary]
) -> Iterator[Unit | Chunk]:
    """Yield units to prepare, or the chunks of units that this process reads, whose summaries go to `read_here`.

    This process reads all units if there are no `readers` (processes that can read a unit); otherwise a few large ones,
    such as compressed files, whose chunks the other processes share.
    """
    large_units = {unit.index for unit in units if unit.num_bytes > _MOST_CHUNKS * job.settings.shard_bytes}
    if len(large_units) >= _MANY * readers:
        large_units = set()
    for unit in units:
        if readers and unit.index not in large_units:
            yield unit
            continue
        reader = UnitReader(unit, job.settings, job.directory)
        yield from reader.chunks()
        read_here.append(reader.summary())


def _is_picklable(units: Sequence[Unit]) -> bool:
    try:
        pickle.dumps(units[:1])
    except (pickle.PicklingError, AttributeError, TypeError):  # for example a nested function or an open file
        return False
    return True


class _Progress:
    """Counter of the finished parts of a corpus of `num_bytes`, which reports totals after each part."""

    def __init__(self, num_bytes: int | None, report: Callable[[PrepareProgress], None] | None):
        self._num_bytes, self._report = num_bytes, report
        self._documents = self._characters = self._instances = 0
        self._ends: dict[str, int] = {}  # unit -> the number of its bytes that are done

    def add(self, done: tuple[Unit | Chunk | HeldOut, Prepared]) -> Prepared:
        """Count a part, and return its result."""
        part, result = done
        self._documents += sum(chunk.documents for chunk in result.chunks)
        self._characters += sum(chunk.characters for chunk in result.chunks)
        self._instances += sum(instances.examples for chunk in result.chunks for instances in chunk.sets)
        if isinstance(part, Unit):
            self._ends[part.name] = part.num_bytes
        elif isinstance(part, Chunk):
            self._ends[part.unit] = max(self._ends.get(part.unit, 0), part.documents[-1].end)
        if self._report:
            is_last = isinstance(part, HeldOut)
            share = (1.0 if is_last else sum(self._ends.values()) / self._num_bytes) if self._num_bytes else None
            self._report(PrepareProgress(self._documents, self._characters, self._instances, share))
        return result
