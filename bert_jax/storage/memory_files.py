"""Files whose content is in memory."""

import io
from typing import IO, Self


class MemoryFile(str):
    """The name of a file whose content is in memory; `existing` and `open_decompressed` accept it instead of a path.

    Attributes:
        content: the bytes of the file.
    """

    content: bytes

    def __new__(cls, name: str, content: bytes) -> Self:
        file = super().__new__(cls, name)
        file.content = content
        return file

    def __getnewargs__(self) -> tuple[str, bytes]:  # type: ignore[override]
        return str(self), self.content

    @property
    def name(self) -> str:
        """Return the name, as `Path.name` does."""
        return str(self)

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Open the content to read its bytes."""
        return io.BytesIO(self.content)
