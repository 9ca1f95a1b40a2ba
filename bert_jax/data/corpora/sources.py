"""Open a corpus, named by a short string such as `wikitext:FILE`, as a stream of documents.

    notes.txt, folder, 'wiki/**/*.txt.gz'   text: a line is a paragraph, a blank line or the file's end ends a document
    files:PATH                              text: each file is one document, blank lines are only paragraph breaks
    sentences:PATH                          the original's format: a line is a sentence, a blank line ends a document
    wikitext:PATH                           WikiText: ` = Title = ` begins a document, headings are left out
    data.jsonl[:FIELD]                      JSON lines: a row is a document, its text in FIELD ("text"); .ndjson, .json
    data.parquet[:COLUMN]                   Parquet: a row is a document, its text in COLUMN ("text"); needs pyarrow
    tfds:NAME[:SPLIT[:FIELD]]               a TensorFlow Datasets data set ("train", "text"), read without TensorFlow
    python-docs                             the documentation that comes with this Python and its packages

Names ending in `.gz`, `.bz2` or `.xz` are decompressed; a folder or glob takes each file by its own suffix, in
sorted order.
"""

import concurrent.futures
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from bert_jax import storage
from bert_jax.data.corpora import python_docs, readers
from bert_jax.data.corpora.readers import Document
from bert_jax.errors import InputError, did_you_mean
from bert_jax.storage import COMPRESSED

_TEXT_KINDS: dict[str, Callable[[storage.Path], Iterator[Document]]] = {
    "text": readers.read_text_documents,
    "files": readers.read_file_document,
    "sentences": readers.read_sentence_documents,
    "wikitext": readers.read_wikitext_documents,
}
_TFDS = re.compile(r"([^:]+)(?::([^:\[]*(?:\[[^\]]*\])?)(?::([^:]*))?)?")  # a split may be "train[:10%]"
_CONCURRENT = 16  # requests for the sizes of files
_JSON_SUFFIXES = tuple(name + suffix for name in (".jsonl", ".ndjson", ".json") for suffix in ("", *COMPRESSED))
_PARQUET_SUFFIX = ".parquet"


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Documents that can be read again and again, always in the same order.

    Attributes:
        spec: the string that names it.
        read: starts a new pass over the documents.
        num_bytes: the bytes that a pass reads, which is the `end` of the last document; None where it is not known.
    """

    spec: str
    read: Callable[[], Iterator[Document]]
    num_bytes: int | None = None

    def __iter__(self) -> Iterator[Document]:
        return self.read()

    def texts(self) -> Iterator[str]:
        """Yield every paragraph (or sentence) of every document: the input of vocabulary training."""
        for document in self:
            yield from document.texts


def open_corpus(spec: str | Sequence[str]) -> Corpus:
    """Open the corpus that a spec names (see the module's docstring), or several corpora one after the other.

    Raises:
        InputError: a file is missing or empty, or the spec is not understood. An error within a file (not UTF-8, cut
            short, not JSON) is raised when it is read, with the file's name and the line.
    """
    if not isinstance(spec, str):
        parts = [open_corpus(part) for part in spec]
        if not parts:
            raise InputError("expected at least one corpus, found none")
        sizes = [part.num_bytes for part in parts]
        total = None if None in sizes else sum(size or 0 for size in sizes)
        return Corpus(", ".join(part.spec for part in parts), lambda: _one_after_another(parts, sizes), total)
    if spec == "python-docs":
        return Corpus(spec, python_docs.read_python_docs)
    kind, colon, rest = spec.partition(":")
    if colon and kind == "tfds":
        return _open_tfds(spec, rest)
    if colon and kind in _TEXT_KINDS:
        return _open_files(spec, rest, kind, readers.DEFAULT_FIELD)
    path, field = _field(spec)
    is_kind = colon and "/" not in kind and "." not in kind and not storage.is_remote(spec)
    if is_kind and not storage.Path(spec).exists():
        raise InputError(f"{spec}: unknown kind of corpus {kind!r}{did_you_mean(kind, [*_TEXT_KINDS, 'tfds'])}")
    return _open_files(spec, path, "text", field)


def _field(spec: str) -> tuple[str, str]:
    for suffix in (*_JSON_SUFFIXES, _PARQUET_SUFFIX):
        path, found, field = spec.rpartition(f"{suffix}:")
        if found:
            return path + suffix, field or readers.DEFAULT_FIELD
    return spec, readers.DEFAULT_FIELD


def _open_files(spec: str, path: str, kind: str, field: str) -> Corpus:
    paths = _find_files(path)
    with concurrent.futures.ThreadPoolExecutor(_CONCURRENT) as pool:  # in an object store, each size takes a request
        sizes = list(pool.map(storage.Path.size, paths))
    if 0 in sizes:
        empty = storage.existing(paths[sizes.index(0)])  # a pipe or a device has no size either
        raise InputError(f"{empty}: expected text, found an empty file")

    def documents(file: storage.Path) -> Iterator[Document]:
        if file.name.endswith(_JSON_SUFFIXES):
            return readers.read_json_documents(file, field)
        if file.name.endswith(_PARQUET_SUFFIX):
            return readers.read_parquet_documents(file, field)
        return _TEXT_KINDS[kind](file)

    return Corpus(spec, lambda: _one_after_another(map(documents, paths), sizes), sum(sizes))


def _one_after_another(parts: Iterable[Iterable[Document]], sizes: Sequence[int | None]) -> Iterator[Document]:
    """Yield the documents of all parts, with `end` counted from the first part; `sizes` in bytes (None: not known)."""
    before = 0
    for part, size in zip(parts, sizes, strict=True):
        for document in part:
            yield dataclasses.replace(document, end=before + document.end)
        before += size or 0


def _find_files(path: str) -> list[storage.Path]:
    """Return the files of a path, a folder (without hidden files) or a glob, sorted; at least one."""
    if files := storage.find_files(path):
        return files
    if storage.Path(path).is_dir():
        raise InputError(f"{path}: expected a folder with text files, found none in it")
    raise InputError(f"{path}: no {'file matches' if storage.is_pattern(path) else 'such file or folder'}")


def _open_tfds(spec: str, rest: str) -> Corpus:
    match = _TFDS.fullmatch(rest)
    if not match:
        raise InputError(f"{spec}: expected tfds:NAME[:SPLIT[:FIELD]]")
    name, split, field = match.groups()
    return Corpus(spec, *readers.tfds_documents(name, split or "train", field or readers.DEFAULT_FIELD))
