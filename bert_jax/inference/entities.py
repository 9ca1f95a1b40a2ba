"""Group tokens into words, and tagged words into entities with their character ranges."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.data.finetuning.tags import BEGIN, END, INSIDE, OUTSIDE, TAG_SCHEMES, read_scheme

# Scripts that are written without spaces: Thai and Lao, Tibetan, Myanmar, Khmer, Tai Le to Tai Tham, Balinese and
# Javanese, then those of China and Japan with their punctuation and full-width forms, but not Korean.
_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f\ua980-\ua9df\uaa60-\uaadf"
    "\u2e80-\u312f\u31a0-\u9fff\ua000-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff9f\U0001b000-\U0001b16f"
    "\U00020000-\U0003ffff]"
)


@dataclasses.dataclass(frozen=True, eq=False)
class Pieces:
    """The tokens of a text with the model's class probabilities.

    Attributes:
        ids: token ids, int `[n]`.
        ranges: character range [start, end) of each token, int `[n, 2]`.
        scores: class probabilities, `[n, C]`.
    """

    ids: np.ndarray
    ranges: np.ndarray
    scores: np.ndarray


def words_begin(text: str, pieces: Pieces, tokenizer: Any) -> np.ndarray:
    """Return bool `[n]`: whether each token begins a word.

    A token begins a word if the vocabulary marks it so, if it follows a space, or, for vocabularies that do not mark
    continuations, if it is next to a character of a script that is written without spaces.
    """
    marks_words = getattr(tokenizer, "marks_continuations", False)
    goes_on = tokenizer.is_continuation[pieces.ids]
    begins: np.ndarray = ~goes_on
    begins[:1] = True
    for i in np.flatnonzero(~begins):
        (start_before, end_before), start = pieces.ranges[i - 1], pieces.ranges[i, 0]
        # A space token that begins a word belongs to the next word; other space tokens, such as newlines, are separate.
        after_space = goes_on[i - 1] and text[start_before:end_before].isspace()
        begins[i] = after_space or any(map(str.isspace, text[end_before : start + 1]))
        if not begins[i] and not marks_words and start >= end_before:
            begins[i] = bool(_UNSPACED.search(text[max(0, end_before - 1) : end_before] + text[start : start + 1]))
    return begins


def entities_of(
    text: str, pieces: Pieces, labels: Sequence[str], begins: np.ndarray | None, strategy: str
) -> list[dict[str, Any]]:
    """Group the tokens of a text into entities, including those of type `O`; see the pipeline `TokenClassification`.

    Args:
        text: the text.
        pieces: its tokens with their scores.
        labels: names of the classes.
        begins: bool `[n]`, the tokens that begin a word; None means that every token is a word.
        strategy: `simple`, `first`, `average` or `max`.
    """
    starts = np.arange(len(pieces.ids)) if begins is None else np.flatnonzero(begins)
    if not len(starts):
        return []
    marks = _marks(labels)
    groups: list[tuple[str, list[float], list[np.ndarray]]] = []  # type, scores of words, ranges of words
    before, type_before = OUTSIDE, ""
    for ranges, scores in zip(
        np.split(pieces.ranges, starts[1:]), _word_scores(pieces.scores, starts, strategy), strict=True
    ):
        if begins is not None and _cut(text, ranges) is None:
            continue  # skip whitespace
        best = int(scores.argmax())
        kind, name = marks[best]
        if not (name == type_before and kind in (INSIDE, END) and before in (BEGIN, INSIDE)):
            groups.append((name, [], []))
        groups[-1][1].append(scores[best])
        groups[-1][2].append(ranges)
        before, type_before = kind, name
    entities = []
    for name, shares, parts in groups:
        if (cut := _cut(text, np.concatenate(parts))) is not None:
            start, end = cut
            entities.append({"entity_group": name, "score": float(np.mean(shares)), "word": text[start:end],
                          "start": start, "end": end})  # fmt: skip
    return entities


def _word_scores(scores: np.ndarray, starts: np.ndarray, strategy: str) -> np.ndarray:
    """Return the scores `[words, C]` of words that begin at tokens `starts`, from the tokens' scores `[n, C]`."""
    if strategy == "average":
        return np.add.reduceat(scores, starts, axis=0) / np.diff(np.append(starts, len(scores)))[:, None]
    if strategy == "max":
        surest = scores.max(axis=1)
        ends = np.append(starts[1:], len(scores))
        return scores[[start + surest[start:end].argmax() for start, end in zip(starts, ends, strict=True)]]
    first: np.ndarray = scores[starts]
    return first


def _marks(labels: Sequence[str]) -> list[tuple[int, str]]:
    """Split each label into its mark (begin, inside, ...) and type; a label without a mark is inside its own type."""
    scheme = read_scheme(labels)
    letters = TAG_SCHEMES[scheme.name if scheme else "IOB"]
    marks = []
    for label in labels:
        letter, _, kind = label.partition("-")
        marks.append((letters[letter], kind) if kind and letter in letters else (INSIDE, label))
    return marks


def _cut(text: str, ranges: np.ndarray) -> tuple[int, int] | None:
    """Return the characters [start, end) that `ranges` [n, 2] span, without spaces around them; None if none remain."""
    ranges = ranges[ranges[:, 0] < ranges[:, 1]]  # skip tokens without characters
    if not len(ranges):
        return None
    start, end = int(ranges[:, 0].min()), int(ranges[:, 1].max())
    word = text[start:end].strip()
    start += len(text[start:end]) - len(text[start:end].lstrip())
    return (start, start + len(word)) if word else None
