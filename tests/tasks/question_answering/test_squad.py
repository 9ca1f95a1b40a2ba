"""Reading SQuAD: both versions, compressed, from TFDS, and what does not fit named by its question."""

import gzip
import json
import lzma
import sys

import numpy as np
import pytest

from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.errors import InputError
from bert_jax.tasks.question_answering.data import Answer, Question, read_questions

CONTEXT = "Ada Lovelace was born in 1815. She wrote the first program."


def asked(name="q1", question="When?", answers=((25, "1815"),), **more):
    listed = [{"answer_start": start, "text": text} for start, text in answers]
    return {"id": name, "question": question, "answers": listed} | more


def tree(*questions, version="1.1", context=CONTEXT):
    paragraphs = [{"context": context, "qas": [question]} for question in questions]
    return {"version": version, "data": [{"title": "Ada", "paragraphs": paragraphs}]}


def write(path, content):
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text)
    return str(path)


def read(*arguments, **options):
    return list(read_questions(*arguments, **options))


def test_version_1(tmp_path):
    two = asked("q2", "Who?", [(0, "Ada"), (0, "Ada Lovelace")])
    found = read(write(tmp_path / "a.json", tree(asked(), two)))
    assert found[0] == Question("q1", "When?", CONTEXT, (Answer("1815", 25),), None)
    assert found[1].answers == (Answer("Ada", 0), Answer("Ada Lovelace", 0))


def test_version_2(tmp_path):
    none = asked("q2", "Where?", [], is_impossible=True, plausible_answers=[{"text": "Ada", "answer_start": 0}])
    spec = write(tmp_path / "a.json", tree(asked(is_impossible=False), none, version="v2.0"))
    assert [(q.id, q.is_impossible, len(q.answers)) for q in read(spec)] == [("q1", False, 1), ("q2", True, 0)]
    # Where the file says that it is of version 2, or where the questions do, each alone suffices.
    by_version = write(tmp_path / "b.json", tree(asked(), asked("q2", answers=[]), version="v2.0"))
    assert [q.is_impossible for q in read(by_version)] == [False, True]
    by_field = write(tmp_path / "c.json", tree(asked(is_impossible=False), version="mine"))
    assert [q.is_impossible for q in read(by_field)] == [False]


def test_without_answers_none_are_needed(tmp_path):
    bare = {"id": "q1", "question": "When?"}
    spec = write(tmp_path / "a.json", tree(bare))
    assert read(spec, with_answers=False) == [Question("q1", "When?", CONTEXT)]
    with pytest.raises(InputError, match=r"a\.json: question 'q1': expected a field 'answers'"):
        read(spec)
    spec = write(tmp_path / "b.json", tree(bare, version="v2.0"))
    assert [q.is_impossible for q in read(spec, with_answers=False)] == [False]


@pytest.mark.parametrize(("suffix", "opened"), [(".gz", gzip.open), (".xz", lzma.open)])
def test_compressed(tmp_path, suffix, opened):
    with opened(tmp_path / f"a.json{suffix}", "wb") as file:
        file.write(b"\xef\xbb\xbf" + json.dumps(tree(asked())).encode())
    assert [q.id for q in read(str(tmp_path / f"a.json{suffix}"))] == ["q1"]
    whole = (tmp_path / f"a.json{suffix}").read_bytes()
    (tmp_path / f"cut.json{suffix}").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=rf"cut\.json{suffix}: expected a whole {suffix} file"):
        read(str(tmp_path / f"cut.json{suffix}"))


def test_tfds(tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    class Asked(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        name = "tiny_squad"

        def _info(self):
            text = tfds.features.Text()
            answers = tfds.features.Sequence({"text": text, "answer_start": np.int32})
            features = {"id": np.str_, "title": text, "context": text, "question": text, "answers": answers}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            found = {"text": ["1815", "in 1815"], "answer_start": [25, 22]}
            yield 0, {"id": "q1", "title": "A", "context": CONTEXT, "question": "Wh\u00e9n?", "answers": found}

    Asked(data_dir=tmp_path, file_format="array_record").download_and_prepare()
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    expected = Question("q1", "Wh\u00e9n?", CONTEXT, (Answer("1815", 25), Answer("in 1815", 22)))
    assert read("tfds:tiny_squad") == [expected]
    assert read("tfds:tiny_squad:train", with_answers=False) == [Question("q1", "Wh\u00e9n?", CONTEXT)]
    assert "tensorflow" not in sys.modules
    with pytest.raises(InputError, match="tfds:tiny_squad:test: expected a TFDS data set with a split"):
        read("tfds:tiny_squad:test")


def test_answers_that_do_not_stand_where_they_should(tmp_path):
    wrong = asked("q2", answers=[(24, "1815")])
    half = asked("q3", answers=[(-1, "program"), (51, "program")])
    spec = write(tmp_path / "a.json", tree(asked(), wrong, half))
    with pytest.raises(InputError, match=r"question 'q2': expected the answer '1815' at character 24.*found ' 181'"):
        read(spec)
    bad = InvalidRows(spec, "skip", "question")
    assert [q.id for q in bad.fitting(read(spec, bad=bad))] == ["q1"]
    assert [len(q.answers) for q in read(spec, anywhere=True)] == [1, 1, 2]  # scoring looks at texts alone
    with pytest.raises(InputError, match="expected the answer '' at character 3"):
        read(write(tmp_path / "c.json", tree(asked(answers=[(3, "")]))))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "expected questions, found an empty file"),
        ('{"data": [', "expected JSON, found Expecting value at line 1, column 11"),
        ("[" * 100_000, "nested too deeply"),
        ([1], "expected a JSON object, found list"),
        ({"dataa": []}, "expected a field 'data'; did you mean 'dataa'"),
        ({"data": {}}, "expected a list in 'data', found dict"),
        ({"data": []}, "expected at least one question, found none"),
        ({"data": [{"paragraphs": [{}]}]}, r"data\[0\]\.paragraphs\[0\]: expected a field 'qas'"),
        (tree(asked(), context=None), r"data\[0\]\.paragraphs\[0\]: expected text in 'context', found NoneType"),
        (tree(asked(question=" ")), "question 'q1': expected a text in 'question', found spaces"),
        (tree({"question": "?"}), r"data\[0\]\.paragraphs\[0\]\.qas\[0\]: expected a field 'id'"),
        (tree({"id": "q1"}), "question 'q1': expected a field 'question'"),
        (tree(asked(question=7)), "question 'q1': expected text in 'question', found int"),
        (tree(asked(), asked()), "question 'q1': expected an id of its own, found it twice"),
        (tree(asked(answers=[])), "question 'q1': expected at least one answer, found 0"),
        (tree(asked(is_impossible=True)), "question 'q1': expected no answer, since is_impossible is true, found 1"),
        (tree(asked(is_impossible="no")), "expected true or false in 'is_impossible', found 'no'"),
        (tree(asked(answers=[("25", "1815")])), r"answers\[0\]: expected a number in 'answer_start', found '25'"),
        (tree(asked(answers=[(True, "da")])), r"expected a number in 'answer_start', found True"),
        (tree(asked(answers=[(0, None)])), r"answers\[0\]: expected text in 'text', found NoneType"),
        (tree(asked(), context="\ud83d"), "expected UTF-8 text, found half a surrogate pair at offset 0"),
    ],
)
def test_what_does_not_fit(tmp_path, content, message):
    spec = write(tmp_path / "a.json", content)
    with pytest.raises(InputError, match=message) as refusal:
        read(spec)
    assert str(refusal.value).startswith(f"{spec}: ")


def test_files_that_are_none(tmp_path):
    (tmp_path / "d.json").mkdir()
    (tmp_path / "b.json").write_bytes(b'{"data": "\xff"}')
    for name, message in (
        ("nowhere.json", "no such file"),
        ("d.json", "found a directory"),
        ("b.json", "expected UTF-8 text, found byte 0xff at offset 10"),
        ("a.tsv", r"expected a file named \.json"),
    ):
        with pytest.raises(InputError, match=message):
            read(str(tmp_path / name))


def test_the_real_articles(shared_data):
    folder = shared_data / "squad2_articles"
    for name, count in (("train", 3708), ("dev", 741)):
        found = read(str(folder / f"{name}.json"))
        assert len(found) == count
        assert {q.is_impossible for q in found} == {False, True}
