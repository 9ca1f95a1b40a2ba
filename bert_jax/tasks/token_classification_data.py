"""Tagged sentences as token features in memory: the tag of a word stands at its first piece."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from bert_jax.data.examples import Columns
from bert_jax.data.tagged import Sentence, read_sentences
from bert_jax.data.windows import overlapping
from bert_jax.errors import InputError
from bert_jax.tasks.classification_data import Batch, Features
from bert_jax.tokenization import Tokenizer

UNTAGGED = -1  # the label of tokens that are not asked: other pieces than a word's first, special tokens, padding


@dataclasses.dataclass(frozen=True, eq=False)
class TaggedFeatures(Features):
    """Rows of tokens, each a sentence or a window of one.

    Of `Features`, `labels` is int32 `[n]`: the place of the first word that is asked in each row. Words are numbered
    sentence after sentence, and one number is left out between two.

    Attributes:
        tags: int32 `[total]`, the class of the word that begins at each token, or UNTAGGED.
    """

    tags: np.ndarray

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """As `Features.pad`: `labels` int32 [B, S] are classes or UNTAGGED; `first_word` int32 [B] is added."""
        batch = super().pad(index, length, pad_id)
        at = self.starts[np.maximum(index, 0)][:, None] + np.arange(length)
        tags = np.where(batch["attention_mask"] > 0, self.tags[np.minimum(at, len(self.tags) - 1)], UNTAGGED)
        return batch | {"first_word": batch["labels"], "labels": tags.astype(np.int32)}


def word_pieces(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]) -> list[list[list[int]]]:
    """The ids of each word of each sentence, as they are in a text where a space stands between two words.

    A word that a tokenizer makes nothing of (of control characters, say) is the unknown token: it keeps its place.
    """
    # Words are cut apart from each other, so each form once; the space matters to pieces of bytes.
    spaced = [[words[0], *(" " + word for word in words[1:])] for words in sentences]
    forms = sorted(set(itertools.chain.from_iterable(spaced)))
    ids = dict(zip(forms, tokenizer.encode_batch(forms, parse_special=False), strict=True))
    return [[ids[form] or [tokenizer.unk_id] for form in words] for words in spaced]


def encode(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], classes: Sequence[np.ndarray], max_length: int
) -> TaggedFeatures:
    """Rows of at most `max_length` tokens; longer sentences become windows, in one of which each word is asked.

    Args:
        tokenizer: makes the pieces.
        sentences: words.
        classes: int `[words]` of each sentence.
        max_length: tokens of a row, special ones counted.
    """
    before, after = tokenizer.layout.start, tokenizer.layout.end
    rows: list[list[int]] = []
    tags: list[np.ndarray] = []
    first_words = []
    place = 0
    for words, answers in zip(word_pieces(tokenizer, sentences), classes, strict=True):
        ids = list(itertools.chain.from_iterable(words))
        begins = np.cumsum([0, *map(len, words[:-1])])
        for start, stop, own_start, own_stop in overlapping(len(ids), max_length - len(before) - len(after)):
            first, end = np.searchsorted(begins, (own_start, own_stop))
            if first == end:
                continue  # all that it owns is the middle of one very long word
            rows.append([*before, *ids[start:stop], *after])
            tags.append(np.full(len(rows[-1]), UNTAGGED, np.int32))
            tags[-1][begins[first:end] - start + len(before)] = answers[first:end]
            first_words.append(place + first)
        place += len(words) + 1
    lengths = np.array([len(row) for row in rows])
    return TaggedFeatures(
        tokens=np.fromiter(itertools.chain.from_iterable(rows), np.int32, lengths.sum()),
        starts=np.concatenate([[0], np.cumsum(lengths)]),
        first=lengths.astype(np.int32),
        labels=np.array(first_words, np.int32),
        tags=np.concatenate(tags),
    )


def load(
    spec: str, columns: Columns, tokenizer: Tokenizer, max_length: int, names: Sequence[str] | None
) -> tuple[TaggedFeatures, tuple[str, ...]]:
    """Reads and tokenises tagged sentences.

    Args:
        spec, columns: what `read_sentences` takes.
        tokenizer, max_length: as of `encode`.
        names: the tags that there may be, in the order of their classes; None to take those found, `O` before others.

    Returns:
        The features and the names of the tags.

    Raises:
        InputError: as `read_sentences`, or an unknown tag, or fewer than two tags.
    """
    sentences = list(read_sentences(spec, columns))
    if names is None:
        found = {tag for sentence in sentences for tag in sentence.tags or ()}
        names = sorted(found, key=lambda name: (name != "O", name))
        if len(names) < 2:
            raise InputError(f"{spec}: expected at least two tags, found only {names[0]!r}")
    known = {name: i for i, name in enumerate(names)}
    classes = [_classes(spec, sentence, known) for sentence in sentences]
    return encode(tokenizer, [sentence.words for sentence in sentences], classes, max_length), tuple(names)


def _classes(spec: str, sentence: Sentence, known: dict[str, int]) -> np.ndarray:
    assert sentence.tags is not None
    for word, tag in zip(sentence.words, sentence.tags, strict=True):
        if tag not in known:
            shown = ", ".join(map(repr, [*known][:8])) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
            raise InputError(
                f"{spec}: line {sentence.line}: in the sentence that begins there, expected a tag of {shown}, "
                f"found {tag!r} of the word {word!r}"
            )
    return np.array([known[tag] for tag in sentence.tags], np.int32)


def in_order(outputs: Sequence[np.ndarray], batches: Sequence[Batch], fill: float = UNTAGGED) -> np.ndarray:
    """What stands at each word's first piece in `outputs` [B, S] of each batch, by the number of the word.

    `fill` is where a number is left out between two sentences.
    """
    places, values = [], []
    for output, batch in zip(outputs, batches, strict=True):
        asked = batch["labels"] != UNTAGGED
        places.append((batch["first_word"][:, None] + np.cumsum(asked, axis=1) - 1)[asked])
        values.append(output[asked])
    at, value = np.concatenate(places), np.concatenate(values)
    ordered = np.full(at.max() + 1, fill, value.dtype)
    ordered[at] = value
    return ordered
