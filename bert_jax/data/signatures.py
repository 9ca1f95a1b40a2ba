"""Recognise files that are not UTF-8 text by their first bytes, and say what to do about them."""

from bert_jax.errors import InputError

HEAD_BYTES = 1024  # bytes at the beginning of a file that are checked
# First bytes -> the kind of file, and what to do.
_KINDS = {
    b"%PDF-": "a PDF; extract its text first, with `pdftotext` for example",
    b"PK\x03\x04": "a ZIP archive, or a document of Word or the like; extract its text first",
    b"\xd0\xcf\x11\xe0": "a document of Word or Excel; extract its text first",
    b"{\\rtf": "a document in RTF; extract its text first",
    b"PAR1": "a Parquet file; its name must end in .parquet",
    b"ARROW1": "an Arrow file; write it as Parquet or JSON lines",
    b"\x1f\x8b": "a file compressed by gzip; its name must end in .gz",
    b"BZh": "a file compressed by bzip2; its name must end in .bz2",
    b"\xfd7zXZ\x00": "a file compressed by xz; its name must end in .xz",
    b"\x28\xb5\x2f\xfd": "a file compressed by zstd; decompress it first",
    b"\xff\xfe": "UTF-16; convert it: iconv -f utf-16 -t utf-8 FILE > NEW",
    b"\xfe\xff": "UTF-16; convert it: iconv -f utf-16 -t utf-8 FILE > NEW",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"SQLite format 3": "a database of SQLite; export its texts first",
}
OTHER_ENCODING = "if it is Windows-1252 or Latin-1, convert it: iconv -f cp1252 -t utf-8 FILE > NEW"


def check_is_text(spec: object, head: bytes) -> None:
    """Raise InputError, which says what to do, when the first bytes of a file are not UTF-8 text."""
    file_kind = next((kind for mark, kind in _KINDS.items() if head.startswith(mark)), "")
    if not file_kind and b"\0" in head[:HEAD_BYTES]:
        file_kind = f"a binary file: byte 0x00 at offset {head.index(0)}"
    if file_kind:
        raise InputError(f"{spec}: expected UTF-8 text, found {file_kind}")
