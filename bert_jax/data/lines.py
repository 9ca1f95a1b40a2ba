"""Read lines of files, pipes and compressed files in bounded memory, for tables, tagged sentences, texts and corpora.

A row of a table is a line, or an error when it is longer than `MAX_ROW_BYTES`; a long line of a corpus comes in pieces.
"""

from collections.abc import Callable, Iterator
from typing import IO, Any

from bert_jax import storage
from bert_jax.data.encodings import as_utf8
from bert_jax.data.invalid_rows import InvalidRow, check_utf8, place
from bert_jax.errors import InputError

MAX_ROW_BYTES = 16 << 20  # maximum size of a row: documents of a few megabytes are allowed


def line_pieces(stream: IO[bytes], max_bytes: int) -> Iterator[tuple[bytes, bool]]:
    """Yield (bytes, whether they end a line); cut a line over `max_bytes` into pieces, at a space if possible."""
    rest = b""
    while True:
        raw = rest + stream.readline(max(max_bytes - len(rest), 1))
        if not raw:
            return
        rest = b""
        ends = raw.endswith(b"\n")
        if not ends and len(raw) >= max_bytes:
            cut = raw.rfind(b" ") + 1 or _character_start(raw)
            raw, rest = raw[:cut], raw[cut:]
        yield raw, ends


def _character_start(raw: bytes) -> int:
    """Return the offset of the last UTF-8 character of `raw`: a cut there splits no character."""
    cut = len(raw) - 1
    while cut > 1 and raw[cut] & 0xC0 == 0x80:
        cut -= 1
    return cut


def stream_lines(stream: IO[bytes], spec: object, max_bytes: int = MAX_ROW_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yield (1-based number, line with its newline) of an open file or pipe, without a byte order mark.

    Args:
        stream: the decompressed stream.
        spec: its name in messages.
        max_bytes: the longest line.

    Raises:
        InputError: a line is longer than `max_bytes`; no more of it is read.
    """
    number = 0
    while line := stream.readline(max_bytes + 1):
        number += 1
        if len(line) > max_bytes:
            where = place(str(spec), number)
            raise InputError(f"{where}: expected a line of at most {max_bytes:,} bytes, found a longer one")
        yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def numbered_lines(
    spec: str,
    max_bytes: int = MAX_ROW_BYTES,
    encoding: str = "",
    option: Callable[[str, str], str] = "{}={}".format,
) -> Iterator[tuple[int, str]]:
    """Yield (1-based number, line with its newline) of a file, possibly compressed (`storage.COMPRESSED`).

    Only `\\n` ends a line: U+2028 and similar characters are text. Bytes that are not UTF-8 become lone surrogates,
    which `check_utf8` rejects.

    Args:
        spec: the file.
        max_bytes: the longest line, in UTF-8.
        encoding, option: passed to `bert_jax.data.encodings.as_utf8`.

    Raises:
        InputError: the file is missing, a pipe or a device, empty, cut short or damaged, or a line is longer than
            `max_bytes`.
    """
    path = storage.existing(spec)
    number = 0
    try:
        with storage.open_decompressed(path) as (file, _):
            for number, line in stream_lines(as_utf8(file, spec, encoding, option), spec, max_bytes):
                yield number, line.decode("utf-8", "surrogateescape")
    except storage.DamagedError as error:
        raise InputError(f"{spec}: after line {number}: {error}") from None
    if number == 0:
        raise InputError(f"{spec}: expected rows, found an empty file")


def read_lines(spec: str) -> Iterator[str]:
    """Yield the lines of a text file, possibly compressed, without line ends.

    Raises:
        InputError: as `numbered_lines`, or a line is not UTF-8.
    """
    for number, line in numbered_lines(spec):
        check_utf8(place(spec, number), line)
        yield line.removesuffix("\n").removesuffix("\r")


def parse_object(where: str, line: str) -> dict[str, Any]:
    """Parse a line that is a JSON object. Its texts may hold half a surrogate pair, which `check_utf8` reports.

    Raises:
        InvalidRow: the line is not JSON (`storage.parse_json`), or its value is not an object.
    """
    check_utf8(where, line)
    try:
        row = storage.parse_json(line, where, surrogates=True)
    except InputError as error:
        message = str(error).replace("expected JSON,", "expected a JSON object,")
        raise InvalidRow(message.replace(" at line 1, column", " at column"), "broken JSON") from None
    if not isinstance(row, dict):
        raise InvalidRow(f"{where}: expected a JSON object, found {type(row).__name__}", "broken JSON")
    return row
