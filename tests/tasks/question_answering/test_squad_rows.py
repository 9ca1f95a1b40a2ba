"""SQuAD as rows, the way Hugging Face writes it: the same questions as from the official layout."""

import gzip
import json

import pytest

from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.errors import InputError
from bert_jax.tasks.question_answering.data import read_questions

CONTEXTS = {"Ada": ["Ada was born in 1815.", "She wrote\na program."], "Curie": ["Marie was born in 1867."]}
# (title, number of the context, id, question, answers)
ASKED = [
    ("Ada", 0, "56be", "When?", [("1815", 16), ("in 1815", 13)]),
    ("Ada", 1, "56bf", "What?", [("a program", 10)]),
    ("Curie", 0, "57aa", "When?", [("1867", 18)]),
    ("Curie", 0, "57ab", "Where?", []),
]


def official(asked, version="1.1"):
    articles = []
    for title, contexts in CONTEXTS.items():
        paragraphs = []
        for number, context in enumerate(contexts):
            qas = [
                {"id": name, "question": question, "answers": [{"text": t, "answer_start": s} for t, s in answers]}
                | ({"is_impossible": not answers} if version == "v2.0" else {})
                for owner, place, name, question, answers in asked
                if (owner, place) == (title, number)
            ]
            paragraphs.append({"context": context, "qas": qas})
        articles.append({"title": title, "paragraphs": paragraphs})
    return {"version": version, "data": articles}


def rows(asked):
    return [
        {"id": name, "title": title, "context": CONTEXTS[title][place], "question": question,
         "answers": {"text": [t for t, _ in answers], "answer_start": [s for _, s in answers]}}
        for title, place, name, question, answers in asked
    ]  # fmt: skip


def lines(found):
    return "\n".join(map(json.dumps, found)) + "\n"


def objects(text, answer_start):
    return [{"text": t, "answer_start": start} for t, start in zip(text, answer_start, strict=True)]


def columns(found):
    return json.dumps({name: [row[name] for row in found] for name in found[0]})


LAYOUTS = {
    "lines.jsonl": lines,
    "lines.json": lines,  # what Hugging Face's `to_json` writes
    "array.json": json.dumps,
    "array.jsonl": lambda found: json.dumps(found, indent=2),
    "columns.json": columns,
    "data.json": lambda found: json.dumps({"version": "1", "data": found}, indent=1),
    "objects.jsonl": lambda found: lines(row | {"answers": objects(**row["answers"])} for row in found),
    "bom.ndjson": lambda found: "\ufeff\r\n" + lines(found).replace("\n", "\r\n"),
}  # fmt: skip


def read(path, content, **options):
    path.write_bytes(content.encode())
    return list(read_questions(str(path), **options))


@pytest.mark.parametrize("version", ["1.1", "v2.0"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_questions_of_the_official_layout(tmp_path, name, version):
    asked = ASKED if version == "v2.0" else ASKED[:3]
    expected = read(tmp_path / "official.json", json.dumps(official(asked, version)))
    assert [question.id for question in expected] == [row[2] for row in asked]
    found = read(tmp_path / name, LAYOUTS[name](rows(asked)))
    assert found == expected  # articles and `is_impossible` too
    bare = read(tmp_path / name, LAYOUTS[name](rows(asked)), with_answers=False)
    assert bare == list(read_questions(str(tmp_path / "official.json"), with_answers=False))


@pytest.mark.parametrize("asked", [ASKED, ASKED[:3]])
def test_parquet(tmp_path, asked):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows(asked)), tmp_path / "a.parquet")
    found = list(read_questions(str(tmp_path / "a.parquet")))
    assert found == read(tmp_path / "a.jsonl", lines(rows(asked))) and len(found) == len(asked)
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"b\.parquet: expected a Parquet file, found"):
        list(read_questions(str(tmp_path / "b.parquet")))


def test_one_row(tmp_path):
    row = rows(ASKED[:1])
    assert read(tmp_path / "a.json", json.dumps(row[0])) == read(tmp_path / "b.jsonl", lines(row))


def test_a_number_is_an_id(tmp_path):
    numbered = [row | {"id": number} for number, row in enumerate(rows(ASKED[:3]))]
    assert [question.id for question in read(tmp_path / "a.jsonl", lines(numbered))] == ["0", "1", "2"]
    with pytest.raises(InputError, match="line 2: expected text in 'id', found bool"):
        read(tmp_path / "b.jsonl", lines([numbered[0], numbered[1] | {"id": True}]))


def test_without_titles_a_context_is_an_article(tmp_path):
    untitled = [{name: value for name, value in row.items() if name != "title"} for row in rows(ASKED)]
    assert [question.article for question in read(tmp_path / "a.jsonl", lines(untitled))] == [0, 1, 2, 2]


def test_null_says_nothing_of_whether_there_is_an_answer(tmp_path):
    unsaid = [row | {"is_impossible": None} for row in rows(ASKED)]
    assert [question.is_impossible for question in read(tmp_path / "a.jsonl", lines(unsaid))] == [False] * 3 + [True]


def test_broken_rows_are_named_by_line_and_can_be_skipped(tmp_path):
    good = list(map(json.dumps, rows(ASKED[:3])))
    content = "\n".join([good[0], '{"id": "x", ', good[1], "[1]", good[2]])
    with pytest.raises(InputError, match=r"a\.jsonl: line 2: expected a JSON object, .* \(and 1 more"):
        read(tmp_path / "a.jsonl", content)
    bad = InvalidRows("a.jsonl", "skip", "question")
    path = tmp_path / "b.jsonl"
    path.write_text(content)
    assert [question.id for question in bad.fitting(read_questions(str(path), bad=bad))] == ["56be", "56bf", "57aa"]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("a.jsonl", {"answers": {"text": ["1815"], "answer_start": []}}, "found 1 texts and 0 starts"),
        ("a.jsonl", {"answers": {"text": "1815", "answer_start": 16}}, "answers: expected a list in 'text', found str"),
        ("a.jsonl", {"answers": "1815"}, "expected a list in 'answers', found str"),
        ("a.jsonl", {"context": ["x"]}, "expected text in 'context', found list"),
        ("a.json", {"question": None}, "question '56be': expected text in 'question', found NoneType"),
        ("a.jsonl", {"context": "\ud83d"}, "found half a surrogate pair"),
    ],
)
def test_what_does_not_fit(tmp_path, name, change, message):
    with pytest.raises(InputError, match=message) as refusal:
        read(tmp_path / name, lines([rows(ASKED)[0] | change, rows(ASKED)[1]]))
    assert any(name in str(refusal.value) for name in ("question '56be'", "line 1"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"question": ["When?"], "id": []}', "expected a list of 1 values in 'id', as in 'question', found 0"),
        ('{"question": ["When?"], "id": 7}', "expected a list of 1 values in 'id', as in 'question', found int"),
        ('[{"question": "When?"}, 7]', r"row 1: expected a field 'id'"),
        ("[]", "expected a JSON object, found list"),
        ('[{"question": ' + "9" * 5000 + "}]", "found an integer of thousands of digits"),
        ("\n\n", "expected questions, found an empty file"),
    ],
)
def test_what_is_no_table_of_questions(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path / "a.json", content)


def test_a_value_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("bert_jax.data.json_files.MAX_BYTES", 1000)
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b"[" + b" " * 10_000_000))
    with pytest.raises(InputError, match="in one JSON value, found more; JSON lines may have any size"):
        list(read_questions(str(path)))
    monkeypatch.setattr("bert_jax.data.json_files.MAX_BYTES", 1 << 20)
    monkeypatch.setattr("bert_jax.data.json_files.MAX_VALUES", 100)
    with pytest.raises(InputError, match="expected at most 100 values"):
        read(tmp_path / "b.json", "[" + "[]," * 200)
