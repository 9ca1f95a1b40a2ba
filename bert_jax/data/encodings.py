"""Decode text files to UTF-8: by the encoding that the user names, or by a byte order mark."""

import codecs
import io
from collections.abc import Callable
from typing import IO, Any

from bert_jax import storage
from bert_jax.errors import InputError, logger

_NOT_TEXT = ("idna", "punycode", "raw_unicode_escape", "unicode_escape", "undefined", "utf-7", "mbcs", "oem")
_MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16",
          codecs.BOM_UTF16_BE: "utf-16"}  # fmt: skip
_CHUNK = 1 << 16
_log = logger(__name__)


class _Transcoded(io.RawIOBase):
    """The content of a file in UTF-8."""

    def __init__(self, stream: IO[bytes], encoding: str):
        self._stream, self._encoding = stream, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._ready = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._ended:
            chunk = self._stream.read(_CHUNK)
            self._ended = not chunk
            try:
                self._ready = self._decoder.decode(chunk, self._ended).encode("utf-8", "surrogatepass")
            except UnicodeDecodeError as error:
                problem = f"byte 0x{error.object[error.start]:02x}" if chunk else "one that is cut short"
                raise storage.DamagedError(f"expected {self._encoding} text, found {problem}") from None
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


def check_encoding(encoding: str) -> str:
    """Return Python's name of an encoding, or "" for "". Raises InputError when there is no such encoding of text."""
    if not encoding:
        return ""
    try:
        codec = codecs.lookup(encoding)
    except (LookupError, ValueError):
        codec = None
    if codec is None or not getattr(codec, "_is_text_encoding", True) or codec.name in _NOT_TEXT:
        raise InputError(f"expected an encoding such as utf-8, utf-16, cp1252 or latin-1, found {encoding!r}")
    return codec.name


def has_utf8_mark(spec: str) -> bool:
    """Return whether a file, possibly compressed, begins with the byte order mark of UTF-8."""
    with storage.open_decompressed(storage.existing(spec)) as (file, _):
        return file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8


def as_utf8(stream: IO[bytes], spec: str, encoding: str, option: Callable[[str, str], str]) -> IO[bytes]:
    """Return a stream that transcodes a text stream to UTF-8.

    Args:
        stream: a buffered stream, at its beginning.
        spec: its name in messages.
        encoding: the encoding of the stream; "" = UTF-8, or the encoding of its byte order mark, with a warning.
        option: formats the option that sets the encoding, for messages.

    Raises:
        InputError: the text looks like UTF-16 without a byte order mark, or there is no such encoding.
    """
    encoding = check_encoding(encoding)
    head = stream.peek(4)[:4] if hasattr(stream, "peek") else b""
    if not encoding:
        encoding = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "")
        if encoding:
            _log.warning("%s: read as %s, as its byte order mark says", spec, encoding.upper())
        elif len(head) == 4 and head.count(0) == 2 and (head[0] == head[2] == 0 or head[1] == head[3] == 0):
            name = "utf-16-be" if head[0] == 0 else "utf-16-le"
            raise InputError(
                f"{spec}: expected UTF-8 text, found what looks like {name} without a byte order mark; "
                f"use {option('encoding', name)}"
            )
    if encoding in ("", "utf-8", "utf-8-sig", "ascii"):
        return stream
    return io.BufferedReader(_Transcoded(stream, encoding), _CHUNK)
