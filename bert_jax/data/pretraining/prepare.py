"""Turn a corpus into shards of examples in bounded memory; the result does not depend on the number of processes.

The corpus is cut into chunks of about `shard_bytes` of text. A chunk is the unit of everything: one process tokenizes
it and draws random second segments from its other documents, with random numbers keyed by the chunk's number; it
becomes one shard per sequence length. So memory is a chunk per process, and who does which chunk does not matter. What
has become of a chunk is written beside its shards, so that a killed run resumes from there.
"""

import concurrent.futures.process
import dataclasses
import hashlib
import itertools
import json
import multiprocessing
import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from bert_jax import storage
from bert_jax.data.corpora.readers import Document
from bert_jax.data.corpora.sentences import split_sentences
from bert_jax.data.corpora.sources import Corpus, open_corpus
from bert_jax.data.packing import best_fit
from bert_jax.data.pretraining.corpus_checks import Duplicates, TextCounts, complaints
from bert_jax.data.pretraining.instances import (
    OBJECTIVES,
    Instance,
    TokenDocument,
    encode_record,
    full_sentences,
    num_special,
    pairs_of_document,
    smallest_seq_length,
    token_dtype,
)
from bert_jax.data.pretraining.manifest import MANIFEST_FILE, TOKENIZER_DIR, InstanceSet, Manifest
from bert_jax.data.pretraining.shards import SHARD_SUFFIX, write_shard
from bert_jax.errors import InputError, did_you_mean, logger
from bert_jax.storage import PathLike
from bert_jax.tokenization import Tokenizer, load_tokenizer

_RECORDS_DIR = "done_chunks"  # within the directory, until all is written
_RECORD_VERSION = 2  # of what they hold
_LEFTOVERS = (SHARD_SUFFIX, ".array_record", ".done.json")  # what this version and an earlier one may have written
_ENCODED_AT_ONCE = 4096  # sentences, so that Python's lists of ids stay small beside the arrays

_logger = logger(__name__)


@dataclasses.dataclass(frozen=True)
class PrepareSettings:
    """How a corpus becomes instances; see `prepare`."""

    objective: str
    packed: bool
    max_seq_lengths: tuple[int, ...]
    dupe_factor: int
    short_seq_prob: float
    validation_fraction: float
    seed: int
    shard_bytes: int

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise InputError(f"objective {self.objective!r} is not known{did_you_mean(self.objective, OBJECTIVES)}")
        for name, holds, wanted in (
            ("dupe_factor", self.dupe_factor >= 1, "at least 1"),
            ("short_seq_prob", 0 <= self.short_seq_prob <= 1, "0 to 1"),
            ("validation_fraction", 0 <= self.validation_fraction < 1, "0 to less than 1"),
            ("shard_bytes", self.shard_bytes >= 1, "at least 1"),
        ):  # fmt: skip
            if not holds:
                raise InputError(f"{name}: expected {wanted}, found {getattr(self, name)}")


@dataclasses.dataclass(frozen=True)
class PrepareProgress:
    """What is done so far: documents, characters of their text, instances made of them, and the share of the corpus
    (None where its size is not known)."""

    documents: int
    characters: int
    instances: int
    share: float | None


@dataclasses.dataclass(frozen=True)
class _Chunk:
    split: str
    index: int
    documents: list[Document]

    def fingerprint(self, settings: PrepareSettings, tokenizer: Tokenizer) -> str:
        """Of all that its shards depend on."""
        made_by = (_RECORD_VERSION, dataclasses.astuple(settings), tokenizer.fingerprint, self.split, self.index)
        digest = hashlib.sha256(repr(made_by).encode())
        for document in self.documents:
            digest.update(repr((document.texts, document.are_sentences)).encode())
        return digest.hexdigest()

    def record(self, directory: storage.Path) -> storage.Path:
        """The file that tells that it is done."""
        return directory / _RECORDS_DIR / f"{self.split}-{self.index:05d}.json"


@dataclasses.dataclass(frozen=True)
class _ChunkResult:
    split: str
    documents: int
    sentences: int
    characters: int
    end: int  # of its last document
    sets: list[InstanceSet]  # one shard each
    counts: TextCounts

    @classmethod
    def read(cls, path: storage.Path, fingerprint: str) -> "_ChunkResult | None":
        """Read the result of a chunk from an earlier run; None where it is missing, damaged or of other settings."""
        try:
            content = json.loads(path.read_bytes())
            if content.pop("fingerprint") != fingerprint:
                return None
            sets, counts = map(InstanceSet.parse, content["sets"]), TextCounts(**content["counts"])
            return cls(**{**content, "sets": list(sets), "counts": counts})
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError, AttributeError, InputError) as error:
            _logger.warning("%s is damaged (%s); its chunk is prepared again", path, error)
            return None

    def write(self, path: storage.Path, fingerprint: str) -> None:
        """Write the result for `read` in a resumed run."""
        storage.write_atomically(path, json.dumps({"fingerprint": fingerprint, **dataclasses.asdict(self)}))


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
    on_progress: Callable[[PrepareProgress], None] | None = None,
) -> Manifest:
    """Writes the instances of a corpus, their manifest and a copy of the tokenizer into a new directory.

    A local directory appears when all is written, or not at all; in an object store, the manifest does. Killed or
    interrupted, and called again, it resumes.

    Args:
        corpus: documents, or the spec of a corpus (`corpora.py`).
        tokenizer: cuts the text; "[MASK]" and the like within it are characters like any other.
        out_dir: a new or empty directory, on a disk or in an object store.
        objective: what instances are made for, besides masks: nsp, sop or mlm (`instances.py`).
        packed: whether short instances share rows of `max_seq_length` tokens (`packing.py`).
        max_seq_length: longest instance in tokens with [CLS] and [SEP]; several lengths give several sets, from
            which `PretrainingSource` takes the one that it is asked for (128 then 512, as in the paper).
        dupe_factor: times that training documents are cut up, each time at other places. Masks are not drawn here.
        short_seq_prob: probability that a document (for mlm, an instance) aims at a shorter, random length.
        validation_fraction: share of documents held out: the second, and then one every 1/fraction.
        seed: draws everything.
        num_workers: processes; None takes one a core. The result does not depend on it.
        shard_bytes: characters of text a shard; a longer chunk gives random segments from more documents and costs
            about ten times as many bytes of memory in each process.
        on_progress: called after each chunk.

    Returns:
        The manifest of what was written.

    Raises:
        InputError: the corpus cannot be read, is empty or too small to hold documents out; a setting makes no sense.
    """
    lengths = (max_seq_length,) if isinstance(max_seq_length, int) else tuple(sorted(set(max_seq_length)))
    settings = PrepareSettings(
        objective, packed, lengths, dupe_factor, short_seq_prob, validation_fraction, seed, shard_bytes
    )
    if min(lengths, default=0) < (smallest := smallest_seq_length(tokenizer.layout)):
        raise InputError(f"max_seq_length: expected lengths of at least {smallest}, found {lengths}")
    corpus = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    with storage.directory_resumably(out_dir) as directory:
        (directory / MANIFEST_FILE).unlink(missing_ok=True)  # of a run that was killed at its very end
        tokenizer.save(directory / TOKENIZER_DIR)
        (directory / _RECORDS_DIR).mkdir(exist_ok=True)
        done: list[_ChunkResult] = []
        duplicates = Duplicates()
        chunks = _chunks(duplicates.watched(corpus), settings)
        for result in _run(chunks, settings, tokenizer, directory, num_workers or os.cpu_count() or 1):
            done.append(result)
            if on_progress:
                on_progress(_progress(done, corpus.num_bytes))
        manifest = _manifest(corpus, tokenizer, settings, done)
        _remove_leftovers(directory, manifest)
        counts = TextCounts.total(result.counts for result in done)
        train = [instances for instances in manifest.sets if instances.split == "train"]
        for complaint in complaints(counts, duplicates.share, train, objective, packed):
            _logger.warning("%s: %s", corpus.spec, complaint)
        manifest.write(directory)
        # After the manifest, so that a run that is killed before has little to do again.
        (directory / _RECORDS_DIR).rmtree(missing_ok=True)
    return manifest


def _remove_leftovers(directory: storage.Path, manifest: Manifest) -> None:
    """Removes shards of earlier runs with other settings, and files that a killed run had begun to write."""
    shards = {shard.name for instances in manifest.sets for shard in instances.shards}
    for path in list(directory.iterdir()):
        begun = path.name.startswith(".") and path.name.endswith(".partial")
        if begun or (path.name.endswith(_LEFTOVERS) and path.name not in shards):
            path.unlink()


def _chunks(corpus: Iterable[Document], settings: PrepareSettings) -> Iterator[_Chunk]:
    """Yields chunks of at least `shard_bytes`; a split's remainder joins its last chunk unless it is half of one."""
    full: dict[str, list[Document]] = {}  # a chunk is held back until it is known whether a remainder follows
    filling: dict[str, list[Document]] = {"train": [], "validation": []}
    sizes = dict.fromkeys(filling, 0)
    numbers = dict.fromkeys(filling, 0)

    def finished(split: str) -> _Chunk:
        numbers[split] += 1
        return _Chunk(split, numbers[split] - 1, full.pop(split))

    for number, document in enumerate(corpus):
        split = "validation" if is_held_out(number, settings.validation_fraction) else "train"
        filling[split].append(document)
        sizes[split] += sum(map(len, document.texts))
        if sizes[split] >= settings.shard_bytes:
            if split in full:
                yield finished(split)
            full[split], filling[split], sizes[split] = filling[split], [], 0
    for split, rest in filling.items():
        if split in full and sizes[split] < settings.shard_bytes // 2:
            full[split] += rest
        elif rest:
            if split in full:
                yield finished(split)
            full[split] = rest
        if split in full:
            yield finished(split)


def is_held_out(number: int, fraction: float) -> bool:
    """Whether document `number` (from 0) is the second, or opens another 1/fraction after it."""
    if number <= 1:
        return number == 1 and fraction > 0
    return int((number - 1) * fraction) > int((number - 2) * fraction)


def _run(
    chunks: Iterator[_Chunk], settings: PrepareSettings, tokenizer: Tokenizer, directory: storage.Path, num_workers: int
) -> Iterator[_ChunkResult]:
    """Yields the result of each chunk, in order; in this process when there is one chunk or one worker."""
    first = next(chunks, None)
    second = next(chunks, None) if num_workers > 1 else None
    if second is None:
        for chunk in (c for group in ([first], chunks) for c in group if c is not None):
            yield _prepare_chunk(chunk, settings, tokenizer, directory)
        return
    context = multiprocessing.get_context("spawn")  # forking a process in which JAX's threads run can hang
    pool = concurrent.futures.ProcessPoolExecutor(
        num_workers, context, _start_worker, (settings, os.fspath(directory / TOKENIZER_DIR), os.fspath(directory))
    )
    pending: deque[concurrent.futures.Future[_ChunkResult]] = deque()
    try:
        for chunk in (c for group in ([first, second], chunks) for c in group if c is not None):
            pending.append(pool.submit(_work, chunk))
            if len(pending) > num_workers:  # one waits while the others are worked on
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except concurrent.futures.process.BrokenProcessPool:
        raise OSError(
            "a worker process died: out of memory (fewer workers or smaller shards need less), or this was called by a "
            'script without `if __name__ == "__main__":`'
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


_worker: tuple[PrepareSettings, Tokenizer, storage.Path] | None = None  # set once in each worker process


def _start_worker(settings: PrepareSettings, tokenizer_dir: str, directory: str) -> None:
    global _worker
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    _worker = (settings, load_tokenizer(tokenizer_dir), storage.Path(directory))


def _work(chunk: _Chunk) -> _ChunkResult:
    assert _worker is not None, "the pool's initializer has run"
    settings, tokenizer, directory = _worker
    return _prepare_chunk(chunk, settings, tokenizer, directory)


def _prepare_chunk(
    chunk: _Chunk, settings: PrepareSettings, tokenizer: Tokenizer, directory: storage.Path
) -> _ChunkResult:
    fingerprint = chunk.fingerprint(settings, tokenizer)
    if earlier := _ChunkResult.read(chunk.record(directory), fingerprint):
        return earlier
    documents = _tokenized(chunk.documents, tokenizer)
    sets = [
        _write_shard(chunk, documents, length, tokenizer, settings, directory) for length in settings.max_seq_lengths
    ]
    result = _ChunkResult(
        chunk.split,
        len(documents),
        sum(map(len, documents)),
        sum(len(text) for document in chunk.documents for text in document.texts),
        chunk.documents[-1].end,
        [s for s in sets if s.examples],
        TextCounts.of(chunk.documents, documents, tokenizer),
    )
    result.write(chunk.record(directory), fingerprint)
    return result


def _tokenized(documents: Sequence[Document], tokenizer: Tokenizer) -> list[TokenDocument]:
    """The documents as ids; without empty ones."""
    dtype = token_dtype(tokenizer.vocab_size)
    texts = [list(_sentences(document)) for document in documents]
    encoded = _encoded(itertools.chain.from_iterable(texts), tokenizer)
    tokenized = (TokenDocument.of(itertools.islice(encoded, len(sentences)), dtype) for sentences in texts)
    return [document for document in tokenized if len(document)]


def _encoded(sentences: Iterator[str], tokenizer: Tokenizer) -> Iterator[list[int]]:
    while group := list(itertools.islice(sentences, _ENCODED_AT_ONCE)):
        yield from tokenizer.encode_batch(group, parse_special=False)


def _sentences(document: Document) -> Iterable[str]:
    if document.are_sentences:
        return document.texts
    return (sentence for text in document.texts for sentence in split_sentences(text))


def _write_shard(
    chunk: _Chunk,
    documents: list[TokenDocument],
    length: int,
    tokenizer: Tokenizer,
    settings: PrepareSettings,
    directory: storage.Path,
) -> InstanceSet:
    dtype = token_dtype(tokenizer.vocab_size)
    specials = num_special(settings.objective, tokenizer.layout)
    records: list[bytes] = []
    examples = most = tokens = label_1 = 0
    for dupe in range(settings.dupe_factor if chunk.split == "train" else 1):
        rng = random.Random(f"{settings.seed}/{chunk.split}/{chunk.index}/{length}/{dupe}")
        instances = _instances(documents, length, tokenizer, settings, rng)
        for row in _rows(instances, length, settings.packed, specials):
            records.append(encode_record(row, dtype))
            examples += len(row)
            most = max(most, len(row))
            tokens += sum(instance.size + specials for instance in row)
            label_1 += sum(instance.label for instance in row)
    if not records:
        return InstanceSet(chunk.split, length, 0, 0, 0, 0, ())
    path = directory / f"{chunk.split}-{length}-{chunk.index:05d}{SHARD_SUFFIX}"
    shard = write_shard(path, records, dtype)
    return InstanceSet(chunk.split, length, examples, most, tokens, label_1, (shard,))


def _rows(instances: Iterator[Instance], length: int, packed: bool, specials: int) -> Iterator[list[Instance]]:
    """What stands in each row: one instance, or as many as find room."""
    if not packed:
        yield from ([instance] for instance in instances)
        return
    together = list(instances)
    for row in best_fit([instance.size + specials for instance in together], length):
        yield [together[i] for i in row]


def _instances(
    documents: list[TokenDocument],
    length: int,
    tokenizer: Tokenizer,
    settings: PrepareSettings,
    rng: random.Random,
) -> Iterator[Instance]:
    """One pass over the documents of a chunk."""
    objective, short = settings.objective, settings.short_seq_prob
    specials = num_special(objective, tokenizer.layout)
    if objective == "mlm":
        yield from full_sentences(documents, length, short, tokenizer.sep_id, rng, specials)
    else:
        for index in range(len(documents)):
            yield from pairs_of_document(documents, index, length, short, rng, objective, specials)


def _progress(done: Sequence[_ChunkResult], num_bytes: int | None) -> PrepareProgress:
    return PrepareProgress(
        sum(r.documents for r in done),
        sum(r.characters for r in done),
        sum(s.examples for r in done for s in r.sets),
        max(r.end for r in done) / num_bytes if num_bytes else None,
    )


def _manifest(
    corpus: Corpus, tokenizer: Tokenizer, settings: PrepareSettings, done: Sequence[_ChunkResult]
) -> Manifest:
    documents = {split: sum(r.documents for r in done if r.split == split) for split in ("train", "validation")}
    sentences = {split: sum(r.sentences for r in done if r.split == split) for split in ("train", "validation")}
    if not documents["train"]:
        raise InputError(f"{corpus.spec}: expected documents with text, found none")
    if settings.validation_fraction and not documents["validation"]:
        raise InputError(f"{corpus.spec}: expected documents to hold out, found only one; set validation_fraction to 0")
    sets = []
    for split in documents:
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
        settings={"corpus": corpus.spec, **dataclasses.asdict(settings)},
        objective=settings.objective,
        packed=settings.packed,
        tokenizer_fingerprint=tokenizer.fingerprint,
        vocab_size=tokenizer.vocab_size,
        token_dtype=token_dtype(tokenizer.vocab_size).name,
        documents=documents,
        sentences=sentences,
        sets=tuple(sets),
    )
