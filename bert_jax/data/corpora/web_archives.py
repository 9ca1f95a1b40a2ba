"""Read the texts and pages of web archives (WARC, ISO 28500), such as those of Common Crawl; needs the extra `web`."""

from collections.abc import Iterator
from typing import IO, Any

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5
from resiliparse.parse.html import HTMLParserException, HTMLTree, traverse_dom
from warcio.archiveiterator import ArchiveIterator
from warcio.exceptions import ArchiveLoadFailed

from bert_jax import storage
from bert_jax.data.corpora.readers import Document, Invalid, strict, text_documents
from bert_jax.data.lines import MAX_ROW_BYTES
from bert_jax.errors import InputError

_HTML = ("text/html", "application/xhtml+xml")
_PLAIN = "text/plain"
_PIECE_BYTES = 1 << 16
_DEEPEST = 1000  # element depth from which all text is taken; browsers stop at 512


def read_web_archive(path: storage.PathLike, invalid: Invalid = strict) -> Iterator[Document]:
    """Yield a document for each text and each page of a web archive; a line is a paragraph.

    Texts are records of the type `conversion`, as in WET files. Pages are records of the types `response` (with a
    status of success) and `resource` in HTML or plain text; from HTML, only the main content is taken, without menus
    and the like. Other records are ignored.

    Args:
        path: the archive, possibly compressed.
        invalid: is called with the error of a record that cannot be read.

    Raises:
        InputError: the file is not a web archive, is damaged or has neither texts nor pages.
    """
    path, done, has_text = storage.existing(path), 0, False
    try:
        with storage.open_decompressed(path) as (stream, file):
            for number, record in enumerate(_records(stream), 1):
                try:
                    text = _text(record)
                except InputError as error:
                    invalid(InputError(f"{path}: record {number}: {error}"))
                    text = ""
                has_text, done = has_text or text is not None, number
                yield from text_documents(f"{path}:{number}", text or "", file.tell())
            stream.read(1)  # raises an error for a truncated file, which the iterator treats as complete
    except storage.DamagedError as error:
        raise InputError(f"{path}: record {done + 1}: {error}") from None
    if not has_text:
        raise InputError(f"{path}: expected records with texts or pages, found none")


def _records(stream: IO[bytes]) -> Iterator[Any]:
    """Yield the records of an open archive. Raises DamagedError where something else is found."""
    records = iter(ArchiveIterator(stream))
    while True:
        try:
            record = next(records)
        except StopIteration:
            return
        except (ArchiveLoadFailed, AttributeError, OverflowError) as error:
            # An AttributeError means a response without the address of its page.
            reason = " ".join(str(error).split())
            raise storage.DamagedError(f"expected a record of a web archive, found: {reason:.80}") from None
        yield record


def _text(record: Any) -> str | None:
    """Return the text of a record; None for a record of another kind.

    Raises:
        InputError: it is too long, not UTF-8, or a page that cannot be read.
        DamagedError: it is cut short.
    """
    headers = record.http_headers or record.rec_headers
    kind, _, parameters = (headers.get_header("Content-Type") or "").lower().partition(";")
    is_page = record.rec_type == "resource" or (
        record.rec_type == "response" and (headers.get_statuscode() or "").startswith("2")
    )
    if record.rec_type == "conversion":
        return _decoded(_content(record))
    if is_page and kind.strip() == _PLAIN:
        content = _content(record)
        return bytes_to_str(content, _encoding(content, parameters))
    return _main_text(_content(record), parameters) if is_page and kind.strip() in _HTML else None


def _content(record: Any) -> bytes:
    """Return the content of a record, with encodings of HTTP such as gzip undone."""
    content = record.content_stream()
    pieces, size = [], 0
    while piece := content.read(_PIECE_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_ROW_BYTES:
            raise InputError(f"expected at most {MAX_ROW_BYTES:,} bytes, found more")
    while record.raw_stream.read(_PIECE_BYTES):  # read what follows the last chunk
        pass
    if getattr(record.raw_stream, "limit", 0):  # bytes of the record's declared length that are missing
        raise storage.DamagedError("expected a complete record, found a truncated one")
    return b"".join(pieces)


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        invalid_byte = f"byte 0x{content[error.start]:02x} at offset {error.start}"
        raise InputError(f"expected UTF-8 text, found {invalid_byte}") from None


def _main_text(content: bytes, parameters: str) -> str:
    """Return the main text of a page, decoded as its content type says, or else as the page itself says."""
    try:
        tree = HTMLTree.parse_from_bytes(content, _encoding(content, parameters))
    except (HTMLParserException, LookupError, UnicodeError) as error:
        raise InputError(f"expected a page in HTML, found: {error}") from None
    # All text of a deep page is taken, because the search for the main text takes time quadratic in the depth.
    is_flat = content.count(b"<") < _DEEPEST or _depth(tree) < _DEEPEST
    return extract_plain_text(tree, main_content=is_flat, alt_texts=False)


def _encoding(content: bytes, parameters: str) -> str:
    """Return the encoding in the content type's parameters, else UTF-8 if the content is valid UTF-8, else a guess."""
    named = parameters.partition("charset=")[2].strip(" \"'")
    if named and (known := map_encoding_to_html5(named, False)):
        return known
    try:
        content.decode()
        return "utf-8"
    except UnicodeDecodeError:
        return detect_encoding(content, from_html_meta=True) or "utf-8"


def _depth(tree: HTMLTree) -> int:
    """Return the depth of the deepest nested element."""
    deepest = 0

    def enter(context: Any) -> None:
        nonlocal deepest
        deepest = max(deepest, context.depth)

    if tree.document:
        traverse_dom(tree.document, enter)
    return deepest
