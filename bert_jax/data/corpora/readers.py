"""Read documents from files: one function per format yields one document at a time.

A function that takes a `ByteRange` yields the documents that begin in it. The ranges of a file together yield each of
its documents once, so that several processes can read one file.
"""

import dataclasses
import hashlib
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
# Longer documents are cut into several, and longer lines into several paragraphs, which bounds memory for any input.
MAX_DOCUMENT_BYTES = 4 << 20
MAX_LINE_BYTES = 1 << 20
MAX_BLANK_LINES = 1_000_000  # consecutive blank lines; a file with more is not a text file
_BLANK = (b"\n", b"\r\n")


@dataclasses.dataclass(frozen=True)
class Document:
    """Text that belongs together, in order.

    Attributes:
        name: its source, for messages.
        texts: paragraphs, or sentences.
        are_sentences: whether `texts` are sentences already, so that they are not split further.
        end: the number of bytes up to its end in the file, or in the range that is read; for a data set, estimated from
            the average size of a row.
    """

    name: str
    texts: tuple[str, ...]
    are_sentences: bool = False
    end: int = 0

    @property
    def characters(self) -> int:
        """The number of characters."""
        return sum(map(len, self.texts))

    def digest(self, size: int) -> bytes:
        """Return a hash of the paragraphs, of `size` bytes."""
        digest = hashlib.blake2b(digest_size=size)
        for text in self.texts:
            digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
        return digest.digest()

    def number(self) -> int:
        """Return a hash of the paragraphs as a number below 2**64."""
        return int.from_bytes(self.digest(8))


class ByteRange(NamedTuple):
    """Bytes `start` to `stop` - 1 of a file; `stop` None = to its end."""

    start: int = 0
    stop: int | None = None

    def name(self, path: storage.PathLike) -> str:
        """Return the name of the range for messages, which count lines from the start of the range."""
        return f"{path} after byte {self.start}" if self.start else str(path)

    def ends_before(self, position: int) -> bool:
        """Return whether the range ends before the byte at a position."""
        return self.stop is not None and position >= self.stop


WHOLE = ByteRange()
Invalid = Callable[[InputError], None]  # called with the error of an invalid row


def strict(error: InputError) -> None:
    """Raise the error of an invalid row."""
    raise error


def read_text_documents(path: storage.PathLike, part: ByteRange = WHOLE) -> Iterator[Document]:
    """Yield the documents of a text file: a line is a paragraph, a blank line ends a document."""
    return _documents(path, operator.not_, part=part)


def read_file_document(path: storage.PathLike) -> Iterator[Document]:
    """Yield a text file as one document (several if it is longer than MAX_DOCUMENT_BYTES)."""
    return _documents(path, lambda line: False)


def read_sentence_documents(path: storage.PathLike, part: ByteRange = WHOLE) -> Iterator[Document]:
    """Yield documents in the format of the original BERT: a line is a sentence, a blank line ends a document."""
    return _documents(path, operator.not_, are_sentences=True, part=part)


def read_wikitext_documents(path: storage.PathLike, part: ByteRange = WHOLE) -> Iterator[Document]:
    """Yield the articles of a file of WikiText (Merity et al. 2016, arXiv:1609.07843), without their headings.

    A line is a paragraph; a title, ` = Title = `, begins an article, and ` = = Section = = ` is a heading in it.

    Raises:
        InputError: as `text_lines`, or the file has no title.
    """
    return _documents(path, _is_title, is_wikitext_heading, part=part, titles="WikiText, lines such as ' = Title = '")


def _is_title(line: str) -> bool:
    return is_wikitext_heading(line) and not line.startswith("= =")


def is_wikitext_heading(line: str) -> bool:
    """Return whether a stripped line is a title or a heading in WikiText's format."""
    return len(line) > 4 and line.startswith("= ") and line.endswith(" =")


def _documents(
    path: storage.PathLike,
    ends: Callable[[str], bool],
    is_left_out: Callable[[str], bool] = operator.not_,
    are_sentences: bool = False,
    part: ByteRange = WHOLE,
    titles: str = "",
) -> Iterator[Document]:
    """Yield the documents of a file whose lines are paragraphs (or sentences).

    A document begins at the line that ends the previous document; the first document begins at byte 0.

    Args:
        path: the file.
        ends: whether a stripped line ends the document before it.
        is_left_out: whether a stripped line is not part of a document, such as a blank line.
        are_sentences: the value of `Document.are_sentences`.
        part: the range in which the documents begin.
        titles: a description, for the error message, of the titles; the file needs at least one. "" = it needs none.
    """
    name = part.name(path)
    texts: list[str] = []
    size = count = end = 0
    begins_here, has_title = not part.start, False
    for line in text_lines(path, part=part):
        text, end = line.text.strip(), line.end
        if is_end := line.is_beginning and ends(text):
            if texts:
                yield Document(f"{name}#{count}", tuple(texts), are_sentences, line.start - part.start)
                texts, size, count = [], 0, count + 1
            begins_here, has_title = True, True
        if part.ends_before(line.start) and (is_end or not begins_here):
            return
        if begins_here and text and not is_left_out(text):
            texts.append(text)
            size += len(text)
        if size >= MAX_DOCUMENT_BYTES:
            yield Document(f"{name}#{count}", tuple(texts), are_sentences, end - part.start)
            texts, size, count = [], 0, count + 1
    if texts:
        yield Document(f"{name}#{count}", tuple(texts), are_sentences, end - part.start)
    if part.start:
        return
    if not count and not texts:
        raise InputError(f"{path}: expected text, found only blank lines")
    if titles and not has_title:
        raise InputError(f"{path}: expected the titles of {titles}, found none")


def read_json_documents(
    path: storage.PathLike, field: str, part: ByteRange = WHOLE, invalid: Invalid = strict
) -> Iterator[Document]:
    """Yield a document for each row of a JSON file, from the text in `field`.

    The rows are JSON lines (blank lines are skipped) or one array (`bert_jax.data.json_files`), which has no ranges.
    """
    count, name = 0, part.name(path)
    for number, row, end in _json_rows(path, part, invalid):
        count += 1
        yield from row_documents(place(name, number), f"{name}:{number}", row, field, end, invalid)
    if not count and part == WHOLE:
        raise InputError(f"{path}: expected JSON lines, found only blank ones")


def _json_rows(path: storage.PathLike, part: ByteRange, invalid: Invalid) -> Iterator[tuple[int, Any, int]]:
    """Yield (number, value, bytes read so far) of each row."""
    if part == WHOLE and json_layout_of(str(path)) is JsonLayout.ARRAY:
        rows, size = read_json_file(str(path)), storage.Path(path).size()
        yield from ((RowNumber(i), row, size * i // len(rows)) for i, row in enumerate(rows, 1))
        return
    name = part.name(path)

    def lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes, bool]]:
        return ((number, line, True) for number, line in stream_lines(stream, name, MAX_ROW_BYTES))

    for line in _decoded(path, lines, part):
        if part.ends_before(line.start):
            return
        if line.text.strip():
            try:
                row = parse_object(place(name, line.number), line.text)
            except InputError as error:
                invalid(error)
                continue
            yield line.number, row, line.end - part.start


def read_parquet_documents(
    path: storage.PathLike, field: str, part: ByteRange = WHOLE, invalid: Invalid = strict
) -> Iterator[Document]:
    """Yield a document for each row of a Parquet file, from the text in its column `field`.

    A row group belongs to the range that contains its first byte.

    Raises:
        InputError: pyarrow is not installed, the file is not Parquet, or there is no such column of texts.
    """
    size, has_rows = storage.Path(path).size(), False
    for number, row, share in read_parquet(path, [field], part.start, part.stop):
        has_rows = True
        end = round(size * share) - part.start
        yield from row_documents(place(str(path), number), f"{path}:{number}", row, field, end, invalid)
    if not has_rows and part == WHOLE:
        raise InputError(f"{path}: expected rows, found none")


def row_documents(where: str, name: str, row: Any, field: str, end: int, invalid: Invalid) -> Iterator[Document]:
    """Yield the text in a row's field as one document, or several if long."""
    try:
        text = _text_of(where, row, field)
    except InputError as error:
        invalid(error)
        return
    yield from text_documents(name, text, end)


def _text_of(where: str, row: Any, field: str) -> str:
    if not isinstance(row, dict):
        raise InputError(f"{where}: expected a JSON object, found {type(row).__name__}")
    if field not in row:
        raise InputError(f"{where}: expected a field {field!r}{did_you_mean(field, row)}")
    if not isinstance(row[field], str):
        raise InputError(f"{where}: {field!r}: expected text, found {type(row[field]).__name__}")
    check_utf8(where, row[field])
    return row[field]


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


def read_tfds_documents(name: str, split: str, field: str, row_bytes: int, start: int, stop: int) -> Iterator[Document]:
    """Yield a document for each of the rows `start` to `stop - 1` of a TFDS data set.

    Args:
        name: the data set.
        split: a split of it.
        field: the field of the text.
        row_bytes: the average size of a row in bytes.
        start: the first row, from 0.
        stop: the row after the last.

    Raises:
        InputError: as `open_tfds`, or a field is not text.
    """
    source, _ = open_tfds(f"tfds:{name}:{split}", [field])
    for i in range(start, stop):
        value: Any = source[i][field]
        if not isinstance(value, bytes | str):
            raise InputError(f"tfds:{name}: {field!r}: expected text, found {type(value).__name__}")
        where = f"tfds:{name}:{split}:{i}"
        try:
            text = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError as error:
            raise InputError(f"{where}: expected UTF-8 text, found byte 0x{value[error.start]:02x}") from None
        yield from text_documents(where, text, (i + 1 - start) * row_bytes)


class Line(NamedTuple):
    """A line of a file, or a piece of a long one.

    Attributes:
        number: its number from 1; in a range of a file, from the first line that begins in it.
        text: its text, with the newline.
        start: the number of bytes of the file before it.
        end: the number of bytes of the file up to its end.
        is_beginning: whether it is a whole line or the first piece of one.
    """

    number: int
    text: str
    start: int
    end: int
    is_beginning: bool


def text_lines(path: storage.PathLike, max_bytes: int = MAX_LINE_BYTES, part: ByteRange = WHOLE) -> Iterator[Line]:
    """Yield all lines of a file from the first one that begins in a range; cut lines over `max_bytes` into pieces.

    Raises:
        InputError: the file is not text, not UTF-8, truncated or damaged; the message names the file and the line.
    """

    def pieces(stream: IO[bytes]) -> Iterator[tuple[int, bytes, bool]]:
        number, is_beginning = 1, True
        for raw, ends in line_pieces(stream, max_bytes):
            yield number, raw, is_beginning
            number += ends
            is_beginning = ends

    return _decoded(path, pieces, part)


def _decoded(
    path: storage.PathLike, read: Callable[[IO[bytes]], Iterator[tuple[int, bytes, bool]]], part: ByteRange
) -> Iterator[Line]:
    """Decode the lines that `read` yields, from the first line that begins in a range.

    Args:
        path: the file.
        read: yields (line number, bytes, whether they begin a line) from an open file.
        part: the range.
    """
    number, is_first, blank = 1, not part.start, 0
    path, name = storage.existing(path), part.name(path)
    try:
        with storage.open_decompressed(path) as (stream, file):
            if part.start and not _skip_line(stream, part):
                return
            start = file.tell()
            for number, raw, is_beginning in read(stream):
                if is_first:
                    check_is_text(path, raw[:HEAD_BYTES])
                blank = blank + 1 if raw in _BLANK else 0
                if blank > MAX_BLANK_LINES:
                    raise InputError(f"{name}: line {number}: expected text, found {blank:,} blank lines before it")
                end = file.tell()
                yield Line(number, raw.decode("utf-8-sig" if is_first else "utf-8"), start, end, is_beginning)
                start, is_first = end, False
    except UnicodeDecodeError as error:
        problem = f"byte 0x{error.object[error.start]:02x} at offset {error.start} of the line"
        raise InputError(f"{name}: line {number}: expected UTF-8 text, found {problem}; {OTHER_ENCODING}") from None
    except storage.DamagedError as error:
        raise InputError(f"{name}: line {number}: {error}") from None


def _skip_line(stream: IO[bytes], part: ByteRange) -> bool:
    """Seek to the first line that begins in a range; return whether there is one."""
    stream.seek(part.start - 1)
    while (raw := stream.readline(1 << 16)) and not raw.endswith(b"\n"):
        if part.ends_before(stream.tell()):
            return False
    return bool(raw)
