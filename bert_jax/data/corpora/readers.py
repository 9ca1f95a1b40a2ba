"""Read documents from files: one function per format, each yields one document at a time."""

import dataclasses
import operator
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

from bert_jax import storage
from bert_jax.data.invalid_rows import RowNumber, check_utf8, place
from bert_jax.data.json_files import JsonLayout, json_layout_of, read_json_file
from bert_jax.data.lines import MAX_ROW_BYTES, line_pieces, parse_object, stream_lines
from bert_jax.data.parquet_files import read_parquet
from bert_jax.data.signatures import HEAD_BYTES, OTHER_ENCODING, check_is_text
from bert_jax.data.tfds_sets import open_tfds
from bert_jax.errors import InputError, did_you_mean

DEFAULT_FIELD = "text"
# Longer documents are cut into several and longer lines into paragraphs, so that memory stays bounded for any input.
MAX_DOCUMENT_BYTES = 4 << 20
MAX_LINE_BYTES = 1 << 20
MAX_BLANK_LINES = 1_000_000  # in a row: more of them are not a text file
_BLANK = (b"\n", b"\r\n")


@dataclasses.dataclass(frozen=True)
class Document:
    """Text that belongs together, in order.

    Attributes:
        name: its source, for messages.
        texts: paragraphs, or sentences.
        are_sentences: whether `texts` are sentences already, so that they are not split further.
        end: bytes of the corpus (or of its file) up to the end of this document; for a data set, estimated from the
            average size of a row.
    """

    name: str
    texts: tuple[str, ...]
    are_sentences: bool = False
    end: int = 0


def read_text_documents(path: storage.Path) -> Iterator[Document]:
    """Yield the documents of a text file: a line is a paragraph, a blank line ends a document."""
    return _documents(path, operator.not_)


def read_file_document(path: storage.Path) -> Iterator[Document]:
    """Yield a text file as one document (several if it is longer than MAX_DOCUMENT_BYTES)."""
    return _documents(path, lambda line: False)


def read_sentence_documents(path: storage.Path) -> Iterator[Document]:
    """Yield the documents of a file in the original's format: a line is a sentence, a blank line ends a document."""
    return _documents(path, operator.not_, are_sentences=True)


def read_wikitext_documents(path: storage.Path) -> Iterator[Document]:
    """Yield the articles of a file of WikiText (Merity et al. 2016, arXiv:1609.07843), without their headings.

    A line is a paragraph; a title, ` = Title = `, begins an article, and ` = = Section = = ` is a heading in it.

    Raises:
        InputError: as `text_lines`, or the file has no title.
    """
    titles = 0

    def begins(line: str) -> bool:
        nonlocal titles
        is_title = is_wikitext_heading(line) and not line.startswith("= =")
        titles += is_title
        return is_title

    yield from _documents(path, begins, is_wikitext_heading)
    if not titles:
        raise InputError(f"{path}: expected the titles of WikiText, lines such as ' = Title = ', found none")


def is_wikitext_heading(line: str) -> bool:
    """Return whether a stripped line is a title or a heading in WikiText's format."""
    return len(line) > 4 and line.startswith("= ") and line.endswith(" =")


def _documents(
    path: storage.Path,
    ends: Callable[[str], bool],
    is_left_out: Callable[[str], bool] = operator.not_,
    are_sentences: bool = False,
) -> Iterator[Document]:
    """Yield the documents of a file whose lines are paragraphs (or sentences).

    Args:
        path: the file.
        ends: whether a stripped line ends the document before it.
        is_left_out: whether a stripped line is not part of a document, such as a blank line.
        are_sentences: the value of `Document.are_sentences`.
    """
    texts: list[str] = []
    size = count = end = 0
    for _, text, end in text_lines(path):
        line = text.strip()
        if line and not is_left_out(line):
            texts.append(line)
            size += len(line)
        if texts and (ends(line) or size >= MAX_DOCUMENT_BYTES):
            yield Document(f"{path}#{count}", tuple(texts), are_sentences, end)
            texts, size, count = [], 0, count + 1
    if texts:
        yield Document(f"{path}#{count}", tuple(texts), are_sentences, end)
    elif not count:
        raise InputError(f"{path}: expected text, found only blank lines")


def read_json_documents(path: storage.Path, field: str) -> Iterator[Document]:
    """Yield a document for each row of a JSON file, from the text in `field`.

    The rows are JSON lines (blank lines are skipped) or one array (`bert_jax.data.json_files`).
    """
    count = 0
    for number, row, end in _json_rows(path):
        where = place(str(path), number)
        count += 1
        yield from _row_documents(where, f"{path}:{number}", row, field, end)
    if not count:
        raise InputError(f"{path}: expected JSON lines, found only blank ones")


def _json_rows(path: storage.Path) -> Iterator[tuple[int, Any, int]]:
    """Yield (number, value, bytes read so far) of each row."""
    if json_layout_of(str(path)) is JsonLayout.ARRAY:
        rows, size = read_json_file(str(path)), path.size()
        yield from ((RowNumber(i), row, size * i // len(rows)) for i, row in enumerate(rows, 1))
        return
    for line in _decoded(path, lambda stream: stream_lines(stream, path, MAX_ROW_BYTES)):
        if line.text.strip():
            yield line.number, parse_object(place(str(path), line.number), line.text), line.end


def read_parquet_documents(path: storage.Path, field: str) -> Iterator[Document]:
    """Yield a document for each row of a Parquet file, from the text in its column `field`.

    Raises:
        InputError: pyarrow is not installed, the file is not Parquet, or there is no such column of texts.
    """
    size, found = path.size(), False
    for number, row, share in read_parquet(path, [field]):
        found = True
        yield from _row_documents(place(str(path), number), f"{path}:{number}", row, field, round(size * share))
    if not found:
        raise InputError(f"{path}: expected rows, found none")


def _row_documents(where: str, name: str, row: Any, field: str, end: int) -> Iterator[Document]:
    """Yield the document of a row, from the text in its field."""
    if not isinstance(row, dict):
        raise InputError(f"{where}: expected a JSON object, found {type(row).__name__}")
    if field not in row:
        raise InputError(f"{where}: expected a field {field!r}{did_you_mean(field, row)}")
    if not isinstance(row[field], str):
        raise InputError(f"{where}: {field!r}: expected text, found {type(row[field]).__name__}")
    check_utf8(where, row[field])
    yield from text_documents(name, row[field], end)


def text_documents(name: str, text: str, end: int = 0) -> Iterator[Document]:
    """Yield a text as one document, or as several if it is longer than MAX_DOCUMENT_BYTES; lines are paragraphs."""
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


def tfds_documents(name: str, split: str, field: str) -> tuple[Callable[[], Iterator[Document]], int]:
    """Return a reader of the documents of a TFDS data set, and the data set's size in bytes.

    Raises:
        InputError: as `open_tfds`, or the field is not text.
    """
    source, _ = open_tfds(f"tfds:{name}:{split}", [field])
    splits = source.dataset_info.splits.values()
    row_bytes = max(1, sum(s.num_bytes for s in splits) // max(1, sum(s.num_examples for s in splits)))

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
    """A line of a file: its number from 1, its text with the newline, and the bytes of the file read so far."""

    number: int
    text: str
    end: int


def text_lines(path: storage.Path, max_bytes: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """Yield the lines of a file; cut lines longer than `max_bytes` into pieces.

    Raises:
        InputError: the file is not text, not UTF-8, truncated or damaged; the message names the file and the line.
    """

    def pieces(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        number = 1
        for raw, ends in line_pieces(stream, max_bytes):
            yield number, raw
            number += ends

    return _decoded(path, pieces)


def _decoded(path: storage.Path, read: Callable[[IO[bytes]], Iterator[tuple[int, bytes]]]) -> Iterator[Line]:
    """Yield the lines that `read` finds in a file, decoded."""
    number, is_first, blank = 1, True, 0
    path = storage.existing(path)
    try:
        with storage.open_decompressed(path) as (stream, file):
            for number, raw in read(stream):
                if is_first:
                    check_is_text(path, raw[:HEAD_BYTES])
                blank = blank + 1 if raw in _BLANK else 0
                if blank > MAX_BLANK_LINES:
                    raise InputError(f"{path}: line {number}: expected text, found {blank:,} blank lines before it")
                yield Line(number, raw.decode("utf-8-sig" if is_first else "utf-8"), file.tell())
                is_first = False
    except UnicodeDecodeError as error:
        found = f"byte 0x{error.object[error.start]:02x} at offset {error.start} of the line"
        raise InputError(f"{path}: line {number}: expected UTF-8 text, found {found}; {OTHER_ENCODING}") from None
    except storage.DamagedError as error:
        raise InputError(f"{path}: line {number}: {error}") from None
