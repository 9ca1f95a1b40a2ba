"""Reports of taggers: a table of entity types, confusions, and the worst sentences with their entities marked."""

from collections.abc import Iterable, Sequence

import numpy as np

from bert_jax.data.finetuning.conll import Sentence
from bert_jax.data.finetuning.tags import TagScheme
from bert_jax.reports import attention, measures
from bert_jax.reports.classes import calibration_of_answers, confusion_section, per_class_section, worst_rows
from bert_jax.reports.page import Html, Section, as_html, joined, line_cell, note, shortened, tagged

_WORDS = 150  # maximum number of words shown per sentence
_WORD = 60  # maximum number of characters shown per word
_NONE = "no entity"  # the type of a word outside of all entities

Spans = np.ndarray  # int [m, 3]: first word, word after the last, type


def tagger(
    names: Sequence[str],
    tags: np.ndarray,
    answers: np.ndarray,
    scores: np.ndarray,
    entities: tuple[TagScheme, Spans, Spans] | None,
    sentences: Sequence[Sentence],
    attend: attention.Attend,
) -> list[Section]:
    """Return the sections of a report on a model that tags words.

    Args:
        names: names of the tags.
        tags, answers: gold and predicted tags of all words, int `[n]`, with a -1 between sentences.
        scores: `[n]`, the probability of each predicted tag.
        entities: the scheme of the tags, the gold entities and the predicted entities; None if tags mark no entities.
        sentences: the sentences.
        attend: function from the index of a sentence's first word among the n to its attention.
    """
    words = tags >= 0
    wrong = words & (tags != answers)
    # The badness of a sentence is the summed probability of its wrong tags.
    of_sentence = np.cumsum(~words)
    badness = np.bincount(of_sentence, np.where(wrong, np.nan_to_num(scores), 0))
    mistaken = np.bincount(of_sentence, wrong) > 0
    index = measures.worst(badness, mistaken)
    starts = np.concatenate([[0], np.flatnonzero(~words) + 1])
    lines: list[list[Html | int | float]] = []
    worst = [sentences[i] for i in index]
    for i, sentence in zip(index, worst, strict=True):
        place = slice(int(starts[i]), int(starts[i]) + len(sentence.words))
        if entities is None:
            sentence_cell = _tagged_words(sentence.words, names, tags[place], answers[place])
        else:
            sentence_cell = _with_entities(sentence.words, place, *entities)
        lines.append([line_cell(sentence.line), sentence_cell, int(wrong[place].sum()), float(badness[i])])
    by = "the highest summed probability of wrong tags; ✗ marks entities that the other side lacks"
    header = ["line", "sentence", "wrong words", "their probability"]
    titles = [(f"Line {sentence.line}", int(starts[i])) for i, sentence in zip(index, worst, strict=True)]
    return [
        *(_by_tag(names, tags[words], answers[words]) if entities is None else _by_type(tags, answers, *entities)),
        calibration_of_answers(scores[words], (tags == answers)[words]),
        worst_rows(by, int(mistaken.sum()), header, lines, "sentences with a wrong tag"),
        *attention.sections(titles[: attention.ROWS], attend),
    ]


def _by_tag(names: Sequence[str], tags: np.ndarray, answers: np.ndarray) -> list[Section]:
    counts = measures.per_class(tags, answers, len(names))
    return [per_class_section(names, counts, "tag"), confusion_section(names, tags, answers, "words")]


def _by_type(tags: np.ndarray, answers: np.ndarray, scheme: TagScheme, gold: Spans, predicted: Spans) -> list[Section]:
    """Return the sections with scores of entities by type, and confusions of words by type."""
    right = predicted[_among(predicted, gold)]
    sides = (np.bincount(side[:, 2], minlength=len(scheme.type_names)) for side in (gold, predicted, right))
    counts = measures.PerClass(*sides)
    words = tags >= 0
    kinds, found_kinds = (scheme.types[side[words]] + 1 for side in (tags, answers))  # 0 = no entity
    names = [_NONE, *scheme.type_names]
    per_type = per_class_section(scheme.type_names, counts, "type")
    words_of = note("Entities; an entity is right if both its words and its type are right.")
    return [
        Section(per_type.title, joined([words_of, per_type.body])),
        confusion_section(names, kinds, found_kinds, "words"),
    ]


def _among(predicted: Spans, gold: Spans) -> np.ndarray:
    """Return bool `[m]`: whether each entity of `predicted` is in `gold`."""
    others = set(map(tuple, gold.tolist()))
    return np.array([tuple(span) in others for span in predicted.tolist()], np.bool_)


def _with_entities(words: Sequence[str], place: slice, scheme: TagScheme, gold: Spans, predicted: Spans) -> Html:
    """Return a cell with a sentence twice, with its gold entities and with its predicted entities marked."""
    within = [side[(side[:, 0] >= place.start) & (side[:, 0] < place.stop)] for side in (gold, predicted)]
    sides = []
    for title, spans, others in (("gold", *within), ("answer", *reversed(within))):
        marks = [
            (start - place.start, stop - place.start, scheme.type_names[kind], is_right)
            for (start, stop, kind), is_right in zip(spans.tolist(), _among(spans, others), strict=True)
        ]
        sides.append(tagged("div", tagged("b", title), " ", _marked(words, marks)))
    return tagged("td", *sides, class_="words")


def _tagged_words(words: Sequence[str], names: Sequence[str], tags: np.ndarray, answers: np.ndarray) -> Html:
    """Return a cell with a sentence whose wrongly tagged words are marked with gold and predicted tag."""
    marks = [
        (i, i + 1, f"{names[tag]}, not {names[answer]}", False)
        for i, (tag, answer) in enumerate(zip(tags, answers, strict=True))
        if tag != answer
    ]
    return tagged("td", _marked(words, marks), class_="words")


def _marked(words: Sequence[str], marks: Iterable[tuple[int, int, str, bool]]) -> Html:
    """Return words as HTML, with frames around the (start, stop, label, is right) spans; wrong ones are dashed."""
    parts: list[Html] = []
    words, length = [shortened(word, _WORD) for word in words[:_WORDS]], len(words)
    done = 0
    for start, stop, kind, is_right in marks:
        if start >= _WORDS:
            break
        parts += map(as_html, words[done:start])
        label = tagged("small", kind if is_right else f"{kind} ✗")
        parts.append(tagged("mark", " ".join(words[start:stop]), label, class_="" if is_right else "wrong"))
        done = stop
    parts += map(as_html, words[done:])
    if length > _WORDS:
        parts.append(as_html(f"… ({length:,} words)"))
    return tagged("span", joined(parts, " "), dir="auto")
