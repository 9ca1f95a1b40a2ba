"""What counts as a class."""

import json

import numpy as np
import pytest

from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.labelled_rows import count_classes, labels_of, read_labelled
from bert_jax.data.finetuning.labels import LabelRules, match_labels, spelling_key
from bert_jax.errors import InputError

COLUMNS = Columns("text", "", "label")
SEVERAL = Columns("text", "", "label", separator=",")


def table(tmp_path, *labels, name="a.tsv"):
    path = tmp_path / name
    if name.endswith(".jsonl"):
        path.write_text("".join(json.dumps({"text": f"t{i}", "label": label}) + "\n" for i, label in enumerate(labels)))
    else:
        path.write_text("text\tlabel\n" + "".join(f"t{i}\t{label}\n" for i, label in enumerate(labels)))
    return str(path)


def classes(spec, columns=COLUMNS, rules=None, known=None):
    rows, names = read_labelled(spec, columns, known, regression=False, rules=rules or LabelRules())
    return count_classes(rows, columns, names)


def test_spaces_around_a_label_are_no_part_of_it(tmp_path):
    assert classes(table(tmp_path, "pos", " pos", "pos ", "neg")) == {"neg": 1, "pos": 3}


NEAR_DUPLICATES = [
    (("pos", "pos", "Pos", "neg"), "'pos' (2), 'Pos' (1)", {"neg": 1, "pos": 3}),
    (("1", "0", "1.0", "1.0"), "'1.0' (2), '1' (1)", {"0": 1, "1.0": 3}),
    (('"yes"', "yes", "yes", "no"), "'yes' (2), '\"yes\"' (1)", {"no": 1, "yes": 3}),
    (("new  york", "new york", "new york", "rome"), "'new york' (2), 'new \\x20york' (1)", {"new york": 3, "rome": 1}),
    (("caf\u00e9", "cafe\u0301", "caf\u00e9", "bar"), "'caf\u00e9' (2), 'cafe\u0301' (1)", {"bar": 1, "caf\u00e9": 3}),
    (("\uff11", "1", "1", "0"), "'1' (2), '\uff11' (1)", {"0": 1, "1": 3}),
]


@pytest.mark.parametrize(("labels", "said", "merged"), NEAR_DUPLICATES)
def test_spellings_of_one_label_are_told_and_merged_on_request(tmp_path, caplog, labels, said, merged):
    spec = table(tmp_path, *labels)
    assert len(classes(spec)) == 3
    assert caplog.messages == [
        f"{spec}: probably meant as one class: {said} (see --config.data.near_duplicate_labels=merge)"
    ]
    caplog.clear()
    assert classes(spec, rules=LabelRules(near_duplicates="merge")) == merged
    assert caplog.messages == [f"{spec}: merged: {said}"]


def test_quotes_around_all_labels_are_told_and_removed(tmp_path, caplog):
    spec = table(tmp_path, '"a"', '"b"')
    assert classes(spec) == {'"a"': 1, '"b"': 1} and "quotes around them" in caplog.messages[0]
    assert classes(spec, rules=LabelRules(near_duplicates="merge")) == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    "labels", [("a", "b"), ("0", "1"), ("-1", "1"), ("10", "9", "2"), ("-1", "-2", "5"), ("no", "none of it")]
)
def test_ordinary_labels_say_nothing(tmp_path, caplog, labels):
    assert set(classes(table(tmp_path, *labels))) == set(labels)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("labels", "mark"),
    [
        (("a", "b", "-"), "-"),
        (("a", "b", "N/A"), "N/A"),
        (("0", "1", "-1"), "-1"),
        (("a", "b", "nan"), "nan"),
        (("entailment", "neutral", "-1"), "-1"),
        (("yes", "no", "-1.0"), "-1.0"),
    ],
)
def test_marks_of_a_missing_label_are_told_and_left_out_on_request(tmp_path, caplog, labels, mark):
    spec = table(tmp_path, *labels)
    assert len(classes(spec)) == 3
    option = "(see --config.data.missing_labels=drop)"
    assert caplog.messages == [f"{spec}: classes that may mark a missing label: {mark!r} (1) {option}"]
    caplog.clear()
    assert classes(spec, rules=LabelRules(missing="drop")) == {labels[0]: 1, labels[1]: 1}
    assert caplog.messages == [f"{spec}: left out 1 rows without a label: {mark!r} (1)"]


def test_empty_and_null_labels_are_invalid_or_left_out(tmp_path):
    spec = table(tmp_path, "a", None, "", "b", name="a.jsonl")
    with pytest.raises(InputError, match="line 2: expected text in 'label', found NoneType"):
        classes(spec)
    assert classes(spec, rules=LabelRules(missing="drop")) == {"a": 1, "b": 1}
    numbers = table(tmp_path, 1.5, None, "NaN", 2, name="b.jsonl")
    rows, _ = read_labelled(numbers, COLUMNS, None, regression=True, rules=LabelRules(missing="drop"))
    assert labels_of(rows, COLUMNS, ()).tolist() == [1.5, 2.0]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["[0, 1]", "[1]"], [[1, 1], [0, 1]]),
        (["['a', 'b']", "['b']", "[]"], [[1, 1], [0, 1], [0, 0]]),
        (['["a", "b"]', '["b"]'], [[1, 1], [0, 1]]),
        (["a, b", "b"], [[1, 1], [0, 1]]),
        (["[3, 7]", "[0, 1]"], [[0, 0, 1, 1], [1, 1, 0, 0]]),
    ],
)
@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl"])
def test_lists_of_labels(tmp_path, cells, expected, name):
    spec = table(tmp_path, *cells, name=name)
    rows, names = read_labelled(spec, SEVERAL, None, regression=False)
    np.testing.assert_array_equal(labels_of(rows, SEVERAL, names), expected)


@pytest.mark.parametrize(
    "cells",
    [
        ["[1, 0, 0]", "[0, 1, 0]", "[0, 0, 1]"],
        ["[1 0 0]", "[0 1 0]", "[1 1 1]"],  # as NumPy prints it
        ["[1.0, 1.0]", "[0.0, 1.0]"],
        ["[true, false]", "[false, true]"],
    ],
)
@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl"])
def test_lists_of_a_0_or_1_for_each_class_are_refused(tmp_path, cells, name):
    spec = table(tmp_path, *cells, name=name)
    count = cells[0].count(" ") + 1
    for names in (None, ["a", "b", "c"][:count]):
        with pytest.raises(InputError, match=f"expected lists of labels .*, found a 0 or 1 for each of {count}"):
            read_labelled(spec, SEVERAL, names, regression=False)
    with pytest.raises(InputError, match=rf"line \d: expected one label .* {count} \(if it is a 0 or 1 for each class"):
        classes(spec)


def test_lists_in_json(tmp_path):
    spec = table(tmp_path, ["a"], ["b"], name="b.jsonl")
    assert classes(spec) == {"a": 1, "b": 1}
    spec = table(tmp_path, ["a"], ["b", "c"], name="c.jsonl")
    with pytest.raises(InputError, match=r"line 2: expected one label in 'label', found a list of 2 .*multi_label"):
        classes(spec)


def test_numbers_with_a_list_of_names(tmp_path):
    rules = LabelRules(names=("neg", "pos", "mixed"))
    assert classes(table(tmp_path, 0, 1, 0, name="a.jsonl"), rules=rules) == {"neg": 2, "pos": 1, "mixed": 0}
    assert classes(table(tmp_path, "pos", "2"), rules=rules) == {"neg": 0, "pos": 1, "mixed": 1}
    with pytest.raises(InputError, match="expected a label of 'neg', 'pos', 'mixed', found '3'"):
        classes(table(tmp_path, "pos", "3"), rules=rules)
    spec = table(tmp_path, [1, 2], [0], name="b.jsonl")
    assert classes(spec, SEVERAL, rules) == {"neg": 1, "pos": 1, "mixed": 1}


@pytest.mark.parametrize(
    ("found", "names", "expected"),
    [
        (["POS", "neg"], ["neg", "pos"], {"POS": "pos", "neg": "neg"}),
        (["LABEL_1", "0", "1.0"], ["neg", "pos"], {"LABEL_1": "pos", "0": "neg", "1.0": "pos"}),
        (["LABEL_1"], ["0", "1"], {"LABEL_1": "1"}),
        (["1", "label_0"], ["LABEL_0", "LABEL_1"], {"1": "LABEL_1", "label_0": "LABEL_0"}),
        (["LABEL_1", "0"], ["1", "2"], {}),  # the first class, or the class 1?
        (["PoS", "POS"], ["pos", "Pos"], {}),  # which of them?
        (["2", "-", "\u0661"], ["neg", "pos"], {}),
    ],
)
def test_a_label_means_a_class_where_no_other_is_meant(found, names, expected):
    matched, said = match_labels(found, names)
    assert matched == expected
    assert said == ", ".join(sorted(f"{a!r} as {b!r}" for a, b in expected.items() if a != b))


def test_near_duplicates_of_numbers():
    assert len({spelling_key(label) for label in ("7", "7.0", "07", "+7", "7e0", " \uff17 ")}) == 1
    assert len({spelling_key(label) for label in ("7", "-7", "7.5", "1e39", "1" * 5000, "v7", "7/8")}) == 7


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ([f"text {i}" for i in range(1500)], "found 1,500 different labels in 1,500 rows.* looks like a text or an id"),
        (
            [f"{i}.25" for i in range(1500)],
            "found 1,500 different labels.*for numbers use --config.data.task_type=regression",
        ),
        (["x" * 2000, "y"], "line 2: expected a label in 'label', found a text of 2,000 characters"),
    ],
)
def test_columns_that_are_no_classes_are_refused(tmp_path, labels, found):
    with pytest.raises(InputError, match=found):
        classes(table(tmp_path, *labels))


def test_very_many_labels_are_refused_while_reading(tmp_path, monkeypatch):
    monkeypatch.setattr("bert_jax.data.finetuning.labelled_rows.MAX_CLASSES", 50)
    monkeypatch.setattr("bert_jax.data.finetuning.labels.MAX_CLASSES", 50)
    with pytest.raises(InputError, match="found 51 different labels in 51 rows"):
        classes(table(tmp_path, *[f"l{i // 3}" for i in range(90)], *[f"m{i}" for i in range(100)]))
    assert len(classes(table(tmp_path, *[f"l{i % 50}" for i in range(200)]))) == 50


@pytest.mark.parametrize("regression", [False, True])
def test_numbers_of_any_size_are_labels_or_refused_in_a_line(tmp_path, regression):
    spec = table(tmp_path, "1" * 900, 10**39, "7")
    if not regression:
        assert classes(spec) == {"7": 1, str(10**39): 1, "1" * 900: 1}
        return
    with pytest.raises(InputError, match="line 2: expected a number"):
        read_labelled(spec, COLUMNS, None, regression=True)


def test_what_does_not_fit_the_known_classes_is_listed(tmp_path, caplog):
    spec = table(tmp_path, "POS", "neg", "meh", "what")
    with pytest.raises(InputError, match=r"line 4: .* of 'neg', 'pos', found 'meh'; not known: 'meh', 'what' \(and 1"):
        classes(spec, known=("neg", "pos"))
    assert f"{spec}: labels are read as classes: 'POS' as 'pos'" in caplog.messages


def test_a_class_of_a_single_row_beside_common_ones_is_told(tmp_path, caplog):
    classes(table(tmp_path, *["a"] * 10, *["b"] * 5, "c"))
    assert caplog.messages[0].endswith("1 of 3 classes have a single row: 'c'")
