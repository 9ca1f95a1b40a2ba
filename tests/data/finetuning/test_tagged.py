"""Sentences from CoNLL files, JSON lines and TFDS, and what is wrong with them; and windows over long sequences."""

import gzip
import json

import pytest
import tensorflow_datasets as tfds
from array_record.python.array_record_module import ArrayRecordWriter

from bert_jax.data.finetuning.conll import Sentence
from bert_jax.data.finetuning.tables import Columns
from bert_jax.data.finetuning.tagged import read_sentences
from bert_jax.data.finetuning.windows import overlapping
from bert_jax.errors import InputError

CONLL = "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VB O\n\n\nPeter NNP B-PER\n"
SENTENCES = [Sentence(3, ("EU", "rejects"), ("B-ORG", "O")), Sentence(7, ("Peter",), ("B-PER",))]


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def read(spec, columns=Columns(), **options):  # noqa: B008
    return list(read_sentences(spec, columns, **options))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.conll", CONLL),
        ("a.txt", CONLL + "\n\n"),
        ("a.tsv", CONLL.replace(" ", "\t")),
        ("a.bio", CONLL.replace(" ", "   ").replace("\n", "  \r\n")),
        ("a.conll.gz", gzip.compress(CONLL.encode(), mtime=0)),
    ],
)
def test_conll(tmp_path, name, content):
    assert read(write(tmp_path / name, content)) == SENTENCES


def test_columns_of_conll(tmp_path):
    spec = write(tmp_path / "a.conll", "1\tEU\tNNP\tO\n2\ta b\tVB\tO\n")
    assert read(spec, Columns("1", "", "2")) == [Sentence(1, ("EU", "a b"), ("NNP", "VB"))]
    assert read(spec, Columns("1"), tagged=False) == [Sentence(1, ("EU", "a b"), None)]
    assert read(write(tmp_path / "b.conll", "EU\nrejects\n"), tagged=False)[0].words == ("EU", "rejects")


def test_spaces_other_than_the_usual_are_of_a_word(tmp_path):
    spec = write(tmp_path / "a.conll", "a\u00a0b O\n\u3000 O\n\u200b O\n")
    assert read(spec)[0].words == ("a\u00a0b", "\u3000", "\u200b")


def test_json_lines(tmp_path):
    rows = [{"tokens": ["EU", "re\njects"], "tags": ["B-ORG", "O"]}, {"tokens": ["é"], "tags": ["O"], "more": 1}]
    spec = write(tmp_path / "a.jsonl", "\n\n".join(map(json.dumps, rows)))
    assert read(spec) == [Sentence(1, ("EU", "re\njects"), ("B-ORG", "O")), Sentence(3, ("é",), ("O",))]
    named = write(tmp_path / "b.jsonl", json.dumps({"w": ["EU"], "t": ["O"]}))
    assert read(named, Columns("w", "", "t")) == [Sentence(1, ("EU",), ("O",))]
    assert read(write(tmp_path / "c.jsonl", '{"tokens": ["EU"]}'), tagged=False) == [Sentence(1, ("EU",), None)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.conll", "EU NNP O\nrejects O\n", r"a\.conll: line 2: expected 3 columns as in line 1, found 2"),
        ("a.conll", "EU O\n\nrejects VB O\n", r"a\.conll: line 3: expected 2 columns as in line 1, found 3"),
        ("a.conll", "\nEU\n", r"a\.conll: line 2: expected a tag after the word, found 1 columns"),
        ("a.conll", "EU\tO\n\tO\n", r"a\.conll: line 2: expected a word, found an empty column"),
        ("a.conll", "EU\tO\nrejects\t\n", r"a\.conll: line 2: expected a tag, found an empty column"),
        ("a.conll", "-DOCSTART- O\n\n\n", r"a\.conll: expected at least one sentence, found none"),
        ("a.conll", "", r"a\.conll: expected rows, found an empty file"),
        ("a.conll", b"EU O\n\xff O\n", r"a\.conll: line 2: expected UTF-8 text, found byte 0xff"),
        ("a.xlsx", "", r"a\.xlsx: expected a file named \.conll, .*, or tfds:NAME:SPLIT"),
        ("a.jsonl", '{"tokens": ["a", "b"], "tags": ["O"]}', "line 1: expected a tag for each word, found 2 words and"),
        ("a.jsonl", '{"tokens": ["a", ""], "tags": ["O", "O"]}', "line 1: expected strings in 'tokens', found an"),
        ("a.jsonl", '{"tokens": ["a"], "tags": [3]}', "line 1: expected strings in 'tags', or the names"),
        ("a.jsonl", '{"tokens": [], "tags": []}', "line 1: expected at least one string in 'tokens', found none"),
        ("a.jsonl", '{"tokens": "a b", "tags": ["O"]}', "line 1: expected a list of strings in 'tokens', found str"),
        ("a.jsonl", '\n{"tokens": ["a"], "tag": ["O"]}', "line 2: expected a field 'tags'; did you mean 'tag'"),
        ("a.jsonl", '{"tokens"', "line 1: expected a JSON object, found"),
        ("a.jsonl", "[1]", "row 1: expected a JSON object, found int"),
        ("a.jsonl", "[1]\n[2]", "line 1: expected a JSON object, found list"),
    ],
)  # fmt: skip
def test_each_flaw_is_named_with_its_line(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message):
        read(write(tmp_path / name, content))


def test_columns_that_do_not_fit(tmp_path):
    spec = write(tmp_path / "a.conll", "EU O\n")
    with pytest.raises(InputError, match="line 1: expected a column 2, found 2 columns"):
        read(spec, Columns("", "", "2"))
    with pytest.raises(InputError, match="numbers from 0, found 'tokens'"):
        read(spec, Columns("tokens"))
    with pytest.raises(InputError, match="expected single sentences, found a column 'b' for pairs"):
        read(spec, Columns("", "b"))
    with pytest.raises(InputError, match="no such file"):
        read(str(tmp_path / "b.conll"))


@pytest.fixture
def tfds_entities(tmp_path, monkeypatch):
    """A TFDS data set on disk, written by hand: its own builders need TensorFlow to write one."""
    text, tag = tfds.features.Text(), tfds.features.ClassLabel(names=["O", "B-PER"])
    features = tfds.features.FeaturesDict(
        {"tokens": tfds.features.Sequence(text), "ner": tfds.features.Sequence(tag), "id": text}
    )
    directory = tmp_path / "toy_entities" / "1.0.0"
    directory.mkdir(parents=True)
    writer = ArrayRecordWriter(str(directory / "toy_entities-train.array_record-00000-of-00001"), "group_size:1")
    for words, tags in ((["Peter", "é"], [1, 0]), (["x"], [0])):
        row = {"tokens": words, "ner": tags, "id": "i"}
        writer.write(features.serialize_example(features.encode_example(row)))
    writer.close()
    features.save_config(directory)
    template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    split = {"name": "train", "shardLengths": ["2"], "numBytes": "100", "filepathTemplate": template}
    info = {"name": "toy_entities", "version": "1.0.0", "fileFormat": "array_record", "splits": [split]}
    (directory / "dataset_info.json").write_text(json.dumps(info))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))


def test_tfds(tfds_entities):
    found = read("tfds:toy_entities:train", Columns("", "", "ner"))
    assert found == [Sentence(0, ("Peter", "é"), ("B-PER", "O")), Sentence(1, ("x",), ("O",))]
    assert read("tfds:toy_entities", tagged=False)[1] == Sentence(1, ("x",), None)
    with pytest.raises(InputError, match="expected a feature 'tags'"):
        read("tfds:toy_entities")
    with pytest.raises(InputError, match="expected a sequence in 'id', found Text"):
        read("tfds:toy_entities", Columns("", "", "id"))


def context(window, token, length):
    """Tokens that a window shows on the poorer side of one; where the sequence itself ends, none is missing."""
    before = token - window.start if window.start else length
    return min(before, window.stop - 1 - token if window.stop < length else length)


def test_every_token_is_owned_by_the_window_that_shows_most_around_it():
    assert overlapping(0, 5) == []
    for length in range(1, 60):
        for room in range(1, 20):
            windows = overlapping(length, room)
            assert [i for w in windows for i in range(w.own_start, w.own_stop)] == list(range(length))
            for w in windows:
                assert w.start <= w.own_start < w.own_stop <= w.stop <= length
                assert w.stop - w.start == min(length, room)
                for token in range(w.own_start, w.own_stop):
                    shown = [context(v, token, length) for v in windows if v.start <= token < v.stop]
                    assert context(w, token, length) >= max(shown) - 1
