"""Markers around two entities, and windows around both."""

import pytest

from bert_jax.data.invalid_rows import InvalidRow
from bert_jax.errors import InputError
from bert_jax.tasks.relation_extraction.markers import (
    MARKERS,
    EntityPair,
    EntitySpan,
    check_punctuation,
    encode_entity_pairs,
    mark_entities,
    marker_tokens,
)
from bert_jax.tokenization import train_bpe, word_piece

WORDS = ["ada", "came", "to", "london", "person", "city", "of", *"@*#^", *(f"w{i}" for i in range(60))]


@pytest.fixture(scope="module")
def tokenizer():
    return word_piece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], lowercase=True)


def span(text, part, kind=""):
    return EntitySpan(text.index(part), text.index(part) + len(part), kind)


@pytest.mark.parametrize("style", MARKERS)
def test_each_style_is_that_of_its_example(style):
    text = "Ada came to London"
    marked = mark_entities(text, span(text, "Ada", "PERSON"), span(text, "London", "CITY"), style)
    assert marked == (MARKERS[style], 0, len(MARKERS[style]))


def test_the_tail_may_come_first_and_types_may_be_missing():
    text = "In London, Ada (it is said) slept."
    marked = mark_entities(text, span(text, "Ada"), span(text, "London", "STATE_OR_CITY"), "typed_entity_marker_punct")
    assert marked.text == "In # ^ state or city ^ London #, @ Ada @ (it is said) slept."
    assert marked.text[marked.start : marked.end] == "# ^ state or city ^ London #, @ Ada @"
    typed = mark_entities(text, span(text, "Ada"), span(text, "London", "STATE OR CITY"), "typed_entity_marker")
    assert typed.text.startswith("In [OBJ-STATE_OR_CITY] London [/OBJ-STATE_OR_CITY], [SUBJ] Ada [/SUBJ] (")


@pytest.mark.parametrize(
    ("head", "tail", "expected"),
    [
        ("Bank of London", "London", "[E1] Bank of [E2] London [/E2] [/E1] x"),
        ("London", "Bank of London", "[E2] Bank of [E1] London [/E1] [/E2] x"),
        ("Bank", "Bank of London", "[E2] [E1] Bank [/E1] of London [/E2] x"),
        ("Bank of London", "Bank of London", "[E1] [E2] Bank of London [/E2] [/E1] x"),
        ("Bank of", "of London", "[E1] Bank [E2] of [/E1] London [/E2] x"),
    ],
)
def test_one_entity_in_another(head, tail, expected):
    text = "Bank of London x"
    assert mark_entities(text, span(text, head), span(text, tail), "entity_marker").text == expected


def test_an_entity_that_begins_where_another_ends():
    marked = mark_entities("ab", EntitySpan(0, 1), EntitySpan(1, 2), "entity_marker")
    assert marked.text == "[E1] a [/E1][E2] b [/E2]"


def test_tokens_that_a_style_adds():
    assert marker_tokens("typed_entity_marker_punct", ["A"]) == marker_tokens("entity_marker_punct", ["A"]) == ()
    assert marker_tokens("entity_marker", ["A", "B"]) == ("[E1]", "[/E1]", "[E2]", "[/E2]")
    assert marker_tokens("typed_entity_marker", ["B", "A", "B"]) == (
        "[SUBJ-A]", "[/SUBJ-A]", "[SUBJ-B]", "[/SUBJ-B]", "[OBJ-A]", "[/OBJ-A]", "[OBJ-B]", "[/OBJ-B]",
    )  # fmt: skip


def encode(tokenizer, text, head, tail, length, style="entity_marker_punct"):
    (found,) = encode_entity_pairs(tokenizer, [EntityPair(text, span(text, head), span(text, tail))], style, length)
    return found


def test_a_long_text_is_cut_around_both_entities(tokenizer):
    words = [f"w{i}" for i in range(60)]
    text = " ".join([*words[:30], "ada came to london", *words[30:]])
    for length in (10, 11, 16, 33, 70):
        ids = encode(tokenizer, text, "ada", "london", length)
        row = [tokenizer.pieces[i] for i in ids]
        assert len(ids) == length and (row[0], row[-1]) == ("[CLS]", "[SEP]")
        assert {"@", "ada", "#", "london"} <= {*row} and row.count("@") == row.count("#") == 2
        before, after = row.index("@") - 1, length - 2 - max(i for i, piece in enumerate(row) if piece == "#")
        assert abs(before - after) <= 1  # both entities are in the middle
    assert [tokenizer.pieces[i] for i in encode(tokenizer, text, "w0", "w1", 10)][1] == "@"  # nothing before them
    assert [tokenizer.pieces[i] for i in encode(tokenizer, text, "w58", "w59", 10)][-2] == "#"
    whole = encode(tokenizer, text, "ada", "london", 200)
    assert len(whole) == 60 + 4 + 4 + 2


def test_entities_that_do_not_fit_into_a_row(tokenizer):
    text = " ".join(f"w{i}" for i in range(20))
    assert not isinstance(encode(tokenizer, text, "w1", "w12", 18), InvalidRow)
    found = encode(tokenizer, text, "w1", "w12", 17)
    assert isinstance(found, InvalidRow) and "expected both entities within 17 tokens" in str(found)
    other = encode(tokenizer, text, "w1", "w2", 17, "typed_entity_marker")
    assert isinstance(other, InvalidRow) and "found the marker '[SUBJ]'" in str(other)


def test_the_vocabulary_has_the_punctuation(tokenizer):
    lacking = word_piece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "@", "#", "a"], lowercase=True)
    check_punctuation(lacking, "entity_marker_punct")
    with pytest.raises(InputError, match=r"expected a vocabulary with '\*', found none"):
        check_punctuation(lacking, "typed_entity_marker_punct")
    for style in MARKERS:
        check_punctuation(tokenizer, style)
        check_punctuation(train_bpe(["a b"], 300), style)  # of bytes
    check_punctuation(lacking, "entity_marker")
