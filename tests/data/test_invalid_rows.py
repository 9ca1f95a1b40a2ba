"""Rows that do not fit: named by line and counted, an error or skipped, whatever reads them."""

import json

import pytest

from bert_jax.data.finetuning.tables import Columns, read_examples
from bert_jax.data.finetuning.tagged import read_sentences
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows, check_utf8
from bert_jax.errors import InputError
from bert_jax.tasks.question_answering.data import read_questions

TEXT = Columns(text="sentence", label="label")


def even(number):
    if number % 2:
        raise InvalidRow(
            f"row {number}: expected an even number", "an odd number" if number < 9 else "a large odd number"
        )
    return number * 10


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)


def skipped(read, caplog, *arguments, **options):
    """What is read where bad rows are skipped, and what is said of them."""
    bad = InvalidRows(arguments[0], "skip", **options)
    caplog.clear()
    return list(bad.fitting(read(*arguments, bad=bad))), [record.getMessage() for record in caplog.records]


def test_strict_names_the_first_and_counts_the_others_in_constant_memory():
    bad, asked = InvalidRows("a.tsv", skipping="--skip"), []
    with pytest.raises(InputError, match=r"^row 3: expected an even number \(and 2 more invalid rows; --skip "):
        list(bad.fitting(bad.each([2, 4, 3, 6, 8, 5, 9, 10], even)))
    with pytest.raises(InputError, match=r"^row 3: expected an even number \(--skip skips it\)$"):
        bad = InvalidRows("a.tsv", skipping="--skip")
        for row in bad.fitting(bad.each([2, 4, 3, 6, 8], even)):
            asked.append(row)
    assert asked == [20, 40]  # none behind a bad one, so that none of them is held
    with pytest.raises(InputError, match=r"^row 3: expected an even number$"):
        bad = InvalidRows("a.tsv")
        list(bad.fitting(bad.each([2, 3], even)))


def test_skip_names_a_few_and_counts_all_by_reason(caplog):
    bad = InvalidRows("a.tsv", "skip", "sentence")
    assert list(bad.fitting(bad.each(range(1200), even))) == list(range(0, 12000, 20))
    *named, total = [record.getMessage() for record in caplog.records]
    assert [name.split(":")[0] for name in named] == [f"row {number}" for number in (1, 3, 5, 7, 9)]
    assert total.startswith("a.tsv: skipped 600 of 1,200 sentences: 596 with a large odd number, 4 with an odd number")


def test_a_row_is_checked_by_all_who_read_it_and_counted_once(caplog):
    bad = InvalidRows("a.tsv", "skip", keeping=True)
    once = bad.each([1, 2, 4], even)
    twice = list(bad.fitting(bad.each(once, lambda row: even(row // 20))))
    assert [type(row).__name__ for row in twice] == ["InvalidRow", "InvalidRow", "int"]  # each in its place
    assert caplog.records[-1].getMessage().startswith("a.tsv: skipped 2 of 3 rows: 2 with an odd number")


def test_nothing_that_fits_is_an_error():
    for numbers, message in (([1, 3], "expected at least one valid row, found 2 invalid"), ([], "found none")):
        for keeping in (False, True):
            bad = InvalidRows("a.tsv", "skip", keeping=keeping)
            with pytest.raises(InputError, match=message):
                list(bad.fitting(bad.each(numbers, even)))
    with pytest.raises(InputError, match="invalid_rows: expected strict or skip, found 'drop'"):
        InvalidRows("a.tsv", "drop")


def test_what_ends_the_reading_comes_before_what_is_wrong_in_a_row():
    def numbers():
        yield from (2, 3, 5)
        raise InputError("cut short")

    bad = InvalidRows("a.tsv")
    with pytest.raises(InputError, match=r"^cut short$"):
        list(bad.fitting(bad.each(numbers(), even)))


def test_other_bytes_than_utf8_are_found_where_they_stand():
    check_utf8("here", "naïve", "plain")
    for text, found in (("nä\udcef", "byte 0xef at offset 3"), ("\ud83d", "half a surrogate pair at offset 0")):
        with pytest.raises(InvalidRow, match=f"here: expected UTF-8 text, found {found}"):
            check_utf8("here", text)


TSV = b"sentence\tlabel\none\t1\nno tab\n\nthree\t\xe9\ttoo\ncaf\xe9\t1\nsix\t1\t\nlast\t0\n"
CSV = b'sentence,label\none,1\n"two"x,1\nthree\nfour,\xe9\n"five,\nand",1\n"last",0\n'
JSON = b"""{"sentence": "one", "label": 1}
{"sentence": "two", "lab
[3]
{"sentence": "four", "lable": 1}

{"sentence": 6, "label": 1}
{"sentence": "caf\xe9", "label": 1}
{"sentence": "\\ud83d", "label": 1}
{"sentence": "nine", "label": null}
{"sentence": "last", "label": 0}
"""


@pytest.mark.parametrize(
    ("name", "data", "lines", "reasons"),
    [
        ("a.tsv", TSV, [2, 8], "3 with a wrong number of columns, 2 with bytes other than UTF-8"),
        ("a.csv", CSV, [2, 7, 8], "1 with broken CSV, 1 with a wrong number of columns, 1 with bytes other than UTF-8"),
        ("a.jsonl", JSON, [1, 10], "2 with broken JSON, 2 with a field of another kind, 2 with bytes other than UTF-8, "
                                   "1 with a missing field"),
    ],
)  # fmt: skip
def test_tables(tmp_path, caplog, name, data, lines, reasons):
    spec = write(tmp_path / name, data)
    rows, said = skipped(read_examples, caplog, spec, TEXT)
    assert [row.line for row in rows] == lines and rows[0].text == "one" and rows[-1].text == "last"
    total = sum(int(part.split()[0]) for part in reasons.split(", "))
    assert said[-1].startswith(f"{spec}: skipped {total} of {total + len(lines)} rows: ")
    assert sorted(said[-1].split(": ")[-1].split(", ")) == sorted(reasons.split(", "))
    with pytest.raises(InputError) as strict:
        list(read_examples(spec, TEXT))
    assert str(strict.value) == said[0].removesuffix("; skipped") + f" (and {total - 1} more invalid rows)"


def test_the_line_that_settles_the_columns_is_never_skipped(tmp_path):
    for data in (b"sentence\tlabel\xe9\none\t1\n", b"sentense\tlabel\none\t1\n"):
        bad = InvalidRows("a.tsv", "skip")
        with pytest.raises(InputError, match="line 1: expected"):
            list(bad.fitting(read_examples(write(tmp_path / "a.tsv", data), TEXT, bad)))
    spec = write(tmp_path / "a.csv", 'sentence,label\n"one,1\ntwo,0\n')  # all behind the quote would be lost
    bad = InvalidRows(spec, "skip")
    with pytest.raises(InputError, match=r"a\.csv: line 3: expected CSV, found: unexpected end of data"):
        list(bad.fitting(read_examples(spec, TEXT, bad)))


def test_sentences_are_skipped_whole(tmp_path, caplog):
    spec = write(tmp_path / "a.conll", b"EU B-ORG\nrejects O\n\nPeter\nruns O\n\na\tb\tO\n\ncaf\xe9 O\n\nlast O\n")
    rows, said = skipped(read_sentences, caplog, spec, Columns(), noun="sentence")
    assert [(row.line, row.words) for row in rows] == [(1, ("EU", "rejects")), (11, ("last",))]
    assert said[0].startswith(f"{spec}: line 4: expected 2 columns as in line 1, found 1")
    assert said[-1].startswith(
        f"{spec}: skipped 3 of 5 sentences: 2 with a wrong number of columns, 1 with bytes other"
    )
    lines = ['{"tokens": ["a", "b"], "tags": ["O"]}', '{"tokens": ["a"], "tags": ["O"]}', '{"tokens": []}', "{"]
    rows, said = skipped(read_sentences, caplog, write(tmp_path / "a.jsonl", "\n".join(lines)), Columns())
    assert [row.line for row in rows] == [2]
    assert "1 with different numbers of words and tags" in said[-1] and "1 with broken JSON" in said[-1]


def asked(name, **changes):
    return {"id": name, "question": "When?", "answers": [{"text": "1815", "answer_start": 12}]} | changes


def test_questions(tmp_path, caplog):
    rows = [asked("a"), asked("b", answers=[{"text": "1815", "answer_start": 11}]), asked("c", question=" "),
            asked("a"), asked("d", answers=[]), {"id": [3]}, asked("e")]  # fmt: skip
    articles = [{"paragraphs": [{"context": "Ada was born 1815.", "qas": rows[:2]}]},
                {"paragraphs": [{"context": "She was born1815.", "qas": [asked("x")]}, {"qas": [asked("y")]},
                                {"context": "She was born1815."[:12] + "1815.", "qas": rows[2:]}]}]  # fmt: skip
    rows[0]["answers"] = [{"text": "1815", "answer_start": 13}]
    spec = write(tmp_path / "a.json", json.dumps({"version": "1.1", "data": articles}))
    found, said = skipped(read_questions, caplog, spec, noun="question")
    assert [(question.id, question.article) for question in found] == [("a", 0), ("x", 1), ("e", 1)]
    assert said[0].startswith(f"{spec}: question 'b': expected the answer '1815' at character 11")
    reasons = {part.split(" with ")[1] for part in said[-1].split(": ")[-1].split(", ")}
    assert reasons == {"an answer that is not in its context", "a missing field", "an empty text", "a repeated id",
                       "a wrong number of answers", "a field of another kind"}  # fmt: skip
    assert "skipped 6 of 9 questions" in said[-1]
