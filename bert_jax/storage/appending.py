"""Growing files: appended to on a disk, rewritten at intervals in an object store."""

import threading
from typing import IO

from bert_jax.errors import logger
from bert_jax.storage.paths import Path, PathLike
from bert_jax.storage.writing import naming, write_atomically

UPLOAD_SECONDS = 10.0  # seconds between two uploads of an object; longer for large objects
_BYTES_A_SECOND = 1 << 20  # limit of the mean bandwidth of uploads

log = logger(__name__)


class GrowingFile:
    """A file that can be appended to.

    On a disk, appended data is readable when `append` returns. In an object store a background thread uploads the whole
    object every `UPLOAD_SECONDS` and when `flush` is called.

    Args:
        path: path of the file, which is created immediately.
        initial: initial content; it replaces an existing file.
    """

    def __init__(self, path: PathLike, initial: bytes = b""):
        self._path = Path(path)
        self._file: IO[bytes] | None = None
        if not self._path.is_remote:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, initial)
            self._file = self._path.open("ab")
            return
        self._data = bytearray(initial)
        self._stored = -1  # bytes that have been uploaded
        self._changed, self._ended = threading.Lock(), threading.Event()
        self._upload()
        self._thread = threading.Thread(target=self._keep_uploading, name="upload", daemon=True)
        self._thread.start()

    def append(self, data: bytes) -> None:
        """Append bytes to the file."""
        if self._file is None:
            self._data += data
            return
        with naming(self._path):
            self._file.write(data)
            self._file.flush()

    def flush(self) -> None:
        """Make all appended data readable by others."""
        if self._file is None:
            self._upload()

    def close(self) -> None:
        """Flush and close the file."""
        if self._file is not None:
            with naming(self._path):
                self._file.close()
            return
        self._ended.set()
        self._thread.join()
        self._upload()

    def _upload(self) -> None:
        with self._changed:
            data = bytes(self._data)
            if len(data) != self._stored:
                self._path.write_bytes(data)
                self._stored = len(data)

    def _keep_uploading(self) -> None:
        while not self._ended.wait(max(UPLOAD_SECONDS, len(self._data) / _BYTES_A_SECOND)):
            try:
                self._upload()
            except OSError as error:
                log.warning("%s; the upload will be repeated", error)
