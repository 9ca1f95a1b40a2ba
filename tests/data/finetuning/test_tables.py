import dataclasses
import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds
from array_record.python.array_record_module import ArrayRecordWriter

from bert_jax import evaluation, recipes, registry, training
from bert_jax.cli import main
from bert_jax.data import register_reader
from bert_jax.data.finetuning.tables import Columns, Example, read_examples, read_rows
from bert_jax.data.finetuning.tagged import read_sentences
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.data.json_files import json_objects
from bert_jax.data.table_formats import READERS, format_of, has_registered_format
from bert_jax.errors import InputError

TEXT = Columns(text="sentence", label="label")


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)


def read(spec, columns=TEXT):
    return list(read_examples(spec, columns))


def test_tsv_has_no_quoting(tmp_path):
    spec = write(tmp_path / "a.tsv", 'sentence\tlabel\n"so called\t1\r\n it \'s "good" \t0\n')
    assert read(spec) == [Example(2, '"so called', None, "1"), Example(3, ' it \'s "good" ', None, "0")]


def test_tsv_without_header_by_column_number(tmp_path):
    spec = write(tmp_path / "cola.tsv", "gj04\t1\t\tThe boat sank.\ngj04\t0\t*\tThe sank boat.\n")
    rows = read(spec, Columns(text="3", label="1", has_header=False))
    assert rows == [Example(1, "The boat sank.", None, "1"), Example(2, "The sank boat.", None, "0")]


def test_only_newlines_end_a_line_and_a_byte_order_mark_is_dropped(tmp_path):
    spec = write(tmp_path / "a.tsv", "\ufeffsentence\tlabel\none\u2028two\x0b\x85\t1\n\n")
    assert read(spec) == [Example(2, "one\u2028two\x0b\x85", None, "1")]


def test_csv_has_quotes_and_newlines_in_them(tmp_path):
    spec = write(tmp_path / "a.csv", 'label,sentence,other\n1,"a, ""b""\nc",x\n0,d,y\n')
    assert read(spec) == [Example(3, 'a, "b"\nc', None, "1"), Example(4, "d", None, "0")]


def test_json_lines_with_pairs_and_plain_values_as_labels(tmp_path):
    rows = [{"a": "x", "b": "y", "l": 1}, {"a": "é\n", "b": "", "l": "yes"}, {"a": "", "b": "", "l": True}]
    spec = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)) + "\n\n")
    assert [row[1:] for row in read(spec, Columns("a", "b", "l"))] == [
        ("x", "y", "1"),
        ("é\n", "", "yes"),
        ("", "", "true"),
    ]


def test_gzip(tmp_path):
    spec = write(tmp_path / "a.tsv.gz", gzip.compress(b"sentence\tlabel\nx\t1\n"))
    assert read(spec) == [Example(2, "x", None, "1")]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.tsv", "", "a.tsv: expected rows, found an empty file"),
        ("a.tsv", "sentence\tlabel\n", "a.tsv: expected at least one row, found none"),
        ("a.tsv", "sentence\tlable\nx\t1\n", "a.tsv: line 1: expected a column 'label'; did you mean 'lable'"),
        ("a.tsv", "sentence\tlabel\nx\t1\nno tab here\n", "a.tsv: line 3: expected 2 columns .*, found 1"),
        ("a.tsv", "sentence\tlabel\nx\t1\n\ny\t1\n", "a.tsv: line 3: expected 2 columns .*, found 1"),
        ("a.tsv", "sentence\tlabel\nx\ty\t1\n", "a.tsv: line 2: expected 2 columns .*, found 3"),
        ("a.tsv", b"sentence\tlabel\nok\t1\nna\xefve\t1\n", "a.tsv: line 3: expected UTF-8 text, found byte 0xef"),
        ("a.tsv", "sentence\tlabel\nnaïve".encode()[:-3], "a.tsv: line 2: expected UTF-8 text, found byte 0xc3"),
        ("a.csv", 'sentence,label\n"x,1\n', "a.csv: line 2: expected CSV, found: unexpected end of data"),
        ("a.jsonl", '{"sentence": "x", "label": 1}\n{"sentence": "y", "la', "a.jsonl: line 2: expected a JSON object"),
        ("a.jsonl", "[1]\n", "a.jsonl: row 1: expected a JSON object, found int"),
        ("a.jsonl", '{"sentence": "x"}\n', "a.jsonl: line 1: expected a field 'label'"),
        ("a.jsonl", '{"sentence": 3, "label": 1}\n', "a.jsonl: line 1: expected text in 'sentence', found int"),
        ("a.jsonl", '{"sentence": "", "label": null}\n', "a.jsonl: line 1: expected text in 'label', found NoneType"),
        (
            "a.tsv.gz",
            gzip.compress(b"sentence\tlabel\n" + b"x\t1\n" * 9999, mtime=0)[:-20],
            "expected a whole .gz file",
        ),
        ("a.tsv.gz", b"sentence\tlabel\nx\t1\n", "expected a whole .gz file"),
        ("a.xlsx", "x", "a.xlsx: expected a file named .tsv, .csv"),
    ],
)
def test_each_flaw_is_named_with_its_line(tmp_path, name, data, message):
    with pytest.raises(InputError, match=message):
        read(write(tmp_path / name, data))


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(InputError, match=r"b\.tsv: no such file"):
        read(str(tmp_path / "b.tsv"))
    (tmp_path / "c.tsv").mkdir()
    with pytest.raises(InputError, match=r"c\.tsv: expected a file, found a directory"):
        read(str(tmp_path / "c.tsv"))


def test_columns_without_header_are_numbers(tmp_path):
    spec = write(tmp_path / "a.tsv", "x\t1\n")
    with pytest.raises(InputError, match="numbers from 0, found 'sentence'"):
        read(spec, Columns("sentence", has_header=False))
    with pytest.raises(InputError, match="line 1: expected a column 2, found 2 columns"):
        read(spec, Columns("2", has_header=False))


@pytest.fixture
def tfds_reviews(tmp_path, monkeypatch):
    """A TFDS data set on disk, written by hand: its own builders need TensorFlow to write one."""
    text, label = tfds.features.Text(), tfds.features.ClassLabel(names=["bad", "good"])
    several = tfds.features.Sequence(text)
    features = tfds.features.FeaturesDict({"sentence": text, "label": label, "score": np.float32, "choices": several})
    directory = tmp_path / "toy_reviews" / "1.0.0"
    directory.mkdir(parents=True)
    writer = ArrayRecordWriter(str(directory / "toy_reviews-train.array_record-00000-of-00001"), "group_size:1")
    for i in range(4):
        row = {"sentence": f"text {i}", "label": i % 2, "score": i / 2, "choices": ["yes", f"n{i}"]}
        writer.write(features.serialize_example(features.encode_example(row)))
    writer.close()
    features.save_config(directory)
    template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    split = {"name": "train", "shardLengths": ["4"], "numBytes": "100", "filepathTemplate": template}
    info = {"name": "toy_reviews", "version": "1.0.0", "fileFormat": "array_record", "splits": [split]}
    (directory / "dataset_info.json").write_text(json.dumps(info))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))


def test_tfds_names_classes(tfds_reviews):
    assert read("tfds:toy_reviews:train")[1] == Example(1, "text 1", None, "good")
    assert read("tfds:toy_reviews", Columns("sentence", "", "score"))[3].label == "1.5"


def test_tfds_lists_of_texts(tfds_reviews):
    (_, first), *_ = read_rows("tfds:toy_reviews", Columns("sentence", label="label", texts="choices"))
    assert first == {"sentence": "text 0", "label": "bad", "choices": ["yes", "n0"]}


def test_more_texts_and_lists_of_them(tmp_path):
    spec = write(tmp_path / "a.csv", "a,b,c,d\n1,2,3,4\n")
    assert list(read_rows(spec, Columns("a", "c", more=("d", "b")))) == [(2, {"a": "1", "c": "3", "d": "4", "b": "2"})]
    spec = write(tmp_path / "a.jsonl", '{"a": "x", "l": 1, "t": ["y", "z"]}\n')
    assert list(read_rows(spec, Columns("a", label="l", texts="t"))) == [(1, {"a": "x", "l": "1", "t": ["y", "z"]})]


def test_tfds_flaws(tfds_reviews):
    with pytest.raises(InputError, match="expected a feature 'lable'; did you mean 'label'"):
        read("tfds:toy_reviews", Columns("sentence", "", "lable"))
    with pytest.raises(InputError, match="tfds:toy_reviews:test: expected a TFDS data set with a split"):
        read("tfds:toy_reviews:test")
    with pytest.raises(InputError, match="tfds:no_such_set: expected a TFDS data set"):
        read("tfds:no_such_set")


def test_tfds_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(InputError, match=r"expected the package tensorflow_datasets: pip install .*\[tfds\]"):
        read("tfds:toy_reviews")


def test_an_array_of_objects(tmp_path):
    rows = [{"sentence": "a", "label": 1}, {"sentence": "b", "label": 0}]
    spec = write(tmp_path / "a.json", json.dumps(rows, indent=2))
    found = list(read_examples(spec, Columns("sentence", "", "label")))
    assert found == [Example(1, "a", None, "1"), Example(2, "b", None, "0")]
    assert found == list(read_examples(write(tmp_path / "b.jsonl", json.dumps(rows)), Columns("sentence", "", "label")))
    with pytest.raises(InputError, match=r"c\.json: row 2: expected a field 'label'"):
        list(read_examples(write(tmp_path / "c.json", '[{"label": "x"}, {}]'), Columns("label")))


def test_columns_of_ids_are_kept():
    header = ["review_id", "text", "ID", "reviewId", "user id", "valid", "rapid", "stars", "class_id"]
    columns = Columns("text", "", "class_id", keep_others="ids")
    assert columns.kept(header) == ("review_id", "ID", "reviewId", "user id")
    assert dataclasses.replace(columns, keep=("stars",)).kept(header)[-1] == "stars"
    assert dataclasses.replace(columns, keep_others="none").kept(header) == ()


@pytest.fixture
def records():
    """A format of records, which are lines `name=value` with a blank line behind each; its reader, registered."""

    def read(path):
        with open(path) as file:
            for record in file.read().strip().split("\n\n"):
                yield dict(line.split("=", 1) for line in record.split("\n"))

    before = dict(READERS._registered)
    register_reader(".rec", read)
    yield read
    READERS._registered.clear()
    READERS._registered.update(before)


def test_a_registered_format_is_read_like_ours(tmp_path, records):
    spec = write(tmp_path / "a.REC", "sentence=a cat\nlabel=1\n\nsentence=a dog\nlabel=0\n\nlabel=1\n")
    bad = InvalidRows(spec, "skip")
    assert list(bad.fitting(read_examples(spec, TEXT, bad))) == [
        Example(1, "a cat", None, "1"), Example(2, "a dog", None, "0")
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"a.REC: row 3: expected a column 'sentence'|a.REC: row 3: expected a field"):
        read(spec)
    bad = InvalidRows(spec)
    assert [(number, row) for number, _, row in bad.fitting(json_objects(spec, bad))][1] == (
        2, {"sentence": "a dog", "label": "0"}
    )  # fmt: skip
    with pytest.raises(InputError, match=r"expected a file named .tsv, .csv, .jsonl, .json, .ndjson, .parquet, .rec "):
        read(write(tmp_path / "a.recx", "x"))


def test_errors_of_a_registered_reader_are_one_line(tmp_path, records):
    spec = write(tmp_path / "a.rec", "sentence\n")
    with pytest.raises(InputError, match=r"a.rec: the reader of .rec: ValueError: "):
        read(spec)
    register_reader(".rec", lambda path: ["x"])
    with pytest.raises(InputError, match=r"a.rec: row 1: expected a dict from the reader of .rec, found str"):
        read(spec)
    for suffix in ("rec", ".REC", 3):
        with pytest.raises(InputError, match=r"register_reader: expected a suffix such as '.xyz' in lower case"):
            register_reader(suffix, records)
    with pytest.raises(InputError, match=r"expected a new name, found '.csv', which bert_jax has"):
        register_reader(".csv", records)


@pytest.mark.parametrize("suffix", [".conll.json", ".x.csv"])
def test_a_registered_suffix_that_ends_in_ours_comes_first(suffix, tmp_path, records):
    register_reader(suffix, lambda path: [{"sentence": "a cat", "label": "1"}])
    assert read(write(tmp_path / f"a{suffix}", "")) == [Example(1, "a cat", None, "1")]


def test_a_suffix_of_ours_imports_no_plugin(monkeypatch):
    monkeypatch.setattr(registry, "_imported", set())
    monkeypatch.setattr(registry.metadata, "entry_points", None)  # cannot be called
    assert [format_of(name) for name in ("a.tsv", "a.CSV.gz", "a.parquet")] == [".tsv", ".csv", ".parquet"]
    assert not has_registered_format("a.tsv")


def test_tagged_sentences_of_a_registered_format(tmp_path, records):
    register_reader(".rec", lambda path: iter([{"tokens": ["a", "cat"], "tags": ["O", "B-A"]}]))
    (sentence,) = read_sentences(write(tmp_path / "a.rec", ""), Columns(""))
    assert (list(sentence.words), list(sentence.tags)) == (["a", "cat"], ["O", "B-A"])


def test_a_registered_format_trains_evaluates_predicts_and_feeds_verbs(tmp_path, tiny_tokenizer, records, capsys):
    tiny_tokenizer.save(tmp_path)
    spec = write(
        tmp_path / "a.rec", "\n\n".join(f"sentence={'cat' if i % 2 else 'dog'}\nlabel={i % 2}" for i in range(32))
    )
    c = recipes.classification()
    c.update_from_flattened_dict(
        {"tokenizer": str(tmp_path), "data.train": spec, "data.dev": spec, "data.length_buckets": (12,),
         "data.max_seq_length": 12, "global_batch_size": 8, "num_steps": 2, "model.size": "tiny",
         "model.hidden_size": 16, "model.intermediate_size": 32, "model.num_hidden_layers": 1,
         "model.max_position_embeddings": 16}
    )  # fmt: skip
    results = training.train(c, tmp_path / "run", progress=False)
    model = tmp_path / "run" / "model"
    assert evaluation.evaluate(model, spec)["accuracy"] == results["eval/accuracy"]
    assert main(["predict", "--model", str(model), "--data", spec, "--out", str(tmp_path / "out.jsonl")]) == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 32
    capsys.readouterr()
    assert main(["classify", str(model), "--file", spec, "--field", "sentence"]) == 0
    assert capsys.readouterr().out.count("label") == 32


def test_readers_of_a_plugin_are_imported_when_a_registry_is_searched(tmp_path):
    folder = tmp_path / "plugin-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[bert_jax.plugins]\nplugin = a_plugin\n")
    (tmp_path / "a_plugin.py").write_text(
        "from bert_jax.data import register_reader\nregister_reader('.zzz', lambda path: [{'text': path}])\n"
    )
    script = (
        "import bert_jax.data.table_formats as t, sys\n"
        "assert 'a_plugin' not in sys.modules\n"
        "print(t.format_of('a.zzz'), 'a_plugin' in sys.modules)"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.stdout.split() == [".zzz", "True"]
