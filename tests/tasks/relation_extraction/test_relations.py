"""Pairs of entities from the files of TACRED and DocRED, and from JSON lines of texts."""

import json

import numpy as np
import pytest

from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.errors import InputError
from bert_jax.tasks.relation_extraction.data import (
    check_labels,
    iterate_relations,
    limit_null_pairs,
    relation_labels,
    relation_names,
)
from bert_jax.tasks.relation_extraction.markers import EntitySpan

TACRED = {
    "id": "e1", "docid": "d", "relation": "per:title",
    "token": ["Ada", "Lovelace", "-LRB-", "the", "writer", "-RRB-", "."],
    "subj_start": 0, "subj_end": 1, "obj_start": 4, "obj_end": 4, "subj_type": "PERSON", "obj_type": "TITLE",
    "stanford_pos": ["NNP"] * 7,
}  # fmt: skip
DOCRED = {
    "title": "T",
    "sents": [["Ada", "Lovelace", "slept", "."], ["She", "saw", "London", "."], ["London", "saw", "Ada", "."]],
    "vertexSet": [
        [{"name": "Ada Lovelace", "pos": [0, 2], "sent_id": 0, "type": "PER"},
         {"name": "Ada", "pos": [2, 3], "sent_id": 2, "type": "PER"}],
        [{"name": "London", "pos": [2, 3], "sent_id": 1, "type": "LOC"},
         {"name": "London", "pos": [0, 1], "sent_id": 2, "type": "LOC"}],
        [{"name": "She", "pos": [0, 1], "sent_id": 1, "type": "PER"}],
    ],
    "labels": [{"h": 0, "t": 1, "r": "P19", "evidence": [0]}, {"h": 0, "t": 1, "r": "P20", "evidence": []},
               {"h": 0, "t": 1, "r": "P19", "evidence": []}],
}  # fmt: skip
PLAIN = {"text": "Ada saw London.", "head": {"start": 0, "end": 3, "type": "PER"}, "tail": {"start": 8, "end": 14},
         "label": "saw"}  # fmt: skip


def read(path, *rows, labelled=True, rule="strict"):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    bad = InvalidRows(str(path), rule)
    return list(bad.fitting(iterate_relations(str(path), labelled, bad)))


def changed(row, **changes):
    return {**row, **changes}


def test_tacred(tmp_path):
    for name, text in (("a.json", json.dumps([TACRED])), ("a.jsonl", json.dumps(TACRED) + "\n")):
        (tmp_path / name).write_text(text)
        (row,) = iterate_relations(str(tmp_path / name), True, InvalidRows("a"))
        assert row.pair == ("Ada Lovelace ( the writer ) .", EntitySpan(0, 12, "PERSON"), EntitySpan(19, 25, "TITLE"))
        assert (row.labels, row.kept, row.line) == (("per:title",), {"id": "e1"}, 1)
    (row,) = read(tmp_path / "b.jsonl", {k: v for k, v in TACRED.items() if k != "relation"}, labelled=False)
    assert row.labels is None


def test_docred(tmp_path):
    rows = read(tmp_path / "a.jsonl", DOCRED)
    assert [(row.kept["h_idx"], row.kept["t_idx"]) for row in rows] == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    assert [row.labels for row in rows] == [("P19", "P20"), (), (), (), (), ()]
    text = "Ada Lovelace slept . She saw London . London saw Ada ."
    assert {row.pair.text for row in rows} == {text} and {row.line for row in rows} == {1}
    told = [[text[e.start : e.end] for e in row.pair[1:]] for row in rows]
    assert told[:3] == [["Ada", "London"], ["Ada Lovelace", "She"], ["London", "Ada"]]
    # Of the mentions the two that are nearest to each other: both in the last sentence.
    assert rows[0].pair.head == EntitySpan(49, 52, "PER") and rows[0].pair.tail == EntitySpan(38, 44, "LOC")


def test_texts(tmp_path):
    several = changed(PLAIN, label=["saw", "met", "saw"], id=7, head=[0, 3, "PER"])
    one, two = read(tmp_path / "a.jsonl", PLAIN, several)
    assert one.pair == two.pair == ("Ada saw London.", EntitySpan(0, 3, "PER"), EntitySpan(8, 14, ""))
    assert (one.labels, two.labels, two.kept) == (("saw",), ("saw", "met"), {"id": 7})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (changed(TACRED, token=["a", ""]), "expected a list of tokens in 'token', found"),
        (changed(TACRED, subj_end=7), "expected subj_start and subj_end among the tokens 0 to 6, found 0 and 7"),
        (changed(TACRED, obj_start=5), "expected obj_start and obj_end among the tokens 0 to 6, found 5 and 4"),
        (changed(TACRED, obj_start=True), "expected obj_start and obj_end among the tokens 0 to 6, found True and 4"),
        (changed(TACRED, obj_type=3), "expected a text in obj_type, found 3"),
        (changed(TACRED, relation=None), "expected a relation in 'relation', found nothing"),
        (changed(DOCRED, sents=[]), r"expected lists of tokens in 'sents', found \[\]"),
        (changed(DOCRED, sents=[["a"], "b"]), "expected a list of tokens in 'sents', found 'b'"),
        (changed(DOCRED, vertexSet=[[]]), "expected mentions with sent_id, pos within its sentence .*, found nothing"),
        (changed(DOCRED, vertexSet=[[{"sent_id": 0, "pos": [2, 5]}]]), "expected mentions with sent_id, pos within"),
        (changed(DOCRED, vertexSet=3), "expected mentions with sent_id, pos within"),
        (changed(DOCRED, labels=[{"h": 0, "t": 3, "r": "P"}]), r"expected objects of h and t \(entities 0 to 2\) and"),
        (changed(PLAIN, text=" "), "expected a text in 'text', or a row of TACRED or DocRED, found ' '"),
        (changed(PLAIN, head=None), r"expected start and end \(characters\) .* in 'head', found nothing"),
        (
            changed(PLAIN, tail={"start": 8, "end": 99}),
            "expected a span within the 15 characters of the text in 'tail'",
        ),
        (changed(PLAIN, tail=[8, 8]), "expected a span within the 15 characters of the text in 'tail', found 8 to 8"),
        (changed(PLAIN, label=""), "expected a relation in 'label', found ''"),
        (changed(PLAIN, label="\ud800"), "expected UTF-8 text, found half a surrogate pair"),
        ([1], "expected a JSON object, found list"),
    ],
)
def test_rows_that_do_not_fit(tmp_path, row, message):
    with pytest.raises(InputError, match=rf"a\.jsonl: line 2: {message}"):
        read(tmp_path / "a.jsonl", PLAIN, row)
    assert len(read(tmp_path / "a.jsonl", PLAIN, row, rule="skip")) == 1


def test_classes(tmp_path):
    rows = read(tmp_path / "a.jsonl", PLAIN, changed(PLAIN, label="NA"), changed(PLAIN, label="met"))
    assert relation_names("a", rows, "", several=False) == (("NA", "met", "saw"), "NA")
    assert relation_names("a", rows, "met", several=False) == (("NA", "met", "saw"), "met")
    assert relation_names("a", rows, "", several=True) == (("met", "saw"), "NA")
    assert relation_labels(rows, ("NA", "met", "saw"), "NA", several=False).tolist() == [2, 0, 1]
    assert relation_labels(rows, ("met", "saw"), "NA", several=True).tolist() == [[0, 1], [0, 0], [1, 0]]
    with pytest.raises(InputError, match="expected a relation in a, found 'nil'; known: NA, met, saw"):
        relation_names("a", rows, "nil", several=False)
    with pytest.raises(InputError, match="expected at least 2 relations, found saw"):
        relation_names("a", rows[:1], "", several=False)


def test_classes_of_documents(tmp_path):
    rows = read(tmp_path / "a.jsonl", changed(DOCRED, labels=[{"h": 0, "t": 1, "r": "P19"}]))
    assert relation_names("a", rows, "", several=False) == (("P19", "no_relation"), "no_relation")
    assert relation_names("a", rows, "NA", several=False) == (("NA", "P19"), "NA")
    assert relation_labels(rows, ("NA", "P19"), "NA", several=False).tolist() == [1, 0, 0, 0, 0, 0]
    assert relation_names("a", rows, "", several=True) == (("P19",), "no_relation")


def test_labels_that_do_not_fit(tmp_path):
    rows = read(tmp_path / "a.jsonl", PLAIN, DOCRED)
    for names, null, several, message in (
        (None, "", False, r"line 2: expected one relation of a pair, found P19, P20 \(config.data.multi_label=true"),
        (("P19", "P20"), "", True, "line 1: expected one of 'P19', 'P20', found 'saw'"),
        (("P19", "P20", "saw"), "", False, r"line 2: expected one relation of a pair.*\(and 5 more"),
    ):
        bad = InvalidRows("a.jsonl")
        with pytest.raises(InputError, match=message):
            list(bad.fitting(check_labels("a.jsonl", iter(rows), names, null, several, bad)))


def test_pairs_without_a_relation_are_sampled(tmp_path):
    rows = read(tmp_path / "a.jsonl", *[DOCRED] * 5)
    kept = limit_null_pairs(rows, "NA", 2.0, seed=0)
    assert sum(bool(row.labels) for row in kept) == 5 and len(kept) == 15
    numbers = [next(i for i, other in enumerate(rows) if other is row) for row in kept]
    assert numbers == sorted(numbers)
    assert kept == limit_null_pairs(rows, "NA", 2.0, seed=0) != limit_null_pairs(rows, "NA", 2.0, seed=1)
    assert limit_null_pairs(rows, "NA", 100.0, seed=0) == rows
    assert np.mean([not row.labels for row in limit_null_pairs(rows, "NA", 0.2, 0)]) == pytest.approx(1 / 6)
