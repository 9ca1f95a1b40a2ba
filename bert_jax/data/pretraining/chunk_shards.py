"""Tokenize the documents of a chunk and write their instances as shards."""

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence

from bert_jax import storage
from bert_jax.data.corpora.readers import Document
from bert_jax.data.corpora.sentences import split_sentences
from bert_jax.data.packing import best_fit
from bert_jax.data.pretraining.chunks import Chunk, ChunkResult, PrepareSettings
from bert_jax.data.pretraining.corpus_checks import TextCounts
from bert_jax.data.pretraining.instances import (
    Instance,
    TokenDocument,
    encode_record,
    full_sentences,
    num_special,
    pairs_of_document,
    token_dtype,
)
from bert_jax.data.pretraining.manifest import InstanceSet
from bert_jax.data.pretraining.own_files import own_file
from bert_jax.data.pretraining.shards import SHARD_SUFFIX, write_shard
from bert_jax.tokenization import Tokenizer

_ENCODED_AT_ONCE = 4096  # sentences: keeps Python's lists of ids small compared with the arrays


def prepare_chunk(
    chunk: Chunk, settings: PrepareSettings, tokenizer: Tokenizer, directory: storage.Path
) -> ChunkResult:
    """Write the shards of a chunk into `directory`, one for each sequence length, or reuse the result of an earlier run
    with the same settings."""
    fingerprint = chunk.fingerprint(settings, tokenizer)
    if earlier := ChunkResult.read(chunk.record(directory), fingerprint):
        return earlier
    documents = _tokenized(chunk.documents, tokenizer)
    sets = [
        _write_shard(chunk, documents, length, tokenizer, settings, directory) for length in settings.max_seq_lengths
    ]
    result = ChunkResult(
        chunk.split,
        chunk.name,
        len(documents),
        sum(map(len, documents)),
        sum(document.characters for document in chunk.documents),
        [s for s in sets if s.examples],
        TextCounts.of(chunk.documents, documents, tokenizer),
    )
    result.write(chunk.record(directory), fingerprint)
    return result


def _tokenized(documents: Sequence[Document], tokenizer: Tokenizer) -> list[TokenDocument]:
    """Tokenize documents, and drop empty ones."""
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
    chunk: Chunk,
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
        rng = random.Random(f"{settings.seed}/{chunk.split}/{chunk.name}/{length}/{dupe}")
        instances = _instances(documents, length, tokenizer, settings, rng)
        for row in _rows(instances, length, settings.packed, specials):
            records.append(encode_record(row, dtype))
            examples += len(row)
            most = max(most, len(row))
            tokens += sum(instance.size + specials for instance in row)
            label_1 += sum(instance.label for instance in row)
    if not records:
        return InstanceSet(chunk.split, length, 0, 0, 0, 0, ())
    path = own_file(directory, f"{chunk.split}-{length}-{chunk.name}{SHARD_SUFFIX}")
    shard = write_shard(path, records, dtype)
    return InstanceSet(chunk.split, length, examples, most, tokens, label_1, (shard,))


def _rows(instances: Iterator[Instance], length: int, packed: bool, specials: int) -> Iterator[list[Instance]]:
    """Yield the instances of each row: one instance, or as many as fit where rows are packed."""
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
    """Make instances of the documents of a chunk, in one pass."""
    objective, short_prob = settings.objective, settings.short_seq_prob
    specials = num_special(objective, tokenizer.layout)
    if objective == "mlm":
        yield from full_sentences(documents, length, short_prob, tokenizer.sep_id, rng, specials)
    else:
        for index in range(len(documents)):
            yield from pairs_of_document(documents, index, length, short_prob, rng, objective, specials)
