"""Reading documents out of files: one function a format, each a stream that holds one document at a time."""

import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from bert_jax import storage
from bert_jax.data.lines import line_pieces
from bert_jax.errors import InputError, did_you_mean

DEFAULT_FIELD = "text"
# Longer documents are cut into several and longer lines into paragraphs, so that memory stays bounded whatever comes.
MAX_DOCUMENT_BYTES = 4 << 20
MAX_LINE_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Document:
    """Text that belongs together, in order.

    Attributes:
        name: where it comes from, for messages.
        texts: paragraphs, or sentences.
        are_sentences: whether `texts` are sentences already, so that they are not split further.
        end: bytes that a pass over the corpus (or its file) has read when it ends; of a data set, by the average row.
    """

    name: str
    texts: tuple[str, ...]
    are_sentences: bool = False
    end: int = 0


def read_text_documents(path: storage.Path) -> Iterator[Document]:
    """Yields the documents of a text file: a line is a paragraph, a blank line ends a document."""
    return _documents(path, blank_ends=True, are_sentences=False)


def read_file_document(path: storage.Path) -> Iterator[Document]:
    """Yields a text file as one document (several if it is longer than MAX_DOCUMENT_BYTES)."""
    return _documents(path, blank_ends=False, are_sentences=False)


def read_sentence_documents(path: storage.Path) -> Iterator[Document]:
    """Yields the documents of a file in the original's format: a line is a sentence, a blank line ends a document."""
    return _documents(path, blank_ends=True, are_sentences=True)


def _documents(path: storage.Path, blank_ends: bool, are_sentences: bool) -> Iterator[Document]:
    texts: list[str] = []
    size = count = end = 0
    for _, text, end in read_lines(path):
        line = text.strip()
        if line:
            texts.append(line)
            size += len(line)
        if texts and ((blank_ends and not line) or size >= MAX_DOCUMENT_BYTES):
            yield Document(f"{path}#{count}", tuple(texts), are_sentences, end)
            texts, size, count = [], 0, count + 1
    if texts:
        yield Document(f"{path}#{count}", tuple(texts), are_sentences, end)
    elif not count:
        raise InputError(f"{path}: expected text, found only blank lines")


def read_json_documents(path: storage.Path, field: str) -> Iterator[Document]:
    """Yields a document for each row of a JSON-lines file, from the text in `field`; blank rows are passed over."""
    count = 0
    for number, line, end in read_lines(path, MAX_DOCUMENT_BYTES * 16):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"{path}: line {number}: expected a JSON object, found {error.msg.lower()}") from None
        if not isinstance(row, dict):
            raise InputError(f"{path}: line {number}: expected a JSON object, found {type(row).__name__}")
        if field not in row:
            raise InputError(f"{path}: line {number}: expected a field {field!r}{did_you_mean(field, row)}")
        if not isinstance(row[field], str):
            raise InputError(f"{path}: line {number}: {field!r}: expected text, found {type(row[field]).__name__}")
        count += 1
        yield from text_documents(f"{path}:{number}", row[field], end)
    if not count:
        raise InputError(f"{path}: expected JSON lines, found only blank ones")


def text_documents(name: str, text: str, end: int = 0) -> Iterator[Document]:
    """Yields a text as a document, its lines as paragraphs; as several where it is longer than MAX_DOCUMENT_BYTES."""
    texts: list[str] = []
    size = 0
    for line in filter(None, (line.strip() for line in text.splitlines())):
        texts.append(line)
        size += len(line)
        if size >= MAX_DOCUMENT_BYTES:
            yield Document(name, tuple(texts), end=end)
            texts, size = [], 0
    if texts:
        yield Document(name, tuple(texts), end=end)


def open_tfds(name: str, split: str, field: str) -> tuple[Callable[[], Iterator[Document]], int]:
    """Returns a reader of a TensorFlow Datasets data set, in ArrayRecord format and without TensorFlow, and its bytes.

    The data set is looked for under $TFDS_DATA_DIR (else ~/tensorflow_datasets) and, being asked for by name, prepared
    there when it is not.

    Raises:
        InputError: no such data set, split or field, or it could not be prepared.
    """
    import tensorflow_datasets as tfds  # slow to import, and only needed here

    try:
        source = tfds.data_source(name, split=split, data_dir=os.environ.get("TFDS_DATA_DIR"))
    except Exception as error:  # whatever a data set's own code raises
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"tfds:{name}: expected a data set with a split {split!r}, found: {reason}") from None
    features, splits = source.dataset_info.features, source.dataset_info.splits.values()
    row_bytes = max(1, sum(s.num_bytes for s in splits) // max(1, sum(s.num_examples for s in splits)))
    if field not in features:
        raise InputError(f"tfds:{name}: expected a feature {field!r}{did_you_mean(field, features)}")

    def read() -> Iterator[Document]:
        for i in range(len(source)):
            value: Any = source[i][field]
            if not isinstance(value, bytes | str):
                raise InputError(f"tfds:{name}: {field!r}: expected text, found {type(value).__name__}")
            where = f"tfds:{name}:{split}:{i}"
            try:
                text = value.decode() if isinstance(value, bytes) else value
            except UnicodeDecodeError as error:
                raise InputError(f"{where}: expected UTF-8 text, found byte 0x{value[error.start]:02x}") from None
            yield from text_documents(where, text, (i + 1) * row_bytes)

    return read, len(source) * row_bytes


class Line(NamedTuple):
    """A line of a file: its number from 1, its text with the newline, and how much of the file has been read."""

    number: int
    text: str
    end: int


def read_lines(path: storage.Path, max_bytes: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """Yields the lines of a file; one that is longer than `max_bytes` comes in pieces.

    Raises:
        InputError: not UTF-8, or a compressed file that is cut short or damaged; names the file and the line.
    """
    path = storage.existing(path)
    number = 1
    try:
        with storage.open_decompressed(path) as (stream, file):
            for raw, ends in line_pieces(stream, max_bytes):
                yield Line(number, raw.decode("utf-8-sig" if number == 1 else "utf-8"), file.tell())
                number += ends
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise InputError(f"{path}: line {number}: expected UTF-8 text, found byte 0x{byte:02x}") from None
    except storage.DamagedError as error:
        raise InputError(f"{path}: line {number}: {error}") from None
