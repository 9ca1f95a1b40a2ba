"""Open a corpus, named by a short string such as `wikitext:FILE`, as a stream of documents.

    notes.txt, folder, 'wiki/**/*.txt.gz'   text: a line is a paragraph, a blank line or the file's end ends a document
    files:PATH                              text: each file is one document, blank lines are only paragraph breaks
    sentences:PATH                          BERT's original format: a line is a sentence, a blank line ends a document
    wikitext:PATH                           WikiText: ` = Title = ` begins a document, headings are left out
    data.jsonl[:FIELD]                      JSON lines, also .ndjson, .json: a row is a document; default FIELD "text"
    data.parquet[:COLUMN]                   Parquet: a row is a document; default COLUMN "text"; needs pyarrow
    pages.warc.gz, texts.wet.gz             web archives: a page or a text is a document; needs the extra `web`
    datasets:FOLDER[:COLUMN]                what `save_to_disk` of datasets wrote: a row is a document; needs pyarrow
    tfds:NAME[:SPLIT[:FIELD]]               TensorFlow Datasets, without TensorFlow; default "train" and "text"
    python-docs                             the documentation that comes with this Python and its packages

Names ending in `.gz`, `.bz2` or `.xz` are decompressed; a folder or glob takes each file by its own suffix, in
sorted order.
"""

import concurrent.futures
import dataclasses
import functools
import itertools
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from bert_jax import storage
from bert_jax.data.corpora import python_docs, readers
from bert_jax.data.corpora.readers import ByteRange, Document
from bert_jax.data.corpora.saved_datasets import read_arrow_documents, saved_files
from bert_jax.data.json_files import JsonLayout, json_layout_of
from bert_jax.data.tfds_sets import open_tfds
from bert_jax.errors import InputError, did_you_mean
from bert_jax.extras import how_to_install
from bert_jax.storage import COMPRESSED

_TEXT_KINDS: dict[str, Callable[..., Iterator[Document]]] = {
    "text": readers.read_text_documents,
    "files": readers.read_file_document,
    "sentences": readers.read_sentence_documents,
    "wikitext": readers.read_wikitext_documents,
}
_TFDS = re.compile(r"([^:]+)(?::([^:\[]*(?:\[[^\]]*\])?)(?::([^:]*))?)?")  # a split may be "train[:10%]"
_SAMPLED_BYTES = 1 << 20  # size of the parts from which a sample is drawn
_CONCURRENT, _AT_ONCE = 16, 4096  # numbers of concurrent and of queued requests for file sizes
_JSON_SUFFIXES = tuple(name + suffix for name in (".jsonl", ".ndjson", ".json") for suffix in ("", *COMPRESSED))
_PARQUET_SUFFIX = ".parquet"
_ROWS = (*_JSON_SUFFIXES, _PARQUET_SUFFIX)
_SAVED = "datasets"
_WEB_SUFFIXES = tuple(name + suffix for name in (".warc", ".wet") for suffix in ("", *COMPRESSED))


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Documents of a corpus that one process reads: a file, a range of a file, rows of a data set or a whole corpus.

    Attributes:
        name: its name in messages and lists.
        read: starts a new pass over its documents; picklable for files and data sets, for use in another process.
        num_bytes: its size.
        has_rows: whether `read` has an argument `invalid`, which is called with the error of each invalid row.
    """

    name: str
    read: Callable[..., Iterator[Document]]
    num_bytes: int
    has_rows: bool = False

    def readable(self, skipped: list[str]) -> Iterator[Document]:
        """Yield the documents that can be read, and append the errors of the others.

        Invalid rows are left out. A file that is damaged or not text is left out from that point on.
        """
        skip = {"invalid": lambda error: skipped.append(str(error))} if self.has_rows else {}
        try:
            yield from self.read(**skip)
        except InputError as error:
            skipped.append(str(error))


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Documents that can be read again and again, always in the same order.

    Attributes:
        spec: the string that names it.
        read: starts a new pass over the documents.
        num_bytes: the bytes that a pass reads; None where it is not known.
        cut: cuts the corpus into ordered parts of at most about a number of bytes; None if it cannot be cut.
    """

    spec: str
    read: Callable[[], Iterator[Document]]
    num_bytes: int | None = None
    cut: Callable[[int], list[Part]] | None = None

    def __iter__(self) -> Iterator[Document]:
        return self.read()

    def texts(self) -> Iterator[str]:
        """Yield every paragraph (or sentence) of every document: the input of vocabulary training."""
        for document in self:
            yield from document.texts

    def parts(self, most_bytes: int) -> list[Part]:
        """Return parts that together yield the documents in order, each of at most about `most_bytes` if possible."""
        return self.cut(most_bytes) if self.cut else [Part(self.spec, self.read, self.num_bytes or 0)]

    def sample(self, share: float) -> "Corpus":
        """Return a share of the corpus: random parts of about a megabyte, at least one; no other part is read.

        Args:
            share: the fraction of the parts to read, always the same ones.

        Raises:
            InputError: `share` is not above 0 and at most 1.
        """
        if not 0 < share <= 1:
            raise InputError(f"{self.spec}: expected a share above 0 and at most 1, found {share:g}")
        parts = self.parts(_SAMPLED_BYTES)
        chosen = sorted(random.Random(0).sample(range(len(parts)), max(1, round(share * len(parts)))))
        sampled = [parts[number] for number in chosen]
        read = functools.partial(_documents_of, sampled)
        return Corpus(
            f"{share:g} of {self.spec}", read, sum(part.num_bytes for part in sampled), lambda most_bytes: sampled
        )


def _documents_of(parts: Iterable[Part]) -> Iterator[Document]:
    return itertools.chain.from_iterable(part.read() for part in parts)


def open_corpus(spec: str | Sequence[str], has_empty: bool = False) -> Corpus:
    """Open the corpus that a spec names (see the module's docstring), or concatenate several corpora.

    Args:
        spec: one or several corpora.
        has_empty: whether an empty file is an error only when it is read, not on opening.

    Raises:
        InputError: a file is missing or empty, or the spec is not understood. An error within a file (not UTF-8, cut
            short, not JSON) is raised when it is read, with the file's name and the line.
    """
    if not isinstance(spec, str):
        corpora = [open_corpus(part, has_empty) for part in spec]
        if not corpora:
            raise InputError("expected at least one corpus, found none")
        sizes = [corpus.num_bytes for corpus in corpora]
        return Corpus(
            ", ".join(corpus.spec for corpus in corpora),
            lambda: itertools.chain.from_iterable(corpora),
            None if None in sizes else sum(size or 0 for size in sizes),
            lambda most: [part for corpus in corpora for part in corpus.parts(most)],
        )
    if spec == "python-docs":
        return Corpus(spec, python_docs.read_python_docs)
    kind, colon, rest = spec.partition(":")
    if colon and kind == "tfds":
        return _open_tfds(spec, rest)
    if colon and kind in _TEXT_KINDS:
        return _open_files(spec, _find_files(rest), kind, readers.DEFAULT_FIELD, has_empty)
    if colon and kind == _SAVED:
        path, field = _folder_and_column(rest)
        return _open_files(spec, saved_files(path), kind, field, has_empty)
    path, field = _field(spec)
    is_kind = colon and "/" not in kind and "." not in kind and not storage.is_remote(spec)
    if is_kind and not storage.Path(spec).exists():
        raise InputError(f"{spec}: unknown kind of corpus {kind!r}{did_you_mean(kind, [*_TEXT_KINDS, _SAVED, 'tfds'])}")
    return _open_files(spec, _find_files(path), "text", field, has_empty)


def _field(spec: str) -> tuple[str, str]:
    for suffix in _ROWS:
        path, separator, field = spec.rpartition(f"{suffix}:")
        if separator:
            return path + suffix, field or readers.DEFAULT_FIELD
    return spec, readers.DEFAULT_FIELD


def _folder_and_column(text: str) -> tuple[str, str]:
    """Split FOLDER[:COLUMN]; the folder may be a URL of an object store."""
    folder, colon, column = text.rpartition(":")
    return (folder, column or readers.DEFAULT_FIELD) if colon and "/" not in column else (text, readers.DEFAULT_FIELD)


def _open_files(spec: str, paths: Sequence[storage.Path], kind: str, field: str, has_empty: bool) -> Corpus:
    sizes = _sizes(paths)
    if 0 in sizes and not has_empty:
        empty = storage.existing(paths[sizes.index(0)])  # a pipe or a device has no size either
        raise InputError(f"{empty}: expected text, found an empty file")

    def reader(path: storage.Path) -> Callable[..., Iterator[Document]]:
        if path.name.endswith(_JSON_SUFFIXES):
            return functools.partial(readers.read_json_documents, field=field)
        if path.name.endswith(_PARQUET_SUFFIX):
            return functools.partial(readers.read_parquet_documents, field=field)
        if path.name.lower().endswith(_WEB_SUFFIXES):
            return _read_web_archive
        return functools.partial(read_arrow_documents, field=field) if kind == _SAVED else _TEXT_KINDS[kind]

    def cut(most_bytes: int) -> list[Part]:
        parts = []
        for path, size in zip(paths, sizes, strict=True):
            read, has_rows = functools.partial(reader(path), str(path)), _has_rows(path, kind)
            if size < 2 * most_bytes or not _has_ranges(path, kind):
                parts.append(Part(str(path), read, size, has_rows))
                continue
            for start, stop in _bounds(size, most_bytes):
                part = ByteRange(start, stop)
                parts.append(Part(part.name(path), functools.partial(read, part=part), stop - start, has_rows))
        return parts

    return Corpus(spec, lambda: (document for path in paths for document in reader(path)(path)), sum(sizes), cut)


def _sizes(paths: Sequence[storage.Path]) -> list[int]:
    """Return the sizes of files; in an object store, each takes a request."""
    if not any(path.is_remote for path in paths):
        return [path.size() for path in paths]
    with concurrent.futures.ThreadPoolExecutor(_CONCURRENT) as pool:
        return [
            size
            for start in range(0, len(paths), _AT_ONCE)  # a million waiting requests take gigabytes
            for size in pool.map(storage.Path.size, paths[start : start + _AT_ONCE])
        ]


def _read_web_archive(path: storage.PathLike, invalid: readers.Invalid = readers.strict) -> Iterator[Document]:
    """Read a web archive (`web_archives.py`). Raises InputError where the extra is not installed."""
    try:
        from bert_jax.data.corpora import web_archives
    except ImportError as error:
        expected = f"{path}: expected libraries that read web archives"
        raise InputError(f"{expected}: {how_to_install('web')} ({error})") from None
    return web_archives.read_web_archive(path, invalid)


def _has_rows(path: storage.Path, kind: str) -> bool:
    """Return whether a file has rows or records that can be skipped if invalid."""
    return path.name.endswith(_ROWS) or path.name.lower().endswith(_WEB_SUFFIXES) or kind == _SAVED


def _has_ranges(path: storage.Path, kind: str) -> bool:
    """Return whether the documents of a file can be read from the middle of it."""
    if path.name.endswith(_PARQUET_SUFFIX):
        return True
    if path.name.lower().endswith((*COMPRESSED, *_WEB_SUFFIXES)) or kind in ("files", _SAVED):
        return False
    return not path.name.endswith(_JSON_SUFFIXES) or json_layout_of(str(path)) is JsonLayout.LINES


def _bounds(size: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield the (start, stop) of equal ranges of at most `most`."""
    count = max(1, -(-size // most))
    return itertools.pairwise(size * i // count for i in range(count + 1))


def _find_files(path: str) -> list[storage.Path]:
    """Return the sorted files of a path, a folder (without hidden files) or a glob; at least one."""
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
    split, field = split or "train", field or readers.DEFAULT_FIELD
    source, _ = open_tfds(f"tfds:{name}:{split}", [field])
    splits = source.dataset_info.splits.values()
    row_bytes = max(1, sum(s.num_bytes for s in splits) // max(1, sum(s.num_examples for s in splits)))
    read = functools.partial(readers.read_tfds_documents, name, split, field, row_bytes)

    def cut(most_bytes: int) -> list[Part]:
        return [
            Part(f"{spec} from row {start}", functools.partial(read, start, stop), (stop - start) * row_bytes)
            for start, stop in _bounds(len(source), max(1, most_bytes // row_bytes))
        ]

    return Corpus(spec, functools.partial(read, 0, len(source)), len(source) * row_bytes, cut)
