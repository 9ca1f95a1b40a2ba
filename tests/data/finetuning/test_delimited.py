"""CSV of other delimiters and encodings, and hints that name the columns that were meant."""

import csv
import re

import pytest

from bert_jax.data.finetuning.columns import Columns, recipe_key
from bert_jax.data.finetuning.tables import Example, read_examples
from bert_jax.data.invalid_rows import number_of
from bert_jax.data.lines import MAX_ROW_BYTES
from bert_jax.errors import InputError

TEXT = Columns("text", "", "label")


def write(path, data, encoding="utf-8"):
    path.write_bytes(data.encode(encoding))
    return str(path)


def read(spec, columns=TEXT):
    return list(read_examples(spec, columns))


@pytest.mark.parametrize(
    ("delimiter", "name"), [(";", "semicolons"), ("|", "vertical bars"), ("\t", "tabs"), (",", None)]
)
def test_the_delimiter_is_the_one_that_gives_the_wanted_columns(tmp_path, caplog, delimiter, name):
    rows = [["id", "text", "label"], ["1", '"a, b; c | d ""e"""', "x"], ["2", "f", "y"]]
    spec = write(tmp_path / "a.csv", "\n".join(delimiter.join(row) for row in rows))
    assert read(spec) == [Example(2, 'a, b; c | d "e"', None, "x"), Example(3, "f", None, "y")]
    assert caplog.messages == ([f"{spec}: columns are separated by {name}"] if name else [])


def test_without_a_header_the_rows_tell_the_delimiter(tmp_path):
    numbers = Columns("0", "", "1", has_header=False)
    assert read(write(tmp_path / "a.csv", "good, really;1\nbad;0\n"), numbers)[0][1:] == ("good, really", None, "1")
    assert read(write(tmp_path / "b.csv", "good; really,1\nbad,0\n"), numbers)[0][1:] == ("good; really", None, "1")


def test_a_named_delimiter(tmp_path):
    spec = write(tmp_path / "a.csv", "text^label\nx, y^1\n")
    assert read(spec, Columns("text", "", "label", delimiter="^")) == [Example(2, "x, y", None, "1")]
    spec = write(tmp_path / "a.tsv", 'text;label\n"x; y";1\n')
    assert read(spec, Columns("text", "", "label", delimiter=";")) == [Example(2, "x; y", None, "1")]
    with pytest.raises(InputError, match="delimiter: expected one character, such as ';', or tab, found '::'"):
        read(spec, Columns("text", delimiter="::"))


@pytest.mark.parametrize(("first", "between"), [("sep=;", ";"), ("SEP=|", "|"), ("sep=\t", "\t"), ("sep=,", ",")])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_first_line_of_excel_names_the_delimiter_and_is_no_row(tmp_path, first, between, end):
    lines = [first, f"text{between}label", f'"a; b, c | d"{between}x', '"e', f'f"{between}y', ""]
    spec = write(tmp_path / "a.csv", end.join(lines))
    assert read(spec) == [Example(3, "a; b, c | d", None, "x"), Example(5, f"e{end}f", None, "y")]
    plain = write(tmp_path / "b.csv", f"{first}\n" + "x,1\ny,2\n")
    numbers = Columns("0", "", "1", has_header=False, delimiter=",")
    assert read(plain, numbers) == [Example(2, "x", None, "1"), Example(3, "y", None, "2")]


@pytest.mark.parametrize(
    ("text", "number"),
    [("3,5", 3.5), ("-0,25", -0.25), ("0,125", 0.125), ("1234,5678", 1234.5678), (" 2,0 ", 2.0), ("1.5", 1.5)],
)
def test_decimals_after_a_comma(text, number):
    assert number_of("here", text) == number


@pytest.mark.parametrize("text", ["1,250", "12,345", "1,250.5", "1.250,5", "3,5,1", ",", "3,"])
def test_a_comma_that_may_be_one_of_thousands_is_no_decimal_comma(text):
    hint = "decimal point, as its comma may separate thousands" if text in ("1,250", "12,345") else "expected a number"
    with pytest.raises(InputError, match=f"found '{re.escape(text)}'" if hint == "expected a number" else hint):
        number_of("here", text)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_a_byte_order_mark_names_the_encoding(tmp_path, caplog, encoding):
    spec = write(tmp_path / "a.csv", "text,label\ncaf\u00e9 \U0001f600,1\n", encoding)
    assert read(spec) == [Example(2, "caf\u00e9 \U0001f600", None, "1")]
    said = f"{spec}: read as {encoding.upper()}, as its byte order mark says"
    assert caplog.messages == ([] if encoding == "utf-8-sig" else [said])


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_latin_1_is_never_guessed_but_named(tmp_path, name):
    between = "," if name.endswith("csv") else "\t"
    spec = write(tmp_path / name, f"text{between}label\ncaf\u00e9{between}1\n", "cp1252")
    with pytest.raises(InputError, match=r"line 2: expected UTF-8 text, found byte 0xe9 .*use --encoding cp1252\)"):
        read(spec)
    assert read(spec, Columns("text", "", "label", encoding="cp1252")) == [Example(2, "caf\u00e9", None, "1")]
    spec = write(tmp_path / "b.csv", "text,label\nx,1\n", "utf-16-le")
    with pytest.raises(InputError, match="looks like utf-16-le without a byte order mark; use --encoding utf-16-le"):
        read(spec)
    with pytest.raises(InputError, match=r"expected an encoding such as utf-8, .* found 'klingon'"):
        read(spec, Columns("text", encoding="klingon"))


def test_bytes_that_the_encoding_does_not_have(tmp_path):
    (tmp_path / "a.csv").write_bytes("text,label\nabc,1\n".encode("utf-16") + b"\x00")
    with pytest.raises(InputError, match=r"a.csv: after line .* expected utf-16 text, found one that is cut short"):
        read(str(tmp_path / "a.csv"))


def test_a_header_with_two_columns_of_one_name(tmp_path):
    for header in ("text,label,label", "text, label ,label", "label,x,x,text"):
        with pytest.raises(InputError, match=r"line 1: expected columns of different names, found '(label|x)' in"):
            read(write(tmp_path / "a.csv", f"{header}\na,0,9,1\n"))
    assert read(write(tmp_path / "a.csv", "text,label,,\na,0,,\n"))  # as spreadsheets write it


REVIEWS = "id;review;stars\n" + "".join(f"{i};a film that is number {i};{i % 2}\n" for i in range(9))
PAIRS = "text2,same,question\nother words,yes,the words\n"


@pytest.mark.parametrize(
    ("data", "columns", "hint"),
    [
        (REVIEWS, Columns("sentence", "", "label"), "--text-column review --label-column stars"),
        (REVIEWS, Columns("sentence"), "--text-column review"),
        (REVIEWS.replace("stars", "la bels"), Columns("sentence", "", "labels"),
         "--text-column review --label-column 'la bels'"),
        ("sentiment,comment\npos,a b c\n", Columns("sentence", "", "label"),
         "--text-column comment --label-column sentiment"),
        (PAIRS, Columns("sentence1", "sentence2", "label", option=recipe_key),
         "--config.data.text_column=question --config.data.pair_column=text2"),
    ],
)  # fmt: skip
def test_hints_name_the_columns_that_were_meant(tmp_path, data, columns, hint):
    with pytest.raises(InputError, match=re.escape(f"; use {hint}") + "$"):
        read(write(tmp_path / "a.csv", data), columns)
    header, *rows = [line.split(";" if ";" in data else ",") for line in data.splitlines()]
    objects = [dict(zip(header, row, strict=True)) for row in rows]
    for name in ("text", "label"):
        found = re.search(rf"{name}[-_]column[ =]('[^']+'|\S+)", hint)
        assert found is None or found[1].strip("'") in objects[0]


def test_a_misspelled_column_is_named(tmp_path):
    with pytest.raises(InputError, match=r"did you mean 'lable'\? \(--label-column lable\)"):
        read(write(tmp_path / "a.csv", "text,lable\nx,1\n"))
    with pytest.raises(InputError, match=r"looks like several separated by semicolons; use --delimiter ';'"):
        read(write(tmp_path / "a.tsv", "text;label\nx;1\n"))


def test_a_quote_that_nothing_closes_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("bert_jax.data.finetuning.delimited.MAX_ROW_BYTES", 1000)
    spec = write(tmp_path / "a.csv", "text,label\n" + '"a\n",' * 300 + "x\n")
    with pytest.raises(InputError, match="expected a row of at most 1,000 characters, found a longer one"):
        read(spec)
    assert MAX_ROW_BYTES == 16 << 20


def test_the_limit_of_the_csv_module_stays_as_it_was(tmp_path):
    limit = csv.field_size_limit()
    path = tmp_path / "long.csv"
    path.write_text(f'text,label\n"{"a " * limit}",x\nb,y\n')
    assert [example.label for example in read(str(path))] == ["x", "y"]
    assert csv.field_size_limit() == limit
