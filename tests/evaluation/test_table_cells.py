"""Tables of answers hold no formula for a spreadsheet and no escape for a terminal; JSON lines hold the exact text."""

import csv
import json
import re

import pytest

from bert_jax import evaluation
from bert_jax.cli import main
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.tables import read_rows
from bert_jax.data.finetuning.tagged import read_sentences
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.errors import printable_json
from bert_jax.evaluation.answer_files import answer_file
from tests.html_pages import Page

COMMAND = "cmd|' /C calc'!A0"
FORMULAS = [
    *(f"{sign}{COMMAND}" for sign in "=+-@\t\r\n＝＋－＠﹦﹢﹣﹫"),
    f"  ={COMMAND}",
    f"\u00a0\u3000={COMMAND}",  # spaces that are not ASCII
    f"\ufeff\u200b\u200d={COMMAND}",  # characters without width
    f'"={COMMAND}"',
    f"'={COMMAND}",
    f"\u201c={COMMAND}",
    f" \"' =SUM(1+1)*{COMMAND}",
    f"\x00={COMMAND}",
    f"\x1b=1+{COMMAND}",
    "-2+3",
    "@SUM(1+1)",
    "+1 555 0100",
    "=1",
    " -0.5",
    "'+",
]
# A spreadsheet that splits at semicolons or ignores quotes behind the beginning of a cell.
INNER = [f"a;={COMMAND};b", f"a\n={COMMAND}", f"a\r\n ={COMMAND}", f"a;\t@{COMMAND}", f'x"; "=1+{COMMAND}']
PLAIN = [
    "the cat",
    "a=b",
    "well-known",
    "me@example.org",
    "1 + 1 = 2",
    "-0.5",
    "+1",
    "-1e-05",
    "-.5",
    "+",
    "-",
    "--",
    "'tis",
    '"quoted", with a comma',
    "两只猫 😀",
    "a; b",
    "",
]
ESCAPES = "\x1b[31mred\x1b]0;title\x07 \u202egnp.exe \x9b1m \x7f"
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
TABLES = {"a.csv": ",", "A.CSV": ",", "a.tsv": "\t"}


def runs_as_a_formula(cell: str) -> bool:
    """Whether a spreadsheet would read a cell as a formula, after it dropped spaces, quotes but the first, and BOMs."""
    return cell[:1] in ("\t", "\r", "\n") or cell.lstrip(' "\u00a0\u3000\ufeff\u200b\u200d\u201c')[:1] in set(
        "=+-@＝＋－＠﹦﹢﹣﹫"
    )


def written(path, texts, header=("text", "score")):
    with answer_file(path, header) as write:
        write([{"text": text, "score": -0.5} for text in texts], [[text, -0.5] for text in texts])
    return path


def cells(path):
    """The first column of a table by Python's csv, whose quotes are ordinary characters in a TSV."""
    delimiter = TABLES[path.name]
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file, delimiter=delimiter, quoting=quoting, strict=True))
    assert all(len(row) == 2 for row in rows)
    return [row[0] for row in rows[1:]]


def without_apostrophes(text: str) -> str:
    """The rule of docs/tasks.md that gives the text of a cell back."""
    text = re.sub(r"^'(?='*[\t\n])", "", text)
    return re.sub(r"(^|(?<=[;\n]))'(?=[\"'“ \t\u00a0\u3000\u200b\u200d]*[=+\-@＝＋－＠﹦﹢﹣﹫])", "", text)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("text", FORMULAS, ids=ascii)
def test_no_cell_is_a_formula(name, text, tmp_path, caplog):
    (cell,) = cells(written(tmp_path / name, [text]))
    assert not runs_as_a_formula(cell) and cell.startswith("'")
    said = [record.getMessage() for record in caplog.records]
    assert (
        len(said) == 1
        and f"{name}: an apostrophe before what a spreadsheet would run as a formula in 1 cell" in said[0]
        and ".jsonl has the exact text" in said[0]
    )


@pytest.mark.parametrize("text", INNER, ids=ascii)
def test_no_part_of_a_cell_is_a_formula_where_semicolons_separate_columns(text, tmp_path):
    path = written(tmp_path / "a.csv", ["x", text])
    with path.open(newline="", encoding="utf-8") as file:
        found = [cell for row in csv.reader(file, delimiter=";") for cell in row]
    assert any("C calc" in cell for cell in found)
    assert not [cell for cell in found if runs_as_a_formula(cell)]
    assert not [line for line in path.read_text().splitlines() if runs_as_a_formula(line)]


@pytest.mark.parametrize("name", TABLES)
def test_other_texts_and_numbers_are_unchanged(name, tmp_path, caplog):
    path = written(tmp_path / name, PLAIN)
    assert cells(path) == PLAIN and not caplog.records
    assert {line.rsplit(TABLES[name], 1)[1] for line in path.read_text().splitlines()[1:]} == {"-0.5"}


def test_a_documented_rule_gives_the_texts_back(tmp_path):
    texts = [text for text in (*FORMULAS, *INNER, *PLAIN) if not FORBIDDEN.search(text) and "\r" not in text]
    texts = [text for text in texts if "\ufeff" not in text]
    assert len(texts) > 30
    assert [without_apostrophes(cell) for cell in cells(written(tmp_path / "a.csv", texts))] == texts


@pytest.mark.parametrize("name", TABLES)
def test_no_table_holds_what_a_terminal_obeys(name, tmp_path, caplog):
    texts = [ESCAPES, f"={ESCAPES}", "a\x85b\u2028c", "a\x0bb\x0cc"]
    path = written(tmp_path / name, texts, (f"label {ESCAPES}", "score"))
    content = path.read_text(encoding="utf-8")
    assert not FORBIDDEN.search(content) and content.count("\\x1b[31mred") == 3
    assert len(content.splitlines()) == 5  # no text adds a line
    assert "control characters written as escapes in 5 cells" in caplog.text


@pytest.mark.parametrize("text", [*FORMULAS, *INNER, *PLAIN, ESCAPES, "\ud800"], ids=ascii)
def test_json_lines_hold_the_exact_text_and_nothing_that_a_terminal_obeys(text, tmp_path, caplog):
    path = written(tmp_path / "a.jsonl", [text])
    content = path.read_text(encoding="utf-8")
    assert json.loads(content)["text"] == text and not FORBIDDEN.search(content.rstrip("\n"))
    assert not caplog.records
    if text.isascii() and text.isprintable():
        assert content == json.dumps({"text": text, "score": -0.5}) + "\n"


def test_json_escapes_only_what_it_must():
    assert printable_json({"ключ": "😀\x9b"}) == '{"ключ": "😀\\u009b"}'
    assert json.loads(printable_json(["\\\x9b", "\x7f\u202e"])) == ["\\\x9b", "\x7f\u202e"]


def test_parquet_holds_the_exact_text(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="of the [parquet] extra")
    texts = [*FORMULAS, ESCAPES]
    found = parquet.read_table(written(tmp_path / "a.parquet", texts))
    assert found["text"].to_pylist() == texts


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, write_small):
    """A classifier whose labels are formulas, and a table whose columns, ids and texts are."""
    root = tmp_path_factory.mktemp("formulas")
    names = (f"={COMMAND}", "@SUM(1)", f"-2+{ESCAPES}")
    model = write_small(root / "model", "sequence_classification", num_labels=3, id2label=names)
    rows = [{"id": f"={i}", "sentence": f"+the cat;={i}", "=note": "-0.5", "list": ["=1", "\x9b"]} for i in range(3)]
    (root / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return model, str(root / "data.jsonl")


@pytest.mark.parametrize("name", TABLES)
def test_predictions_with_labels_columns_and_ids_of_the_user(classifier, name, tmp_path, caplog):
    model, data = classifier
    out = tmp_path / name
    assert main(["predict", "--model", str(model), "--data", data, "--out", str(out), "--keep-all"]) == 0
    with out.open(newline="", encoding="utf-8") as file:
        quoting = csv.QUOTE_MINIMAL if name != "a.tsv" else csv.QUOTE_NONE
        header, *rows = csv.reader(file, delimiter=TABLES[name], quoting=quoting)
    assert header[:5] == ["id", "sentence", "'=note", "list", "label"] and header[5] == f"'={COMMAND}"
    for row in rows:
        assert row[0][:2] == "'=" and row[1].startswith("'+the cat;'=") and row[2] == "-0.5"
        assert all(0 < float(score) < 1 for score in row[5:])
    assert not [cell for row in (header, *rows) for cell in row if cell != "-0.5" and runs_as_a_formula(cell)]
    assert not FORBIDDEN.search(re.sub("[\t\n]", "", out.read_text(encoding="utf-8")))
    said = [record.getMessage() for record in caplog.records if "apostrophe" in record.getMessage()]
    assert len(said) == 1 and "as a formula in 13 cells" in said[0]


def test_a_table_of_answers_is_read_as_a_table_of_texts(classifier, tmp_path):
    model, data = classifier
    evaluation.predict(model, data, tmp_path / "a.csv", Columns(keep_others="all"))
    found = list(read_rows(str(tmp_path / "a.csv"), Columns("sentence"), InvalidRows("a.csv")))
    assert [row["sentence"] for _, row in found] == [f"'+the cat;'={i}" for i in range(3)]
    evaluation.predict(model, str(tmp_path / "a.csv"), tmp_path / "again.jsonl", Columns("sentence"))


def test_tags_and_words_of_conll(tmp_path, write_small):
    names = ("O", "=tag", "B-\n\nx\tO\x1b[31m")
    model = write_small(tmp_path / "model", "token_classification", num_labels=3, id2label=names)
    words = ["-LRB-", "the", "-", "@cat", "\u202edog", "-5", "=1"]
    (tmp_path / "data.jsonl").write_text(json.dumps({"tokens": words}) + "\n")
    for name, expected in (
        ("a.conll", ["-LRB-", "the", "-", "@cat", "\\u202edog", "-5", "=1"]),
        ("a.txt", ["-LRB-", "the", "-", "@cat", "\\u202edog", "-5", "=1"]),
        ("a.tsv", ["'-LRB-", "the", "-", "'@cat", "\\u202edog", "-5", "'=1"]),
    ):
        evaluation.predict(model, str(tmp_path / "data.jsonl"), tmp_path / name, Columns("tokens"))
        lines = (tmp_path / name).read_text().split("\n")
        assert [line.split("\t")[0] for line in lines[:-2]] == expected and lines[-2:] == ["", ""]
        assert all(len(line.split("\t")) == 2 for line in lines[:-2])
        (sentence,) = read_sentences(str(tmp_path / name), Columns(), tagged=False)
        assert list(sentence.words) == expected


def test_a_report_shows_labels_and_texts_and_runs_none(tmp_path, write_small):
    evil = "<script>alert(1)</script><img src=x onerror=a()>\"' \u202egnp"
    model = write_small(tmp_path / "model", "sequence_classification", num_labels=2, id2label=(evil, "no"))
    rows = [{"sentence": f"the cat {evil}", "label": name} for name in (evil, "no") * 4]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    evaluation.evaluate(model, str(tmp_path / "a.jsonl"), Columns(), report=tmp_path / "a.html")
    page = Page(tmp_path / "a.html")
    assert evil.replace("\u202e", "\ufffd") in page.column("classes", "class")
    assert not [tag for tag, _ in page.tags if tag == "script"] and not FORBIDDEN.search(page.text.replace("\n", ""))
    assert not [attributes for _, attributes in page.tags if any(name.startswith("on") for name in attributes)]
    assert all((attributes["src"] or "").startswith("data:") for tag, attributes in page.tags if tag == "img")
