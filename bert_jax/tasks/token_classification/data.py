"""Token features of tagged sentences: the first piece of a word carries its tag."""

import collections
import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.conll import Sentence
from bert_jax.data.finetuning.features import Features
from bert_jax.data.finetuning.tables import Columns
from bert_jax.data.finetuning.tagged import read_sentences
from bert_jax.data.finetuning.tags import UNTAGGED
from bert_jax.data.finetuning.windows import overlapping
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows, place
from bert_jax.errors import InputError
from bert_jax.tokenization import Tokenizer

_ENTITY_TAG = re.compile(
    "[BIESLU]-."
)  # the beginning of a tag with a type, in any scheme of `bert_jax.data.finetuning.tags.TAG_SCHEMES`


@dataclasses.dataclass(frozen=True, eq=False)
class TaggedFeatures(Features):
    """Rows of tokens, each a sentence or a window of one.

    The `labels` of `Features` are int32 `[n]`, the number of the first tagged word in each row. Words are numbered
    over all sentences, and one number is left out between two sentences.

    Attributes:
        tags: int32 `[total]`, the class of the word that begins at each token, or UNTAGGED.
    """

    tags: np.ndarray

    token_fills: ClassVar[Mapping[str, int]] = {**Features.token_fills, "labels": UNTAGGED}

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """Return the batch of `Features.pad`, with `labels` int32 [B, S] (or UNTAGGED) and `first_word` int32 [B]."""
        batch = super().pad(index, length, pad_id)
        at = self.starts[np.maximum(index, 0)][:, None] + np.arange(length)
        tags = np.where(batch["attention_mask"] > 0, self.tags[np.minimum(at, len(self.tags) - 1)], UNTAGGED)
        return batch | {"first_word": batch["labels"], "labels": tags.astype(np.int32)}


def word_pieces(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], joined: Sequence[Sequence[int]] | None = None
) -> list[list[list[int]]]:
    """Tokenize each word of each sentence as in a text whose words are separated by spaces.

    A word without pieces (of control characters, for example) becomes the unknown token, so that it keeps a tag.

    Args:
        tokenizer: the tokenizer.
        sentences: the words of each sentence.
        joined: for each sentence, the numbers of words without a space before them (`Sentence.joined`); None = none.
    """
    # Each distinct form is tokenized once. Its space is part of the form, since byte-level pieces depend on it.
    spaced = [[words[0], *(" " + word for word in words[1:])] for words in sentences]
    for words, forms, numbers in zip(sentences, spaced, joined or (), strict=False):
        for i in numbers:
            forms[i] = words[i]
    forms = sorted(set(itertools.chain.from_iterable(spaced)))
    ids = dict(zip(forms, tokenizer.encode_batch(forms, parse_special=False), strict=True))
    return [[ids[form] or [tokenizer.unk_id] for form in words] for words in spaced]


def encode_words(
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[str]],
    classes: Sequence[np.ndarray],
    max_length: int,
    joined: Sequence[Sequence[int]] | None = None,
) -> TaggedFeatures:
    """Encode sentences as rows of at most `max_length` tokens; cut longer ones into windows that tag each word once.

    Args:
        tokenizer: the tokenizer of the words.
        sentences: the words of each sentence.
        classes: for each sentence the classes of its words, int `[words]`.
        max_length: maximum number of tokens in a row, special tokens included.
        joined: as for `word_pieces`.
    """
    before, after = tokenizer.layout.start, tokenizer.layout.end
    rows: list[list[int]] = []
    tags: list[np.ndarray] = []
    first_words = []
    place = 0
    for words, answers in zip(word_pieces(tokenizer, sentences, joined), classes, strict=True):
        ids = list(itertools.chain.from_iterable(words))
        begins = np.cumsum([0, *map(len, words[:-1])])
        for start, stop, own_start, own_stop in overlapping(len(ids), max_length - len(before) - len(after)):
            first, end = np.searchsorted(begins, (own_start, own_stop))
            if first == end:
                continue  # the window owns only the middle of a very long word
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


def read_tagged(
    spec: str,
    columns: Columns,
    names: Sequence[str] | None,
    bad: InvalidRows | None = None,
    tag_names: Sequence[str] = (),
) -> tuple[list[Sentence], tuple[str, ...]]:
    """Read tagged sentences for training or evaluation.

    Args:
        spec, columns: arguments of `read_sentences`.
        names: the allowed tags, in the order of their classes; None: `tag_names` or, if that is empty, the tags in the
            data, `O` first.
        bad: collects invalid sentences; None: they are an error.
        tag_names: the names of the classes in order, if tags are numbers; () if tags are names.

    Returns:
        The sentences and the names of the tags.

    Raises:
        InputError: as for `read_sentences`; a tag is unknown, or does not mark entities in data where most do;
            or there are fewer than two tags.
    """
    bad = bad or InvalidRows(spec, noun="sentence")
    if len(set(tag_names)) < len(tag_names) or len(tag_names) == 1:
        raise InputError(f"tag_names: expected names of two classes or more, each once, found {', '.join(tag_names)}")
    read = read_sentences(spec, columns, bad=bad, names=tag_names)
    names = names if names is not None else tag_names or None
    if names is not None:
        known = dict.fromkeys(names)
        return list(bad.fitting(bad.each(read, lambda row: _known(spec, row, known)))), tuple(names)
    sentences = list(bad.kept(read))
    counts = collections.Counter(tag for row in sentences for tag in row.tags or ())
    of_entities = sum(count for tag, count in counts.items() if _ENTITY_TAG.match(tag))
    if of_entities > (counts.total() - counts["O"]) / 2:
        known = {tag: None for tag in counts if tag == "O" or _ENTITY_TAG.match(tag)}
        sentences = list(bad.each(sentences, lambda row: _well_formed(spec, row, known)))
    sentences = list(bad.fitting(sentences))
    tags = {tag for sentence in sentences for tag in sentence.tags or ()}
    if len(tags) < 2:
        raise InputError(f"{spec}: expected at least two tags, found only {min(tags)!r}")
    return sentences, tuple(sorted(tags, key=lambda name: (name != "O", name)))


def encode_tagged(
    tokenizer: Tokenizer, sentences: Sequence[Sentence], names: Sequence[str], max_length: int
) -> TaggedFeatures:
    """Encode sentences as `encode_words` does, with the classes of their tags, all of which are among `names`."""
    number = {name: i for i, name in enumerate(names)}
    classes = [np.array([number[tag] for tag in sentence.tags or ()], np.int32) for sentence in sentences]
    joined = [sentence.joined for sentence in sentences]
    return encode_words(tokenizer, [sentence.words for sentence in sentences], classes, max_length, joined)


def _known(spec: str, sentence: Sentence, known: Mapping[str, None]) -> Sentence:
    for word, tag in zip(sentence.words, sentence.tags or (), strict=True):
        if tag not in known:
            shown = ", ".join(map(repr, [*known][:8])) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
            raise InvalidRow(_wrong_tag(spec, sentence, f"one of {shown}", word, tag), "a tag that is not known")
    return sentence


def _well_formed(spec: str, sentence: Sentence, known: Mapping[str, None]) -> Sentence:
    for word, tag in zip(sentence.words, sentence.tags or (), strict=True):
        if tag not in known:
            raise InvalidRow(_wrong_tag(spec, sentence, "O or a tag like B-PER", word, tag), "a malformed tag")
    return sentence


def _wrong_tag(spec: str, sentence: Sentence, expected: str, word: str, tag: str) -> str:
    where = place(spec, sentence.line)
    return f"{where}: in the sentence that begins there, expected {expected}, found {tag!r} of the word {word!r}"


def in_order(outputs: Sequence[np.ndarray], batches: Sequence[Batch], fill: float = UNTAGGED) -> np.ndarray:
    """Return the value at each word's first piece in `outputs` [B, S] of each batch, in the order of the words.

    The word number that is left out between two sentences has the value `fill`.
    """
    places, values = [], []
    for output, batch in zip(outputs, batches, strict=True):
        is_word = batch["labels"] != UNTAGGED
        places.append((batch["first_word"][:, None] + np.cumsum(is_word, axis=1) - 1)[is_word])
        values.append(output[is_word])
    at, value = np.concatenate(places), np.concatenate(values)
    ordered = np.full(at.max() + 1, fill, value.dtype)
    ordered[at] = value
    return ordered
