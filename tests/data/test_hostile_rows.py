"""Damaged files of questions, tagged sentences and corpora: read, or refused in one line; never anything else."""

import gzip
import json
import random

import pytest

from bert_jax.data.corpora.sources import open_corpus
from bert_jax.data.finetuning.tables import Columns
from bert_jax.data.finetuning.tagged import read_sentences
from bert_jax.errors import InputError
from bert_jax.tasks.question_answering.data import read_questions

CONTEXT = "Ada was born in 1815. \u00e9t\u00e9 \u6c34"
ANSWER = {"text": "1815", "answer_start": 16}
ROW = {"id": "q1", "question": "When?"}
QUESTION = ROW | {"title": "A", "context": CONTEXT, "answers": {"text": ["1815"], "answer_start": [16]}}
PARAGRAPH = {"context": CONTEXT, "qas": [ROW | {"answers": [ANSWER]}]}
OFFICIAL = {"version": "v2.0", "data": [{"paragraphs": [PARAGRAPH]}]}
SENTENCES = [{"tokens": ["EU", "rejects"], "ner_tags": [3, 0]}, {"tokens": ["a"], "tags": ["O"]}]
CONLL_U = "# text = a\n1-2\tal" + "\t_" * 8 + "\n1\ta\ta\tADP" + "\t_" * 6 + "\n"


def questions(path):
    return list(read_questions(path, anywhere=True))


def sentences(path):
    return list(read_sentences(path, Columns(), names=("O", "B-A", "I-A", "B-B")))


def documents(path):
    return list(open_corpus(path))


SEEDS = [
    (questions, "a.jsonl", json.dumps(QUESTION) + "\n" + json.dumps(QUESTION | {"id": 2})),
    (questions, "a.json", json.dumps(OFFICIAL)),
    (questions, "b.json", json.dumps({name: [value] for name, value in QUESTION.items()})),
    (sentences, "a.conll", "-DOCSTART- O\n\n# x = 1\nEU B-ORG\nrejects O\n"),
    (sentences, "a.conllu", CONLL_U),
    (sentences, "c.json", json.dumps(SENTENCES)),
    (documents, "a.txt.gz", "Some text. More.\n\nOther \u00e9.\n"),
    (documents, "b.jsonl", '{"text": "a. b."}\n{"text": "c"}\n'),
]
JUNK = [
    *(
        b"\0",
        b"\xff",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"[" * 5000,
        b"{",
        b"9" * 5000,
        b"1e99",
        b"NaN",
        b'"\\ud83d"',
        b"null",
    ),
    *(b"[]", b"{}", b"-1", b"\t" * 3000, b"\n\n", b"\r", b"#", b"1-2", b'"', b",", b"\x1b[31m", b"\xe2\x80\xae"),
]


def mutated(rng, data):
    for _ in range(rng.choice((1, 1, 3))):
        start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        data = rng.choice(
            (data[:start] + rng.choice(JUNK) + data[start:], data[:start] + data[end:], data[:end] + 9 * data[start:])
        )
    return data


@pytest.mark.parametrize(("read", "name", "text"), SEEDS, ids=[name for _, name, _ in SEEDS])
def test_damage_is_found_or_harmless(tmp_path, read, name, text):
    rng, path, refused = random.Random(name), tmp_path / name, 0
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert read(str(path))
    for _ in range(60):
        data = mutated(rng, text.encode())
        path.write_bytes(gzip.compress(data, 1) if name.endswith(".gz") else data)
        try:
            read(str(path))
        except InputError as error:
            refused += 1
            assert "\n" not in str(error) and str(error).startswith(str(path))
    assert refused > 5
