"""Predictions as JSON lines, TSV, CSV and Parquet, with the columns of the data that are carried through."""

import csv
import gzip
import json
import os

import jax
import numpy as np
import pytest

from bert_jax import evaluation, jobs, recipes, storage
from bert_jax.cli import main
from bert_jax.conversion.file_names import RECORD
from bert_jax.data.finetuning.columns import Columns
from bert_jax.errors import InputError
from bert_jax.jobs import training_metadata

ROWS = [
    {"id": 7, "review": "the cat", "stars": "neg", "note": "a\tb"},
    {"id": 8, "review": "a dog", "stars": "pos", "note": ""},
]


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    """Data of one table in four formats, and an untrained classifier that has seen it."""
    root = tmp_path_factory.mktemp("answers")
    write_small(root / "encoder")
    (root / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (root / "a.json").write_text(json.dumps(ROWS))
    with (root / "a.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(ROWS[0]), delimiter=";")
        table.writeheader()
        table.writerows(ROWS)
    c = recipes.classification()
    c.init_from, c.data.train, c.num_steps = str(root / "encoder"), str(root / "a.csv"), 1
    c.data.text_column, c.data.label_column, c.data.max_seq_length = "review", "stars", 16
    job = jobs.build(recipes.resolve(c))
    assert job.classes == {"neg": 1, "pos": 1}
    job.save(root / "model", jax.tree.map(np.asarray, jax.jit(job.init_params)(jax.random.key(0))))
    return root


def predict(place, out, *options, data="a.csv"):
    return main(["predict", "--model", str(place / "model"), "--data", str(place / data), "--out", str(out), *options])


@pytest.mark.parametrize("data", ["a.csv", "a.jsonl", "a.json"])
def test_the_same_answers_in_every_format(place, tmp_path, data):
    expected = None
    for name in ("x.jsonl", "x.tsv", "x.csv", "x.parquet"):
        if name == "x.parquet":
            parquet = pytest.importorskip("pyarrow.parquet", reason="of the [parquet] extra")
        assert predict(place, tmp_path / name, data=data) == 0
        if name == "x.jsonl":
            objects = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
            assert [row["text"] for row in objects] == ["the cat", "a dog"]
            found = [[row["id"], row["label"], row["scores"]["neg"], row["scores"]["pos"]] for row in objects]
        elif name == "x.parquet":
            found = [list(row.values()) for row in parquet.read_table(tmp_path / name).to_pylist()]
        else:
            header, *rows = csv.reader((tmp_path / name).open(), delimiter="\t" if name == "x.tsv" else ",")
            assert header == ["id", "label", "neg", "pos"]
            found = [[row[0], row[1], float(row[2]), float(row[3])] for row in rows]
        found = [[str(row[0]), *row[1:]] for row in found]
        expected = expected or found
        assert found == expected and [row[0] for row in found] == ["7", "8"]


def test_columns_that_are_carried_through(place, tmp_path):
    assert predict(place, tmp_path / "x.csv", "--keep-all") == 0
    header, first, _ = csv.reader((tmp_path / "x.csv").open())
    assert header == ["id", "review", "stars", "note", "label", "neg", "pos"] and first[:4] == [
        "7",
        "the cat",
        "neg",
        "a\tb",
    ]
    assert predict(place, tmp_path / "x.tsv", "--keep", "note,stars") == 0
    header, first, _ = (line.split("\t") for line in (tmp_path / "x.tsv").read_text().splitlines())
    assert header == ["note", "stars", "label", "neg", "pos"] and first[:2] == ["a b", "neg"]
    (tmp_path / "b.jsonl").write_text('{"id": 1, "review": "the cat", "label": "gold", "text": "the cat"}\n')
    assert predict(place, tmp_path / "y.jsonl", "--keep-all", data=str(tmp_path / "b.jsonl")) == 0
    row = json.loads((tmp_path / "y.jsonl").read_text())
    assert (row["id"], row["review"], row["input_label"], row["text"]) == (1, "the cat", "gold", "the cat")
    assert row["label"] in ("neg", "pos")


def test_a_column_to_keep_must_be_there(place, tmp_path, capsys):
    assert predict(place, tmp_path / "x.csv", "--keep", "note,dat") == 2
    assert "expected a column 'dat'" in capsys.readouterr().err
    assert not (tmp_path / "x.csv").exists()


def test_an_invalid_row_keeps_its_id(place, tmp_path):
    (tmp_path / "b.csv").write_text("id,review\n1,the cat\n2,\n3,a dog\n")
    assert predict(place, tmp_path / "x.csv", "--skip", data=str(tmp_path / "b.csv")) == 0
    rows = list(csv.DictReader((tmp_path / "x.csv").open()))
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert [row["label"] != "" for row in rows] == [True, False, True]


def test_what_a_model_remembers_of_its_table(place, tmp_path, capsys):
    found = training_metadata.read_training_metadata(place / "model")
    assert (found.columns.text, found.columns.label, found.classes) == ("review", "stars", {"neg": 1, "pos": 1})
    assert main(["evaluate", "--model", str(place / "model"), "--data", str(place / "a.jsonl"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 2
    (tmp_path / "b.csv").write_text("comment,stars\nthe cat,NEG\na dog,1\n")
    command = ["evaluate", "--model", str(place / "model"), "--data", str(tmp_path / "b.csv"), "--json"]
    assert main(command) == 2
    assert capsys.readouterr().err.strip().endswith("found 'comment', 'stars'; use --text-column comment")
    assert main([*command, "--text-column", "comment"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["examples"] == 2


def test_a_memory_that_others_wrote_is_checked(tmp_path):
    assert training_metadata.read_training_metadata(tmp_path) == training_metadata.TrainingMetadata()
    for text, found in (
        ('{"columns": 3}', "columns and classes to be objects"),
        ('{"columns": {"text": 3}}', "names of columns"),
        ("[]", "expected a JSON object, found list"),
    ):
        (tmp_path / RECORD).write_text(text)
        with pytest.raises(InputError, match=found):
            training_metadata.read_training_metadata(tmp_path)


def test_columns_without_a_header_are_remembered(tmp_path):
    columns = Columns("2", "", "0", has_header=False, separator=";", delimiter="^")
    training_metadata.write_training_metadata(tmp_path, training_metadata.TrainingMetadata(columns, {"a": 1}, "drop"))
    assert training_metadata.read_training_metadata(tmp_path) == training_metadata.TrainingMetadata(
        columns, {"a": 1}, "drop"
    )
    assert Columns().filled(columns) == Columns("2", "", "0", has_header=False, delimiter="^")
    assert Columns("text").filled(columns).has_header  # of a table whose columns the user names


def spellings(path):
    """Other names of a file."""
    link = path.parent / f"link-{path.name}"
    link.symlink_to(path)
    return [str(path), str(link), os.path.relpath(path), str(path.parent / "." / ".." / path.parent.name / path.name)]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_the_data_is_never_replaced_by_the_answers(place, tmp_path, capsys, name):
    data = (place / name).read_bytes()
    for folder, content in (("plain", data), ("packed", gzip.compress(data))):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / name
        path.write_bytes(content)
        for out in spellings(path):
            assert predict(place, out, data=str(path)) == 2
            assert "expected an output other than" in capsys.readouterr().err
            with pytest.raises(InputError, match="expected an output other than"):
                evaluation.predict("no such model", str(path), out, Columns("review"))
        assert path.read_bytes() == content


def test_no_verb_writes_over_what_it_reads(tmp_path, capsys):
    path = tmp_path / "a.html"
    path.write_text("text\n")
    (tmp_path / "a.npy").write_text("text\n")
    commands = [
        ["evaluate", "--model", "m", "--data", str(path), "--report", str(path)],
        ["embed", "m", "--file", str(tmp_path / "a.npy"), "--out", str(tmp_path / "a.npy")],
        ["prepare", f"sentences:{path}", "--tokenizer", "t", "--out", str(path)],
        ["train-tokenizer", str(path), "--out", str(path)],
        ["convert", str(tmp_path), str(tmp_path / ".")],
    ]
    for command in commands:
        assert main(command) == 2, command
        assert "expected an output other than" in capsys.readouterr().err
    assert path.read_text() == "text\n"
    storage.check_output(tmp_path / "new", path, "text of no file", None, 3)


class Series:
    def __init__(self, values):
        self.values = values

    def tolist(self):
        return list(self.values)


class Frame:
    """What is asked of a pandas or Polars DataFrame."""

    def __init__(self, rows):
        self.columns = list(rows[0])
        self._rows = rows

    def __getitem__(self, name):
        return Series([row[name] for row in self._rows])


@pytest.mark.parametrize("table", [ROWS, Frame(ROWS)], ids=["dicts", "frame"])
def test_tables_in_memory(place, tmp_path, table):
    scores = evaluation.evaluate(place / "model", table, Columns())
    assert scores == evaluation.evaluate(place / "model", str(place / "a.csv"), Columns())
    evaluation.predict(place / "model", table, tmp_path / "x.csv", Columns(keep=("id",)))
    assert [row["id"] for row in csv.DictReader((tmp_path / "x.csv").open())] == ["7", "8"]
    odd = [*ROWS, ROWS[0] | {"review": float("nan")}]
    with pytest.raises(InputError, match=r"row 2: expected text in 'review', found"):
        evaluation.evaluate(place / "model", odd if isinstance(table, list) else Frame(odd), Columns())
    with pytest.raises(InputError, match="expected the name of a file, a DataFrame or a list of dicts, found int"):
        evaluation.evaluate(place / "model", 3, Columns())


def test_predictions_without_a_file_are_the_lines_of_one(place, tmp_path):
    columns = Columns(keep=("id",))
    evaluation.predict(place / "model", ROWS, tmp_path / "x.jsonl", columns)
    expected = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert evaluation.predict(place / "model", ROWS, columns=columns) == expected
    assert [row["id"] for row in expected] == [row["id"] for row in ROWS]
    with pytest.raises(InputError, match=r"invalid_rows='skip'"):
        evaluation.predict(place / "model", [*ROWS, {"review": 5}])


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_predictions_of_a_data_frame_are_one(place, kind):
    library = pytest.importorskip(kind)
    columns = Columns(keep=("id",))
    table = library.DataFrame(ROWS)
    if kind == "pandas":
        table.index = [30, 10]
    found = evaluation.predict(place / "model", table, columns=columns)
    assert type(found) is library.DataFrame
    rows = evaluation.predict(place / "model", ROWS, columns=columns)
    assert list(found.columns) == [*(name for name in rows[0] if name != "scores"), *rows[0]["scores"]]
    for name in ("id", "label"):
        assert list(found[name]) == [row[name] for row in rows]
    for name in rows[0]["scores"]:
        assert list(found[name]) == [row["scores"][name] for row in rows]
    assert kind == "polars" or list(found.index) == [30, 10]


def test_parquet(place, tmp_path, capsys):
    pyarrow = pytest.importorskip("pyarrow", reason="of the [parquet] extra")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"review": ["the cat", "a dog"], "stars": [0, 1], "id": [7, 8]}
    features = {"info": {"features": {"stars": {"names": ["neg", "pos"], "_type": "ClassLabel"}}}}
    table = pyarrow.table(columns).replace_schema_metadata({"huggingface": json.dumps(features)})
    parquet.write_table(table, tmp_path / "a.parquet")
    scores = evaluation.evaluate(place / "model", str(tmp_path / "a.parquet"), Columns())
    assert scores == evaluation.evaluate(place / "model", str(place / "a.csv"), Columns())
    with pytest.raises(InputError, match=r"expected a column 'text'.*--text-column review"):
        evaluation.evaluate(place / "model", str(tmp_path / "a.parquet"), Columns("text"))
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and so on")
    assert predict(place, tmp_path / "x.csv", data=str(tmp_path / "b.parquet")) == 2
    assert "b.parquet: expected a Parquet file" in capsys.readouterr().err


def test_parquet_needs_pyarrow(place, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert predict(place, tmp_path / "x.parquet") == 2
    assert "expected pyarrow, which reads and writes Parquet: pip install pyarrow" in capsys.readouterr().err
