"""Split text into sentences by rule, for corpora that do not have one sentence per line."""

import re

# A stop, closing quotes and brackets, and the space after them; or a full-width stop, which needs no space.
_STOP = re.compile(
    r"[.!?\u2026]+[\"')\]\u201d\u2019\u00bb]*\s+|[\u3002\uff01\uff1f]+[\"\u201d\u2019\u300d\u300f\uff09]*\s*"
)
_OPENING = "\"'([\u201c\u2018\u00ab\u2013\u2014-"  # characters that may precede a word
_LONGEST_WORD = 40  # characters checked before a stop, so that time is linear in the text length
# Abbreviations, whose full stop does not end a sentence. Single letters, as in "e.g.", count as abbreviations too.
_ABBREVIATIONS_LIST = (
    "mr mrs ms dr prof st sr jr rev gen col capt lt sgt hon vs etc cf eg ie al fig figs eq no nos vol pp p ch sec ed "
    "eds approx dept est inc ltd co corp jan feb mar apr jun jul aug sep sept oct nov dec a.m p.m u.s u.k"
)
_ABBREVIATIONS = frozenset(_ABBREVIATIONS_LIST.split())


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a paragraph, stripped, none empty.

    A sentence ends at `.`, `!`, `?` or an ellipsis (with closing quotes and brackets), when a space follows and the
    next word is not in lower case; it does not end after an initial or a common abbreviation. A full-width stop of
    Chinese or Japanese always ends a sentence. The rules are made for English and similar languages, and make mistakes.
    """
    starts = sentence_starts(text)
    sentences = [text[start:end].strip() for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    return [sentence for sentence in sentences if sentence]


def sentence_starts(text: str) -> list[int]:
    """Return the position of the first character of each sentence of `split_sentences`, the first at 0."""
    starts = [0]
    for stop in _STOP.finditer(text):
        if stop.end() < len(text) and _ends_sentence(text, starts[-1], stop):
            starts.append(stop.end())
    return starts


def _ends_sentence(text: str, start: int, stop: re.Match) -> bool:
    mark = text[stop.start()]
    if mark in "\u3002\uff01\uff1f":
        return True
    following = stop.end()
    while text[following : following + 1] in _OPENING and following < len(text):
        following += 1
    if text[following : following + 1].islower():
        return False
    if mark != "." or text[stop.start() + 1] == ".":
        return True
    before = text[max(start, stop.start() - _LONGEST_WORD) : stop.start()]
    last = before[before.rfind(" ") + 1 :].lstrip(_OPENING).lower()
    return not (len(last) == 1 and last.isalpha()) and last not in _ABBREVIATIONS
