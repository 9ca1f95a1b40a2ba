"""What a message may hold: no control of a terminal, no text of any length."""

import pytest

from bert_jax.cli import build_parser
from bert_jax.conversion.write_checkpoint import SAVED_DTYPES
from bert_jax.errors import MAX_MESSAGE, InputError, did_you_mean, printable
from bert_jax.families import FAMILIES
from bert_jax.head_names import HEADS
from bert_jax.inference.pipelines import PIPELINES
from bert_jax.metrics import METRICS
from bert_jax.planning.slices import CHIPS
from bert_jax.recipes import OPTIMIZERS, RECIPES, SCHEDULES
from bert_jax.recipes.keys import KEYS
from bert_jax.recipes.shipped import recipe_names
from bert_jax.synonyms import _OTHER_NAMES


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


@pytest.mark.parametrize(
    ("name", "choices", "hint"),
    [
        ("classification", HEADS, "; did you mean 'sequence_classification'?"),
        ("BertForTokenClassification", HEADS, "; did you mean 'token_classification'?"),
        ("mlm", HEADS, "; did you mean 'masked_lm'?"),
        ("mlm", PIPELINES, "; did you mean 'fill-mask'?"),
        ("qa", PIPELINES, "; did you mean 'question-answering'?"),
        ("ner", RECIPES, "; did you mean 'token_classification'?"),
        ("adam", OPTIMIZERS, "; did you mean 'adamw'?"),
        ("inverse_sqrt", SCHEDULES, "; did you mean 'rsqrt'?"),
        ("v5", CHIPS, "; did you mean 'v5e' or 'v5p'?"),
        ("Trillium", CHIPS, "; did you mean 'v6e'?"),
        ("--output", ["--out", "--model"], "; did you mean '--out'?"),
        ("Fine-Tune", ["finetune", "predict"], "; did you mean 'finetune'?"),
    ],
)
def test_what_others_call_it_comes_before_similar_spelling(name, choices, hint):
    assert did_you_mean(name, choices) == hint


def test_a_beginning_comes_before_similar_spelling():
    assert did_you_mean("--lon", ["--json", "--long-texts"]) == "; did you mean '--long-texts'?"
    assert did_you_mean("--lon", ["--json", "--long-texts", "--long"]) == "; did you mean '--long'?"


def test_names_that_differ_in_digits_are_different_things():
    assert did_you_mean("v9", ["v4", "v5e"]) == "; known: v4, v5e"
    assert did_you_mean("f2", ["accuracy", "f1"]) == "; known: accuracy, f1"


def test_every_name_of_the_table_is_one_that_there_is():
    _, verbs = build_parser()
    flags = {flag for verb in verbs.values() for flag in verb._option_string_actions}
    keys = {part for table in KEYS.values() for name, key in table.items() for part in (*name.split("."), *key.choices)}
    known = (
        keys
        | set(KEYS)
        | {*HEADS, *PIPELINES, *FAMILIES, *CHIPS, *SAVED_DTYPES, *verbs, *flags, *recipe_names()}
        | {metric.name for metric in METRICS}
    )
    assert not {
        name
        for name in _OTHER_NAMES
        if name.replace("__", "--").replace("_", "-") not in {choice.replace("_", "-") for choice in known}
    }
