"""Answers for many files as Parquet, ranked texts for many queries, and files shared among detected hosts."""

import json
import os
import random
import socket
import subprocess
import sys

import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.inference import pipeline

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

TEXTS = ["the cat sat on a red house", "a dog", "the [MASK] sleeps under the tree"]


def run(*words) -> int:
    return main(list(map(str, words)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_small):
    folder = tmp_path_factory.mktemp("formats")
    for name, head, fields in (
        ("classify", "sequence_classification", {"num_labels": 2}),
        ("tag", "token_classification", {"num_labels": 3, "initializer_range": 0.5}),
        ("answer", "question_answering", {}),
        ("fill-mask", "masked_lm", {}),
        ("score", "masked_lm", {}),
        ("generate", "masked_lm", {"max_position_embeddings": 48}),
        ("relations", "sequence_classification", {"num_labels": 2, "initializer_range": 0.5}),
        ("sentence_embedding", "sentence_embedding", {"pooling": "mean"}),
        ("sparse_embedding", "sparse_embedding", {"initializer_range": 0.5}),
        ("multi_vector", "multi_vector", {"initializer_range": 0.5}),
    ):
        write_small(folder / name, head, **fields)
    (folder / "relations" / "bert_jax.json").write_text('{"relations": {"markers": "entity_marker_punct"}}')
    (folder / "in").mkdir()
    for name, texts in (("a", TEXTS), ("b", TEXTS[2:]), ("none", [])):
        (folder / "in" / f"{name}.txt").write_text("".join(f"{text}\n" for text in texts))
    return folder


VERBS = {
    "classify": [],
    "tag": [],
    "tag --strategy none": ["--strategy", "none"],
    "answer": ["--text", "the cat sat on a house", "--top-k", "2"],
    "fill-mask": ["--top-k", "2"],
    "score": [],
    "relations": ["--tagger", "TAGGER"],
    "score --tokens": ["--tokens"],
    "generate": ["--length", "4", "--samples", "2", "--temperature", "1"],
    "generate --fill": ["--fill"],
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", VERBS)
def test_tables_hold_what_json_lines_hold(folder, tmp_path, name):
    verb, files = name.split()[0], folder / "in"
    if name in ("fill-mask", "generate --fill"):
        (tmp_path / "in").mkdir()
        files = tmp_path / "in"
        (files / "a.txt").write_text("the [MASK] sat on a [MASK]\na [MASK]\n")
    options = [str(folder / "tag") if word == "TAGGER" else word for word in VERBS[name]]
    words = [verb, folder / verb, *options, "--shards", files]
    assert run(*words, "--out", tmp_path / "lines") == 0
    assert run(*words, "--out", tmp_path / "tables", "--format", "parquet") == 0
    schemas = set()
    for path in files.iterdir():
        table = pq.read_table(tmp_path / "tables" / f"{path.stem}.parquet")
        lines = (tmp_path / "lines" / f"{path.stem}.jsonl").read_text().splitlines()
        rows = table.to_pylist()
        if verb == "answer":
            rows = [{"question": row["question"], "answers": row["answers"]} for row in rows]
        assert rows == list(map(json.loads, lines)) and len(rows) == len(path.read_text().splitlines())
        schemas.add(table.schema.to_string())
    assert len(schemas) == 1  # also of the file without texts


@pytest.mark.sampled(3)
@pytest.mark.parametrize("head", ["sentence_embedding", "sparse_embedding", "multi_vector"])
def test_tables_of_vectors(folder, tmp_path, head):
    assert run("embed", folder / head, "--shards", folder / "in", "--out", tmp_path / "out", "--format", "parquet") == 0
    assert run("embed", folder / head, "--file", folder / "in" / "a.txt", "--out", tmp_path / "a.parquet") == 0
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.equals(pq.read_table(tmp_path / "out" / "a.parquet")) and table["text"].to_pylist() == TEXTS
    assert pq.read_table(tmp_path / "out" / "none.parquet").num_rows == 0
    embed = pipeline("sentence-embedding", folder / head)
    expected, found = embed(TEXTS), table["embedding"].to_pylist()
    if head == "sentence_embedding":
        assert table.schema.field("embedding").type == pa.list_(pa.float32(), 32)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    elif head == "multi_vector":
        assert [len(vectors) for vectors in found] == [len(vectors) for vectors in expected]
        np.testing.assert_allclose(found[0], expected[0], atol=1e-6)
    else:
        weights = [[item["weight"] for item in vector] for vector in found]
        assert [len(of_text) for of_text in weights] == np.diff(expected.indptr).tolist()
        assert all(of_text == sorted(of_text, reverse=True) for of_text in weights)
        np.testing.assert_allclose(sorted(weights[0]), sorted(expected.data[: expected.indptr[1]]), rtol=1e-5)


@pytest.fixture
def found(tmp_path):
    """Files of queries with texts: JSON lines, and Parquet with other names."""
    (tmp_path / "found").mkdir()
    rows = [{"query": "a cat", "texts": TEXTS}, {"query": "the dog", "texts": TEXTS[:1]}, {"query": "a", "texts": []}]
    (tmp_path / "found" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = pa.table({"q": ["a cat"], "list": [TEXTS]})
    pq.write_table(table, tmp_path / "other.parquet")
    return tmp_path


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_texts_of_many_queries_are_ranked(folder, found, kind):
    words = ["rerank", folder / "classify", "--top-k", "2", "--format", kind]
    assert run(*words, "--shards", found / "found", "--out", found / "out") == 0
    names = ["--query-field", "q", "--texts-field", "list"]
    assert run(*words, *names, "--shards", found / "other.parquet", "--out", found / "named") == 0

    def read(path):
        if kind == "jsonl":
            return [json.loads(line) for line in path.with_suffix(".jsonl").read_text().splitlines()]
        return pq.read_table(path.with_suffix(".parquet")).to_pylist()

    rerank = pipeline("rerank", folder / "classify")
    rows = read(found / "out" / "a")
    assert [row["query"] for row in rows] == ["a cat", "the dog", "a"]
    expected = rerank("a cat", TEXTS, 2)
    assert [answer["text"] for answer in rows[0]["answers"]] == [answer["text"] for answer in expected]
    assert rows[0]["answers"][0]["score"] == pytest.approx(expected[0]["score"], abs=1e-6)
    assert len(rows[1]["answers"]) == 1 and rows[2]["answers"] == []
    assert read(found / "named" / "other") == rows[:1]


def test_rows_without_a_query_or_texts(folder, found, capsys):
    with (found / "found" / "a.jsonl").open("a") as file:
        file.write('{"query": "x", "texts": "y"}\n')
    words = ["rerank", folder / "classify", "--shards", found / "found", "--out", found / "out"]
    assert run(*words) == 2
    said = capsys.readouterr().err
    assert "a.jsonl: line 4: expected a text in 'query' and a list of texts in 'texts', found" in said
    assert run(*words, "--skip") == 0
    assert len((found / "out" / "a.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rerank", "MODEL", "a query"], "rerank: expected QUERY and --corpus FILE, or --shards FILES without them"),
        (["rerank", "MODEL", "--shards", "a", "--corpus", "b"], "rerank: expected QUERY and --corpus FILE, or"),
        (["rerank", "MODEL", "q", "--corpus", "b", "--out", "c"], "--out: expected --shards too, found none"),
        (["classify", "MODEL", "text", "--format", "parquet"], "--format: expected --shards too, found none"),
        (["classify", "MODEL", "text", "--distributed"], "--distributed: expected --shards, and neither"),
        (["classify", "MODEL", "--shards", "a", "--distributed", "--num-processes", "2"], "--distributed: expected"),
    ],
)
def test_what_does_not_fit(folder, capsys, words, says):
    assert run(*(folder / "classify" if word == "MODEL" else word for word in words)) == 2
    assert says in capsys.readouterr().err


def is_free(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.slow
def test_hosts_that_jax_detects_share_the_files(folder, tmp_path):
    """Two processes as `mpirun` starts them; the connection is only needed to find their numbers."""
    job = next(job for job in random.sample(range(4096), 100) if is_free(61440 + job))  # JAX takes this port of a job
    words = ["classify", folder / "classify", "--shards", folder / "in", "--out", tmp_path / "out", "--distributed"]
    started = []
    for number in (0, 1):
        cluster = {
            "OMPI_MCA_orte_hnp_uri": f"{job * 4096}.0;tcp://127.0.0.1:1",
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_RANK": str(number),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(number),
        }
        command = [sys.executable, "-m", "bert_jax", *map(str, words)]
        started.append(subprocess.Popen(command, env=os.environ | cluster, stdout=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=240)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert "2 of 3 files, 3 answers" in said[0] and "1 of 3 files, 1 answers" in said[1]
    assert sorted(path.name for path in (tmp_path / "out").glob("*.jsonl")) == ["a.jsonl", "b.jsonl", "none.jsonl"]
