"""Turn a corpus into shards of examples in bounded memory; the result does not depend on the number of processes.

The corpus is cut into chunks of about `shard_bytes` of text. One process tokenizes a chunk, draws random second
segments from the other documents of the chunk, with random numbers keyed by the chunk's number, and writes one shard
per sequence length. So memory is one chunk per process, and the result does not depend on which process prepares a
chunk. The result of each chunk is recorded beside its shards, so that a killed run resumes after the last one.
"""

import concurrent.futures.process
import dataclasses
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from bert_jax import storage
from bert_jax.data.corpora.sources import Corpus, open_corpus
from bert_jax.data.pretraining.chunk_shards import prepare_chunk
from bert_jax.data.pretraining.chunks import RECORDS_DIR, Chunk, ChunkResult, PrepareSettings, cut_chunks
from bert_jax.data.pretraining.corpus_checks import Duplicates, TextCounts, complaints
from bert_jax.data.pretraining.deduplication import REMOVED_FILE, Deduplication
from bert_jax.data.pretraining.instances import smallest_seq_length, token_dtype
from bert_jax.data.pretraining.manifest import MANIFEST_FILE, TOKENIZER_DIR, InstanceSet, Manifest
from bert_jax.data.pretraining.shards import SHARD_SUFFIX
from bert_jax.errors import InputError, logger
from bert_jax.storage import PathLike
from bert_jax.tokenization import Tokenizer, load_tokenizer

_LEFTOVERS = (SHARD_SUFFIX, ".array_record", ".done.json")  # suffixes of files of this and earlier versions

_logger = logger(__name__)


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
    deduplicate: bool = False,
    on_progress: Callable[[PrepareProgress], None] | None = None,
) -> Manifest:
    """Write the instances of a corpus, their manifest and a copy of the tokenizer into a new directory.

    A local directory appears when everything is written, or not at all; in an object store, the manifest does. A call
    after an interrupted one resumes.

    Args:
        corpus: documents, or the spec of a corpus (`corpora.py`).
        tokenizer: the tokenizer of the text; "[MASK]" and the like within the text are ordinary characters.
        out_dir: a new or empty directory, on a disk or in an object store.
        objective: the pretraining objective besides masked LM: nsp, sop or mlm (none) (`instances.py`).
        packed: whether short instances share rows of `max_seq_length` tokens (`packing.py`).
        max_seq_length: the longest instance in tokens with [CLS] and [SEP]; several lengths make several sets, from
            which `PretrainingSource` selects one by its `seq_length` (128 then 512, as in the paper).
        dupe_factor: the number of times that training documents are cut, each time differently. Masks are drawn when
            the examples are read.
        short_seq_prob: the probability that a document (for mlm, an instance) has a random shorter target length.
        validation_fraction: the share of documents held out: the second, and then one in every 1/fraction.
        seed: the seed of all random numbers.
        num_workers: the number of processes; None: one per core. The result does not depend on it.
        shard_bytes: characters of text per shard; a longer chunk draws random segments from more documents and costs
            about ten times as many bytes of memory in each process.
        deduplicate: whether documents whose text an earlier one has are left out (`deduplication.py`).
        on_progress: called after each chunk.

    Returns:
        The manifest of the new directory.

    Raises:
        InputError: the corpus cannot be read, is empty or is too small to hold documents out; or a setting is invalid.
    """
    lengths = (max_seq_length,) if isinstance(max_seq_length, int) else tuple(sorted(set(max_seq_length)))
    settings = PrepareSettings(
        objective, packed, lengths, dupe_factor, short_seq_prob, validation_fraction, seed, shard_bytes, deduplicate
    )
    if min(lengths, default=0) < (smallest := smallest_seq_length(tokenizer.layout)):
        raise InputError(f"max_seq_length: expected lengths of at least {smallest}, found {lengths}")
    corpus = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    with storage.directory_resumably(out_dir) as directory:
        (directory / MANIFEST_FILE).unlink(missing_ok=True)  # left by a run that was killed at its very end
        tokenizer.save(directory / TOKENIZER_DIR)
        (directory / RECORDS_DIR).mkdir(exist_ok=True)
        done: list[ChunkResult] = []
        duplicates, deduplication = Duplicates(), Deduplication()
        documents = deduplication.kept(corpus, directory) if deduplicate else duplicates.watched(corpus)
        chunks = cut_chunks(documents, settings)
        for result in _run(chunks, settings, tokenizer, directory, num_workers or os.cpu_count() or 1):
            done.append(result)
            if on_progress:
                on_progress(_progress(done, corpus.num_bytes))
        manifest = _manifest(corpus, tokenizer, settings, done, deduplication.removed)
        _remove_leftovers(directory, manifest)
        counts = TextCounts.total(result.counts for result in done)
        train = [instances for instances in manifest.sets if instances.split == "train"]
        for complaint in complaints(counts, duplicates.share, train, objective, packed):
            _logger.warning("%s: %s", corpus.spec, complaint)
        manifest.write(directory)
        # Removed after the manifest is written, so that a run killed before that repeats little work.
        (directory / RECORDS_DIR).rmtree(missing_ok=True)
    return manifest


def _remove_leftovers(directory: storage.Path, manifest: Manifest) -> None:
    """Remove shards of earlier runs with other settings, and files that a killed run left unfinished."""
    shards = {shard.name for instances in manifest.sets for shard in instances.shards}
    for path in list(directory.iterdir()):
        begun = path.name.startswith(".") and path.name.endswith(".partial")
        if begun or (path.name.endswith(_LEFTOVERS) and path.name not in shards):
            path.unlink()
    if not manifest.settings["deduplicate"]:
        (directory / REMOVED_FILE).unlink(missing_ok=True)


def _run(
    chunks: Iterator[Chunk], settings: PrepareSettings, tokenizer: Tokenizer, directory: storage.Path, num_workers: int
) -> Iterator[ChunkResult]:
    """Yield the result of each chunk, in order; in this process when there is one chunk or one worker."""
    first = next(chunks, None)
    second = next(chunks, None) if num_workers > 1 else None
    if second is None:
        for chunk in (c for group in ([first], chunks) for c in group if c is not None):
            yield prepare_chunk(chunk, settings, tokenizer, directory)
        return
    context = multiprocessing.get_context("spawn")  # forking a process in which JAX's threads run can hang
    pool = concurrent.futures.ProcessPoolExecutor(
        num_workers, context, _start_worker, (settings, os.fspath(directory / TOKENIZER_DIR), os.fspath(directory))
    )
    pending: deque[concurrent.futures.Future[ChunkResult]] = deque()
    try:
        for chunk in (c for group in ([first, second], chunks) for c in group if c is not None):
            pending.append(pool.submit(_work, chunk))
            if len(pending) > num_workers:  # one chunk waits while all workers are busy
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


def _work(chunk: Chunk) -> ChunkResult:
    assert _worker is not None, "the pool's initializer has run"
    settings, tokenizer, directory = _worker
    return prepare_chunk(chunk, settings, tokenizer, directory)


def _progress(done: Sequence[ChunkResult], num_bytes: int | None) -> PrepareProgress:
    return PrepareProgress(
        sum(r.documents for r in done),
        sum(r.characters for r in done),
        sum(s.examples for r in done for s in r.sets),
        max(r.end for r in done) / num_bytes if num_bytes else None,
    )


def _manifest(
    corpus: Corpus, tokenizer: Tokenizer, settings: PrepareSettings, done: Sequence[ChunkResult], removed: int
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
        removed=removed,
    )
