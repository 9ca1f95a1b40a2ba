"""Read text files, and check that paths are regular files."""

from typing import cast

from bert_jax.errors import InputError
from bert_jax.storage.paths import Path, PathLike


def existing(path: PathLike) -> Path:
    """Return the path of a file. Raises InputError when it is missing, a directory, a pipe or a device."""
    if hasattr(path, "content"):  # accept a `MemoryFile`
        return cast(Path, path)
    file = Path(path)
    if file.is_file():  # one request for an object
        return file
    if not file.exists():
        raise InputError(f"{path}: no such file")
    if file.is_dir():
        raise InputError(f"{path}: expected a file, found a directory")
    raise InputError(f"{path}: expected a file, found a pipe or a device; write its content to a file first")


def read_text(path: PathLike, max_bytes: int | None = None) -> str:
    """Return the text of a UTF-8 file.

    Raises:
        InputError: the file is missing, not a regular file, not UTF-8, or larger than `max_bytes`.
    """
    path = existing(path)
    if max_bytes is not None and (size := path.size()) > max_bytes:
        raise InputError(f"{path}: expected at most {max_bytes:,} bytes, found {size:,}")
    return decode_text(path.read_bytes(), path)


def decode_text(data: bytes, where: object) -> str:
    """Decode the bytes of a file as UTF-8. Raises InputError, naming `where`, when they are not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{where}: expected UTF-8 text, found byte 0x{data[error.start]:02x} at offset {error.start} (line {line})"
        ) from None
