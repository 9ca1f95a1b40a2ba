"""Tags that are numbers of classes, as Hugging Face's `conll2003` has them."""

import json
import logging

import pytest

from bert_jax.data.finetuning.conll import Sentence
from bert_jax.data.finetuning.tables import Columns
from bert_jax.data.finetuning.tagged import read_sentences
from bert_jax.errors import InputError
from bert_jax.tasks.token_classification.data import read_tagged

# The features of Hugging Face's conll2003, and its first row.
NAMES = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC")
WORDS = ["EU", "rejects", "German", "call", "to", "boycott", "British", "lamb", "."]
POS_TAGS, NER_TAGS = [22, 42, 16, 21, 35, 37, 16, 21, 7], [3, 0, 7, 0, 0, 0, 7, 0, 0]
ROW = {"id": "0", "tokens": WORDS, "pos_tags": POS_TAGS, "ner_tags": NER_TAGS}
TAGS = ("B-ORG", "O", "B-MISC", "O", "O", "O", "B-MISC", "O", "O")


def write(path, *rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def test_numbers_become_names(tmp_path, caplog):
    spec = write(tmp_path / "a.jsonl", ROW, ROW | {"ner_tags": [1] + [2] * 8})
    with caplog.at_level(logging.WARNING):
        found = list(read_sentences(spec, Columns(), names=NAMES))
    assert found == [Sentence(1, tuple(WORDS), TAGS), Sentence(2, tuple(WORDS), ("B-PER",) + ("I-PER",) * 8)]
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"{spec}: tags are numbers, read as classes: 0 = O, 1 = B-PER, 2 = I-PER, 3 = B-ORG, ..."]


def test_parquet(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist([ROW, ROW]), tmp_path / "a.parquet")
    found = list(read_sentences(str(tmp_path / "a.parquet"), Columns(), names=NAMES))
    assert found == [Sentence(number, tuple(WORDS), TAGS) for number in (1, 2)]


@pytest.mark.parametrize("wrapped", [lambda label: [label], lambda label: {"feature": label, "_type": "List"}])
def test_names_that_a_parquet_file_has_itself(tmp_path, wrapped):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    features = {"ner_tags": wrapped({"names": list(NAMES), "_type": "ClassLabel"}), "tokens": {"dtype": "string"}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    table = pyarrow.Table.from_pylist([ROW]).replace_schema_metadata(metadata)
    parquet.write_table(table, tmp_path / "a.parquet")
    assert list(read_sentences(str(tmp_path / "a.parquet"), Columns())) == [Sentence(1, tuple(WORDS), TAGS)]


def test_classes_are_in_the_order_of_the_names(tmp_path):
    spec = write(tmp_path / "a.json", ROW, ROW)
    sentences, names = read_tagged(spec, Columns(), None, tag_names=NAMES)
    assert names == NAMES  # also those that no word has
    assert sentences[1].tags == TAGS
    conll = tmp_path / "a.conll"
    conll.write_text("EU 3\nrejects O\n\ncall 0\n")
    assert [s.tags for s in read_sentences(str(conll), Columns(), names=NAMES)] == [("B-ORG", "O"), ("O",)]


def test_a_column_may_be_named_and_names_may_be_digits(tmp_path):
    spec = write(tmp_path / "a.jsonl", ROW)
    tags = [
        sentence.tags
        for sentence in read_sentences(spec, Columns("", "", "pos_tags"), names=tuple(map(str, range(47))))
    ]
    assert tags == [tuple(map(str, ROW["pos_tags"]))]


@pytest.mark.parametrize(
    ("names", "tags", "message"),
    [
        ((), [3, 0], r"line 1: expected strings in 'ner_tags', or the names .*tag_names.*, found the number 3"),
        (NAMES, [9, 0], r"line 1: expected a tag from 0 to 8 \(there are 9 names\), found 9"),
        (NAMES, [-1, 0], r"line 1: .*expected .*, found '?-1"),
        (NAMES, [True, 0], r"line 1: expected strings in 'ner_tags', found bool at index 0"),
        (NAMES, [10**50, 0], r"line 1: expected a tag from 0 to 8 \(there are 9 names\), found 1000"),
        (NAMES, 3, r"line 1: expected a list of strings in 'ner_tags', found int"),
        (
            ("O", "B-PER", "O"),
            [0, 1],
            r"tag_names: expected names of two .*, each once, found O, B-PER, O",
        ),
    ],
)
def test_what_does_not_fit(tmp_path, names, tags, message):
    spec = write(tmp_path / "a.jsonl", {"tokens": ["EU", "rejects"], "ner_tags": tags})
    with pytest.raises(InputError, match=message):
        read_tagged(spec, Columns(), None, tag_names=names)
