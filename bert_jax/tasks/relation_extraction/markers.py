"""Mark the two entities of a text for relation extraction, and encode marked texts.

Baldini Soares et al. 2019 (arXiv:1906.03158), section 3: tokens around the entities. Zhou and Chen 2021
(arXiv:2102.01373), section 3.2: the same with the entities' types, and with punctuation in place of new tokens.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bert_jax.data.invalid_rows import InvalidRow
from bert_jax.errors import InputError
from bert_jax.tokenization import Tokenizer

# Style -> an example, with "Ada" as head and "London" as tail.
MARKERS = {
    "typed_entity_marker_punct": "@ * person * Ada @ came to # ^ city ^ London #",
    "entity_marker_punct": "@ Ada @ came to # London #",
    "typed_entity_marker": "[SUBJ-PERSON] Ada [/SUBJ-PERSON] came to [OBJ-CITY] London [/OBJ-CITY]",
    "entity_marker": "[E1] Ada [/E1] came to [E2] London [/E2]",
}
_PUNCTUATION = (("@", "*"), ("#", "^"))  # marks around an entity and around its type, for head and for tail
_CHUNK = 1024  # texts that are tokenized together


class EntitySpan(NamedTuple):
    """An entity of a text: its characters [start, end), and its type ("" = none)."""

    start: int
    end: int
    type: str = ""


class EntityPair(NamedTuple):
    """A text with the entities whose relation is predicted: the head (subject) and the tail (object)."""

    text: str
    head: EntitySpan
    tail: EntitySpan


class MarkedText(NamedTuple):
    """A text with markers, and the characters [start, end) from the first marker to the last."""

    text: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class RelationSettings:
    """Settings of a model of relation extraction: its markers and its null label.

    Attributes:
        markers: one of MARKERS.
        null_label: the class of pairs without a relation; "" = none.
    """

    markers: str = "typed_entity_marker_punct"
    null_label: str = ""


def describe_entity(text: str, entity: EntitySpan, empty_type: bool = True) -> dict[str, Any]:
    """Return an entity as a dict of `text`, `start`, `end` and `type`; `empty_type` keeps an empty type."""
    described = {"text": text[entity.start : entity.end], "start": entity.start, "end": entity.end}
    return described | ({"type": entity.type} if entity.type or empty_type else {})


def mark_entities(text: str, head: EntitySpan, tail: EntitySpan, style: str) -> MarkedText:
    """Return a text with markers around its two entities; one may be inside the other.

    Args:
        text: the text.
        head: the first argument of the relation (the subject).
        tail: its second argument (the object).
        style: one of MARKERS.
    """
    inserted = []
    for number, entity in enumerate((head, tail)):
        before, after = _affixes(style, number, entity.type)
        # At one position, ends come before starts, inner ends before outer ends, and outer starts before inner starts.
        inserted.append((entity.start, 1, -entity.end, number, f"{before} "))
        inserted.append((entity.end, 0, -entity.start, -number, f" {after}"))
    inserted.sort()
    parts, at = [], 0
    for place, *_, marker in inserted:
        parts += [text[at:place], marker]
        at = place
    start, last = inserted[0][0], len(text) - inserted[-1][0]
    marked = "".join([*parts, text[at:]])
    return MarkedText(marked, start, len(marked) - last)


def _affixes(style: str, number: int, kind: str) -> tuple[str, str]:
    """Return the markers before and after an entity with its number (0 = head, 1 = tail) and type."""
    if style.endswith("_punct"):
        mark, of_type = _PUNCTUATION[number]
        name = kind.replace("_", " ").lower().strip()
        typed = style.startswith("typed") and name
        return (f"{mark} {of_type} {name} {of_type}" if typed else mark), mark
    name = f"E{number + 1}"
    if style.startswith("typed"):
        name = "-".join(filter(None, (("SUBJ", "OBJ")[number], "_".join(kind.upper().split()))))
    return f"[{name}]", f"[/{name}]"


def marker_tokens(style: str, kinds: Iterable[str]) -> tuple[str, ...]:
    """Return the tokens that a style adds to a vocabulary for these types of entities; () for punctuation."""
    if style.endswith("_punct"):
        return ()
    names = sorted({*kinds}) if style.startswith("typed") else [""]
    return tuple(dict.fromkeys(token for number in (0, 1) for kind in names for token in _affixes(style, number, kind)))


def check_punctuation(tokenizer: Tokenizer, style: str) -> None:
    """Raise InputError when the vocabulary lacks the punctuation of a style."""
    marks = [mark for pair in _PUNCTUATION for mark in (pair if style.startswith("typed") else pair[:1])]
    for mark in marks if style.endswith("_punct") else ():
        ids = tokenizer.encode(mark)
        if not ids or any(tokenizer.is_unknown(i) for i in ids):
            raise InputError(
                f"markers {style}: expected a vocabulary with {mark!r}, found none; entity_marker and "
                "typed_entity_marker add tokens (data.markers)"
            )


def encode_entity_pairs(
    tokenizer: Tokenizer, pairs: Sequence[EntityPair], style: str, max_length: int
) -> Iterator[list[int] | InvalidRow]:
    """Yield the row of token ids of each pair of entities in its text, or an InvalidRow.

    A text over `max_length` tokens is cut on both sides, so that the entities are in the middle of what is left.

    Args:
        tokenizer: the tokenizer, which has the tokens of the style.
        pairs: texts with their entities.
        style: one of MARKERS.
        max_length: maximum number of tokens in a row, special tokens included.
    """
    layout = tokenizer.layout
    room = max_length - layout.num_special(False)
    for start in range(0, len(pairs), _CHUNK):
        chunk = pairs[start : start + _CHUNK]
        marked = [mark_entities(pair.text, pair.head, pair.tail, style) for pair in chunk]
        encoded = tokenizer.encode_batch_with_offsets([each.text for each in marked])
        for pair, text, (ids, ranges) in zip(chunk, marked, encoded, strict=True):
            tokens = [token for i in (0, 1) for token in _affixes(style, i, (pair.head, pair.tail)[i].type)]
            unknown = [] if style.endswith("_punct") else [t for t in tokens if tokenizer.token_to_id(t) is None]
            if unknown:
                message = f"expected entities of types that training had, found the marker {unknown[0]!r}"
                yield InvalidRow(message, "an entity of another type")
                continue
            kept = _window(ids, ranges, text, room)
            if kept is None:
                message = f"expected both entities within {max_length} tokens, found them farther apart"
                yield InvalidRow(message, "entities that are too far apart")
                continue
            yield [*layout.start, *kept, *layout.end]


def _window(
    ids: Sequence[int], ranges: Sequence[tuple[int, int]], marked: MarkedText, room: int
) -> Sequence[int] | None:
    """Return at most `room` tokens around both entities; None if the entities span more."""
    if len(ids) <= room:
        return ids
    inside = [i for i, (start, end) in enumerate(ranges) if end > marked.start and start < marked.end]
    first, end = inside[0], inside[-1] + 1
    if end - first > room:
        return None
    start = min(max(first - (room - (end - first)) // 2, 0), len(ids) - room)
    return ids[start : start + room]
