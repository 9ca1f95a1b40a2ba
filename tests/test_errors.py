"""What a message may hold: no control of a terminal, no text of any length."""

from bert_jax.errors import MAX_MESSAGE, InputError, did_you_mean, printable


def test_controls_are_shown_as_escapes():
    assert printable("a\x1b[31mb\x00\u202ec\u2028d\ud800") == "a\\x1b[31mb\\x00\\u202ec\\u2028d\\ud800"


def test_tabs_newlines_and_joined_emoji_stay():
    text = "a\tb\n\N{MAN}\u200d\N{WOMAN} \u0645\u200c\u062f"
    assert printable(text) == text


def test_the_middle_of_a_long_text_is_replaced_by_its_length():
    shown = printable("start" + "x" * 100_000 + "end")
    assert len(shown) <= MAX_MESSAGE
    assert shown.startswith("start") and shown.endswith("end") and "(100,008 characters)" in shown


def test_escapes_count_towards_the_limit():
    assert len(printable("\x1b" * 499)) <= MAX_MESSAGE


def test_a_message_is_printable():
    assert str(InputError("expected a name, found '\x1b]0;title\x07'")) == "expected a name, found '\\x1b]0;title\\x07'"


def test_a_long_list_of_choices_is_cut():
    hint = did_you_mean("zzz", [f"name_{i:03}" for i in range(100)])
    assert hint.startswith("; known: name_000, name_001") and hint.endswith("more") and len(hint) < 250
