"""Leave out documents whose text an earlier document of the corpus has, and list them."""

import hashlib
import json
from collections.abc import Iterable, Iterator

from bert_jax import storage
from bert_jax.data.corpora.readers import Document

REMOVED_FILE = "removed.jsonl"


def text_digest(document: Document, size: int) -> bytes:
    """Return a hash of the paragraphs of a document, of `size` bytes."""
    digest = hashlib.blake2b(digest_size=size)
    for text in document.texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
    return digest.digest()


class Deduplication:
    """A filter of documents; it takes about 150 bytes of memory for each distinct document.

    Two documents are the same if their paragraphs are, without white space at the ends of lines and blank lines.

    Attributes:
        removed: the number of documents that were left out.
    """

    def __init__(self) -> None:
        self._first: dict[bytes, int] = {}  # hash -> number of the document
        self.removed = 0

    def kept(self, documents: Iterable[Document], directory: storage.Path) -> Iterator[Document]:
        """Yield the documents that no earlier one repeats; after the last, `removed.jsonl` lists the others.

        A line of the file has the `document` that was left out, its `number` in the corpus, from 0, and the number of
        the `first` document of the same text.
        """
        with storage.open_atomically(directory / REMOVED_FILE) as file:
            for number, document in enumerate(documents):
                first = self._first.setdefault(text_digest(document, 16), number)
                if first == number:
                    yield document
                    continue
                self.removed += 1
                file.write(json.dumps({"document": document.name, "number": number, "first": first}) + "\n")
