"""A sentence splitter by rule, for the corpora that do not come one sentence a line."""

import re

# A stop, whatever closes around it, and the space behind it; or a full-width stop, which needs no space.
_STOP = re.compile(
    r"[.!?\u2026]+[\"')\]\u201d\u2019\u00bb]*\s+|[\u3002\uff01\uff1f]+[\"\u201d\u2019\u300d\u300f\uff09]*\s*"
)
_OPENING = re.compile(r"[\"'(\[\u201c\u2018\u00ab\u2013\u2014-]*")
_LAST_WORD = re.compile(r"[^\s\"'(\[\u201c\u2018]*$")
# Words that carry a full stop within a sentence. A single letter does too: an initial, or one of "e.g.".
_ABBREVIATIONS_LIST = (
    "mr mrs ms dr prof st sr jr rev gen col capt lt sgt hon vs etc cf eg ie al fig figs eq no nos vol pp p ch sec ed "
    "eds approx dept est inc ltd co corp jan feb mar apr jun jul aug sep sept oct nov dec a.m p.m u.s u.k"
)
_ABBREVIATIONS = frozenset(_ABBREVIATIONS_LIST.split())


def split_sentences(text: str) -> list[str]:
    """Returns the sentences of a paragraph, stripped, none empty.

    A sentence ends at `.`, `!`, `?` or an ellipsis, closing quotes and brackets included, where space follows and what
    comes next does not begin in lower case; not after an initial or a common abbreviation. The full-width stops of
    Chinese and Japanese end one wherever they stand. Made for text in the manner of English: it will be wrong at times.
    """
    sentences = []
    start = 0
    for stop in _STOP.finditer(text):
        if stop.end() < len(text) and _ends_sentence(text, start, stop):
            sentences.append(text[start : stop.end()].strip())
            start = stop.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _ends_sentence(text: str, start: int, stop: re.Match) -> bool:
    mark = text[stop.start()]
    if mark in "\u3002\uff01\uff1f":
        return True
    opening = _OPENING.match(text, stop.end())
    following = text[opening.end() : opening.end() + 1] if opening else ""
    if following.islower():
        return False
    if mark != "." or text[stop.start() + 1] == ".":
        return True
    # Only the end of a sentence can be the word before its stop: a bounded window keeps long texts linear.
    word = _LAST_WORD.search(text[max(start, stop.start() - 40) : stop.start()])
    last = word.group().lower() if word else ""
    return not (len(last) == 1 and last.isalpha()) and last not in _ABBREVIATIONS
