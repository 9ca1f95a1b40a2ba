"""`BM25Search`: search by the words that a query and a text share (BM25), computed by the package bm25s."""

import dataclasses
import functools
import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import InputError, did_you_mean
from bert_jax.extras import import_extra
from bert_jax.inference.base import as_texts, positive
from bert_jax.inference.corpus_chunks import corpus_chunks
from bert_jax.storage import PathLike
from bert_jax.tasks.embedding.index_files import IndexFiles, new_index
from bert_jax.tasks.embedding.search_index import best_texts
from bert_jax.tokenization.interface import check_unicode

# What counts as a word, after NFKC and lowercasing: a run of letters, marks, digits and underscores. Chinese characters
# and Hiragana are words of one character, as in Lucene's StandardTokenizer, since no spaces separate words there.
_WORD = r"\p{Han}|\p{Hiragana}|[\p{L}\p{M}\p{N}_&&[^\p{Han}\p{Hiragana}]]+"
_EXTRA, _FOLDER = "retrieval", "bm25s"


@dataclasses.dataclass(frozen=True)
class BM25Settings:
    """Settings of BM25, by default those of Lucene.

    Attributes:
        k1: k1 of BM25: how far further occurrences of a word in a text raise its score.
        b: b of BM25: how far long texts are marked down, from 0 to 1.
        stemmer: language of a Snowball stemmer that maps words to their stems in BM25, such as english; "" = none.
    """

    k1: float = 1.2
    b: float = 0.75
    stemmer: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.k1 < math.inf:
            raise InputError(f"k1: expected a number of at least 0, found {self.k1!r}")
        if not 0 <= self.b <= 1:
            raise InputError(f"b: expected a number from 0 to 1, found {self.b!r}")
        if not isinstance(self.stemmer, str):
            raise InputError(f"stemmer: expected a language or '', found {self.stemmer!r}")


class _Corpus(NamedTuple):
    """The corpus that later calls search: the settings, the `bm25s.BM25`, the number of texts, and files on disk."""

    settings: BM25Settings
    index: Any
    total: int
    files: IndexFiles | None = None

    def scores(self, words: Iterable[str]) -> np.ndarray:
        """Return the score of each text for the words of a query. Raises InputError if the index is damaged."""
        known = self.index.vocab_dict
        ids = [known[word] for word in words if word in known]
        try:
            return np.asarray(self.index.get_scores_from_ids(ids))
        except IndexError:
            if self.files is None:
                raise
            raise self.files.damaged(f"numbers of texts below {self.total:,}") from None


class BM25Search:
    """Search by BM25 (Robertson and Zaragoza 2009, doi:10.1561/1500000019) in the variant of Lucene.

    The score of a text is the sum over the words of the query of idf * tf / (tf + k1 * (1 - b + b * length / mean
    length)), where idf = log(1 + (N - n + 0.5) / (n + 0.5)) for a word that n of the N texts have: the formula of
    Kamphuis et al. 2020 (doi:10.1007/978-3-030-45442-5_4, table 1, "Lucene (accurate)"). A text that shares no word
    with the query has score 0.
    """

    head = "bm25"

    def __init__(self, settings: BM25Settings | None = None):
        """Create a search without a corpus.

        Args:
            settings: the settings; None means those of the index that is opened, otherwise the defaults.

        Raises:
            InputError: bm25s or, with a stemmer, PyStemmer is not installed, or the stemmer is not known.
        """
        self._settings = settings
        self._corpus: _Corpus | None = None  # replaced as a whole, as other threads may read it
        _bm25s()
        _check_stemmer((settings or BM25Settings()).stemmer)

    def index(self, corpus: Iterable[str]) -> int:
        """Index a corpus and keep it in memory for later calls; it replaces an earlier corpus.

        Returns:
            The number of texts.

        Raises:
            InputError: a text is no string, there is no text, or no text has a word.
        """
        self._corpus = self._indexed(corpus)
        return self._corpus.total

    def write_index(self, corpus: Iterable[str], directory: PathLike) -> int:
        """Write an index of a corpus for `open_index`; the folder `bm25s` in it opens with `bm25s.BM25.load`.

        The words of the corpus are held in memory, as numbers of 4 bytes.

        Args:
            corpus: the texts.
            directory: a new or empty local directory.

        Returns:
            The number of texts.

        Raises:
            InputError: as for `index`.
        """
        with new_index(directory) as files:
            indexed = self._indexed(corpus, files.append_texts)
            indexed.index.save(str(files.directory / _FOLDER), show_progress=False)
            about = {"texts": indexed.total, "word": _WORD} | dataclasses.asdict(indexed.settings)
            files.close(self.head, about | {"bm25s": _bm25s().__version__})
        return indexed.total

    def open_index(self, directory: PathLike) -> int:
        """Open an index on disk, mapped into memory, for later calls; it replaces an earlier corpus.

        Args:
            directory: a local directory that `write_index` wrote.

        Returns:
            The number of texts.

        Raises:
            InputError: there is no index, it is damaged, or it has other settings than this search was given.
        """
        files = IndexFiles(directory)
        if (kind := files.about.get("kind")) != self.head:
            raise InputError(f"{directory}: expected an index of kind {self.head}, found {kind}")
        expected = {"word": _WORD} | (dataclasses.asdict(self._settings) if self._settings else {})
        for name, value in expected.items():
            if files.about.get(name) != value:
                raise InputError(
                    f"{directory}: expected an index with {name} {value!r}, found {files.about.get(name)!r}"
                )
        names = [field.name for field in dataclasses.fields(BM25Settings)]
        try:
            settings = BM25Settings(**{name: files.about[name] for name in names})
        except (KeyError, TypeError):
            raise files.damaged(f"{', '.join(names)} in index.json") from None
        _check_stemmer(settings.stemmer)
        self._corpus = _Corpus(settings, _loaded(files), files.count, files)
        return files.count

    def nearest(
        self, queries: Sequence[str], corpus: Iterable[str] | None = None, top_k: int = 10
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores of the best texts for each query, and their numbers in the corpus.

        Args:
            queries: N texts.
            corpus: texts to search in this call only; None means the corpus of `index` or of `open_index`.
            top_k: number of texts per query.

        Returns:
            float32 and int64 `[N, min(top_k, texts in the corpus)]`, the best first, ties in the order of the corpus.

        Raises:
            InputError: an item is no text, or there is no corpus.
        """
        queries, top_k = as_texts(queries), positive("top_k", top_k)
        kept = self._corpus if corpus is None else self._indexed(corpus)
        if kept is None:
            raise InputError("search: expected a corpus, given here or to index(), found none")
        shape = (len(queries), min(top_k, kept.total))
        scores, numbers = np.zeros(shape, np.float32), np.zeros(shape, np.int64)
        for row, words in enumerate(_words(queries, kept.settings.stemmer)):
            # `retrieve` of bm25s breaks ties in an order that depends on what is installed.
            scores[row], numbers[row] = best_texts(kept.scores(words), shape[1])
        return scores, numbers

    def _indexed(self, corpus: Iterable[str], keep: Callable[[list[str]], None] = lambda texts: None) -> _Corpus:
        """Return a corpus in memory; `keep` gets its texts, chunk by chunk."""
        settings = self._settings or BM25Settings()
        vocabulary: dict[str, int] = {}
        ids: list[array[int]] = []
        for texts in corpus_chunks(corpus):
            check_unicode(texts, len(ids))
            keep(texts)
            for words in _words(texts, settings.stemmer):
                ids.append(array("i", [vocabulary.setdefault(word, len(vocabulary)) for word in words]))
        if not vocabulary:
            raise InputError(f"corpus: expected texts with words, found none in {len(ids):,} texts")
        index = _bm25s().BM25(k1=settings.k1, b=settings.b, method="lucene")
        index.index((ids, vocabulary), create_empty_token=False, show_progress=False)
        return _Corpus(settings, index, len(ids))


def _bm25s() -> Any:
    return import_extra("bm25s", _EXTRA)


def _check_stemmer(language: str) -> None:
    if language and language not in (known := import_extra("Stemmer", _EXTRA).algorithms()):
        raise InputError(f"stemmer: expected a language of Snowball, found {language!r}{did_you_mean(language, known)}")


def _loaded(files: IndexFiles) -> Any:
    """Return the `bm25s.BM25` of an index, mapped into memory. Raises InputError if it is damaged."""
    expected = f"{_FOLDER} with an index of {files.count:,} texts"
    try:
        # What scoring reads of its parameters is what `_indexed` sets.
        set_here = {"dtype": "float32", "int_dtype": "int32", "method": "lucene", "backend": "numpy"}
        folder = str(files.directory / _FOLDER)
        index = _bm25s().BM25.load(folder, mmap=True, show_progress=False, **set_here)
        values, texts, starts = (index.scores[name] for name in ("data", "indices", "indptr"))
        fits = (values.dtype.str, texts.dtype.kind, starts.dtype.kind) == ("<f4", "i", "i")
        fits &= len(values) == len(texts) == starts[-1] and (np.diff(starts) >= 0).all() and starts[0] == 0
        fits &= {*index.vocab_dict.values()} == {*range(len(starts) - 1)} and index.scores["num_docs"] == files.count
    except (OSError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError, ImportError) as error:
        raise files.damaged(f"{expected} ({type(error).__name__})") from None
    if not fits:
        raise files.damaged(expected)
    return index


def _words(texts: list[str], stemmer: str) -> Iterable[list[str]]:
    """Yield the words of each text, or their stems."""
    normalizer, splitter = _tokenizer()
    stem = import_extra("Stemmer", _EXTRA).Stemmer(stemmer).stemWords if stemmer else list  # one for each thread
    for text in texts:
        yield stem([word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))])


@functools.cache
def _tokenizer() -> tuple[Any, Any]:
    """Return what normalizes a text, and what splits it into words."""
    from tokenizers import Regex, normalizers, pre_tokenizers

    normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    return normalizer, pre_tokenizers.Split(Regex(_WORD), "removed", invert=True)
