"""Compare documents by the Jaccard similarity of their word 5-grams, estimated by MinHash; needs datasketch.

The signature of a document (Broder 1997) is cut into bands. Documents with an equal band are compared by 4 bits of each
value of their signatures (Li and König 2010, arXiv:0910.3349), which are stored beside the key of the band.
"""

import dataclasses
import functools
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_jax.data.corpora.readers import Document
from bert_jax.data.pretraining.removal import REPEATED
from bert_jax.errors import InputError
from bert_jax.extras import how_to_install

_VALUES = 128  # values of a signature
_RUN = 5  # words per n-gram, as in Lee et al. 2022 (arXiv:2107.06499), appendix A
_AT_ONCE = 512  # n-grams hashed together, so that their 128 values each stay in the processor's cache
_FOUND = 0.97  # probability that two documents of exactly the requested similarity share a band
_BAND_BITS = 5  # the upper bits of a key are the number of the band; there are at most 32 bands
_CHANCE = 1 / 16  # probability that 4 random bits are equal
# Scripts without spaces between words, in which each character counts as one: kana, Han, Thai to Myanmar, Khmer.
_SINGLE = "\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORDS = re.compile(rf"[{_SINGLE}]|[^\W{_SINGLE}]+")


def bands_for(similarity: float) -> tuple[int, int]:
    """Return (number of bands, values per band) for the longest bands that find documents of a similarity."""
    for length in range(_VALUES // 2, 0, -1):
        bands = min(_VALUES // length, 1 << _BAND_BITS)
        if 1 - (1 - similarity**length) ** bands >= _FOUND:
            return bands, length
    return 1 << _BAND_BITS, 1


@dataclasses.dataclass(frozen=True)
class NearKeys:
    """Compare documents by the Jaccard similarity of their sets of word 5-grams: near means at least `similarity`."""

    similarity: float

    kind: ClassVar[str] = "near"
    dtype: ClassVar[np.dtype] = np.dtype([("key", "<u8"), ("number", "<u4"), ("codes", "u1", (_VALUES // 2,))])

    @property
    def rows_each(self) -> int:
        """The number of rows per document."""
        return bands_for(self.similarity)[0]

    def collected(self, documents: Sequence[Document]) -> np.ndarray:
        """Return the signatures of documents, uint32 [N, 128]."""
        return np.stack([signature(document.texts) for document in documents])

    def sorted_rows(self, collected: Sequence[np.ndarray]) -> tuple[np.ndarray, Iterator[np.ndarray]]:
        """Return all keys, unsorted, and for each band one row per document, sorted by key."""
        values = np.concatenate(collected)
        bands, length = bands_for(self.similarity)
        keys = np.stack([_band_keys(values, band, length) for band in range(bands)])
        codes = (values & 15).astype(np.uint8)
        codes = codes[:, ::2] << 4 | codes[:, 1::2]

        def rows() -> Iterator[np.ndarray]:
            for of_band in keys:
                order = np.argsort(of_band, kind="stable")
                band_rows = np.empty(len(order), self.dtype)
                band_rows["key"], band_rows["number"], band_rows["codes"] = of_band[order], order, codes[order]
                yield band_rows

        return keys.ravel(), rows()

    def repeated(self, rows: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Return REPEATED rows of the documents that are near an earlier one that is kept."""
        order = np.argsort(rows["key"], kind="stable")  # stable, so equal keys stay in the order of the corpus
        rows, units = rows[order], units[order]
        starts = np.flatnonzero(np.diff(rows["key"], prepend=~rows["key"][:1]))
        sizes = np.diff(starts, append=len(rows))
        duplicates = []
        for start, size in zip(starts[sizes > 1], sizes[sizes > 1], strict=True):
            codes = rows["codes"][start : start + size]
            for later, first in _pairs(np.stack([codes >> 4, codes & 15], -1).reshape(size, -1), self.similarity):
                places = start + np.array([later, first])
                duplicates.append(tuple(np.stack([units[places], rows["number"][places]], -1).ravel().tolist()))
        return np.array(duplicates, REPEATED)


def _pairs(codes: np.ndarray, similarity: float) -> Iterator[tuple[int, int]]:
    """Yield (document, earlier near document) in the order of documents, for codes uint8 [N, 128]."""
    least = (similarity * (1 - _CHANCE) + _CHANCE) * _VALUES
    kept = [0]
    for number in range(1, len(codes)):
        equal = np.count_nonzero(codes[kept] == codes[number], axis=1)
        near = np.flatnonzero(equal >= least)
        if len(near):
            yield number, kept[near[0]]
        else:
            kept.append(number)


def _band_keys(values: np.ndarray, band: int, length: int) -> np.ndarray:
    """Return the keys of a band, uint64 [N]: its number, then a hash of its values."""
    key = np.zeros(len(values), np.uint64)
    for column in values[:, band * length : (band + 1) * length].T:
        key = (key ^ column) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(32)
    return key >> np.uint64(_BAND_BITS) | np.uint64(band << (64 - _BAND_BITS))


def signature(texts: Sequence[str]) -> np.ndarray:
    """Return the MinHash signature of the word 5-grams of a text, uint32 [128]."""
    minhash, permutations = _datasketch()
    sketch = minhash(_VALUES, hashfunc=int, permutations=permutations, scheme="affine32")
    runs = shingles(texts)
    for start in range(0, len(runs), _AT_ONCE):
        sketch.update_batch(runs[start : start + _AT_ONCE].tolist())
    return sketch.hashvalues


def shingles(texts: Sequence[str]) -> np.ndarray:
    """Return hashes, uint32, of the distinct word 5-grams of a text, or of all its words together if it has fewer."""
    words = [word for text in texts for word in _WORDS.findall(text.lower())] or [" ".join(texts)]
    hashes = np.fromiter((zlib.crc32(word.encode(errors="replace")) for word in words), np.uint64, len(words))
    run = min(_RUN, len(hashes))
    mixed = np.zeros(len(hashes) - run + 1, np.uint64)
    for offset in range(run):
        mixed = (mixed ^ hashes[offset : offset + len(mixed)]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return np.unique(mixed >> np.uint64(32)).astype(np.uint32)


@functools.cache
def _datasketch() -> tuple[Any, Any]:
    """Return the class MinHash, and the permutations of all signatures."""
    try:
        from datasketch import MinHash
    except ImportError:
        expected = "--deduplicate near: expected datasketch, which estimates similarity"
        raise InputError(f"{expected}: {how_to_install('deduplication')}") from None
    return MinHash, MinHash(_VALUES, seed=1, scheme="affine32").permutations
