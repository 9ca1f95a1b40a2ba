"""Detect corpora that make poor pretraining data, and warn with the figure that shows it."""

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np

from bert_jax.data.corpora.readers import Document, is_wikitext_heading
from bert_jax.data.pretraining.instances import TokenDocument
from bert_jax.data.pretraining.manifest import InstanceSet
from bert_jax.tokenization import Tokenizer

MOST_RANDOM_PAIRS = 0.6  # share of pairs whose second segment is random (nsp) or swapped (sop); the aim is 0.5
MOST_ONE_SENTENCE = 0.5  # share of documents with a single sentence, which has no next sentence
MOST_HEADINGS = 0.01  # share of paragraphs that are headings in WikiText's format
MOST_DUPLICATES = 0.2  # share of documents that repeat the text of an earlier one
MOST_UNKNOWN = 0.05  # share of tokens that are the unknown token
LEAST_FILLED = 0.5  # average length of an example as a share of max_seq_length
FEWEST_EXAMPLES = 100  # examples below which shares of examples are not checked
_MOST_KEPT = 1_000_000  # distinct texts in memory


@dataclasses.dataclass(frozen=True)
class TextCounts:
    """Numbers of documents, paragraphs and tokens in a part of the corpus.

    Attributes:
        documents: documents with text.
        one_sentence: documents with a single sentence.
        paragraphs: lines of text.
        headings: paragraphs that are headings in WikiText's format.
        tokens: all tokens.
        unknown: occurrences of the unknown token.
    """

    documents: int = 0
    one_sentence: int = 0
    paragraphs: int = 0
    headings: int = 0
    tokens: int = 0
    unknown: int = 0

    @classmethod
    def of(cls, documents: Sequence[Document], tokenized: Sequence[TokenDocument], tokenizer: Tokenizer) -> Self:
        """Count the text of `documents`; `tokenized` are those of them that have tokens."""
        return cls(
            len(tokenized),
            sum(len(document) == 1 for document in tokenized),
            sum(len(document.texts) for document in documents),
            sum(is_wikitext_heading(text) for document in documents for text in document.texts),
            sum(len(document.tokens) for document in tokenized),
            sum(int(np.count_nonzero(tokenizer.is_unknown(document.tokens))) for document in tokenized),
        )

    @classmethod
    def total(cls, counts: Iterable[Self]) -> Self:
        """Add up several counts."""
        return cls(*map(sum, zip(*map(dataclasses.astuple, counts), strict=True)))


class Duplicates:
    """Counter of documents whose text repeats that of another one.

    Memory is bounded: when there are many texts, only those whose hash ends in enough zero bits are counted.

    Args:
        most_kept: the maximum number of distinct texts in memory.
    """

    def __init__(self, most_kept: int = _MOST_KEPT) -> None:
        self._counts: collections.Counter[int] = collections.Counter()
        self._mask, self._most_kept = 0, most_kept

    @property
    def share(self) -> float:
        """The fraction of documents whose text repeats that of another one."""
        return 1 - len(self._counts) / max(self._counts.total(), 1)

    def add(self, number: int, times: int = 1) -> None:
        """Count a document by its `Document.number`."""
        if number & self._mask:
            return
        self._counts[number] += times
        if len(self._counts) > self._most_kept:
            self._mask = 2 * self._mask + 1
            self._counts = self._kept()

    def merge(self, other: "Duplicates") -> None:
        """Count the documents that `other` has counted."""
        self._mask |= other._mask
        self._counts = self._kept()
        for number, times in other._counts.items():
            self.add(number, times)

    def _kept(self) -> collections.Counter[int]:
        return collections.Counter({number: times for number, times in self._counts.items() if not number & self._mask})


def complaints(
    counts: TextCounts, duplicates: float, train: Sequence[InstanceSet], objective: str, packed: bool
) -> list[str]:
    """Return a line for each property of a prepared corpus that makes poor training data.

    Args:
        counts: counts of the text of all documents.
        duplicates: share of documents that repeat the text of an earlier one.
        train: the sets of training instances.
        objective, packed: arguments of `bert_jax.data.pretraining.prepare.prepare`.
    """
    lines = []
    if counts.headings > MOST_HEADINGS * counts.paragraphs:
        lines.append(
            f"{counts.headings:,} of {counts.paragraphs:,} lines are headings like ' = Title = ', as in WikiText; "
            "name the corpus wikitext:PATH, so that each article is a document"
        )
    lines += _of_pairs(counts, train) if objective != "mlm" else []
    if duplicates > MOST_DUPLICATES:
        lines.append(f"{duplicates:.0%} of documents have the text of an earlier one; --deduplicate leaves them out")
    if counts.unknown > MOST_UNKNOWN * counts.tokens:
        lines.append(
            f"{counts.unknown / counts.tokens:.0%} of the tokens are unknown; check that the tokenizer supports this "
            "language and its capital letters"
        )
    for part in () if packed else train:
        mean = part.tokens / max(part.examples, 1)
        if part.examples >= FEWEST_EXAMPLES and mean < LEAST_FILLED * part.max_seq_length:
            lines.append(
                f"examples of up to {part.max_seq_length} tokens have {mean:.0f} on average, since documents are "
                "short; --pack lets them share rows, or choose a smaller --max-seq-length"
            )
    return lines


def _of_pairs(counts: TextCounts, train: Sequence[InstanceSet]) -> list[str]:
    """Return warnings about pairs of segments, which need documents of at least two sentences."""
    pairs, label_1 = (sum(getattr(part, name) for part in train) for name in ("examples", "label_1"))
    single = counts.one_sentence / max(counts.documents, 1)
    is_random = pairs >= FEWEST_EXAMPLES and label_1 > MOST_RANDOM_PAIRS * pairs
    if not is_random and single <= MOST_ONE_SENTENCE:
        return []
    share = f"{label_1 / max(pairs, 1):.0%} of the pairs are random or swapped instead of about 50%, as "
    return [
        f"{share}{single:.0%} of the documents have a single sentence and others are short; if a blank line only ends "
        "a paragraph there, name the corpus files:PATH or, for WikiText, wikitext:PATH"
    ]
