"""A verb over many files: each answered once and whole, whoever computes it and however often it is killed."""

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.inference.base import Pipeline

TEXTS = [f"the {word} sat on a {other} house" for word in ("cat", "dog", "bird") for other in ("red", "old", "blue")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_small) -> Path:
    """Models, and files of texts: lines, compressed JSON lines and Parquet, in two folders; one has no text."""
    folder = tmp_path_factory.mktemp("shards")
    write_small(folder / "vectors", "sentence_embedding", pooling="mean")
    write_small(folder / "classes", "sequence_classification", num_labels=2)
    (folder / "in" / "more").mkdir(parents=True)
    for number in range(6):
        texts = [] if number == 4 else [f"{text} {'over it ' * (i % 3)}" for i, text in enumerate(TEXTS[number:])]
        (folder / "in" / f"lines{number}.txt").write_text("".join(f"{text}\n" for text in texts))
        with gzip.open(folder / "in" / "more" / f"json{number}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps({"text": text, "id": i}) + "\n" for i, text in enumerate(texts))
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    pq.write_table(pa.table({"id": [7, 8], "text": TEXTS[:2]}), folder / "in" / "more" / "table.parquet")
    return folder


def run(*words) -> int:
    return main(list(map(str, words)))


def files_of(directory) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(Path(directory).rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def embedded(folder) -> dict[str, bytes]:
    """The files of one process that was never killed."""
    assert run("embed", folder / "vectors", "--shards", folder / "in", "--out", folder / "whole") == 0
    return files_of(folder / "whole")


def test_each_file_has_the_vectors_of_its_texts(folder, embedded, tmp_path):
    assert len(embedded) == 13 + 1
    for name in ("in/lines2.txt", "in/more/json3.jsonl.gz"):
        assert run("embed", folder / "vectors", "--file", folder / name, "--out", tmp_path / "one.npy") == 0
        there = folder / "whole" / (name.removeprefix("in/").split(".")[0] + ".npy")
        np.testing.assert_allclose(np.load(there), np.load(tmp_path / "one.npy"), atol=1e-6)
    assert np.load(folder / "whole" / "lines4.npy").shape == (0, 32)
    assert np.load(folder / "whole" / "more" / "table.npy").shape == (2, 32)


@pytest.mark.parametrize("words", [["classify"], ["fill-mask", "--top-k", "2"]], ids=lambda words: words[0])
def test_answers_are_those_of_one_file(folder, tmp_path, capsys, words, write_small):
    model, texts = folder / "classes", TEXTS
    if words[0] == "fill-mask":
        model, texts = write_small(tmp_path / "model", "masked_lm"), ["the [MASK] sat", "a [MASK] house"]
    for name in "ab":
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{name}.txt").write_text("".join(f"{text}\n" for text in texts))
    verb, *flags = words
    assert run(verb, model, *flags, "--shards", tmp_path / "in" / "*.txt", "--out", tmp_path / "out") == 0
    assert f"2 of 2 files, {2 * len(texts)} answers" in capsys.readouterr().out
    assert run(verb, model, *flags, "--file", tmp_path / "in" / "a.txt", "--json") == 0
    expected = capsys.readouterr().out
    assert [(tmp_path / "out" / f"{name}.jsonl").read_text() for name in "ab"] == [expected, expected]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_predictions_keep_ids_and_are_written_in_the_format(folder, tmp_path, kind):
    words = ["predict", "--model", folder / "classes", "--text-column", "text", "--format", kind]
    shards = [folder / "in" / "more" / "json1.jsonl.gz", folder / "in" / "more" / "table.parquet"]
    assert run(*words, "--shards", *shards, "--out", tmp_path / "out") == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        f"json1.{kind}",
        "shards.json",
        f"table.{kind}",
    ]
    if kind == "jsonl":
        rows = [json.loads(line) for line in (tmp_path / "out" / "table.jsonl").read_text().splitlines()]
    else:
        rows = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "out" / "table.parquet").to_pylist()
    assert [row["id"] for row in rows] == [7, 8] and all(row["label"].startswith("LABEL_") for row in rows)


def test_processes_share_the_files_and_are_killed_twice(folder, embedded, tmp_path):
    out = tmp_path / "out"

    def start(number):
        words = ["embed", folder / "vectors", "--shards", folder / "in", "--out", out]
        words += ["--num-processes", "2", "--process-id", number]
        return subprocess.Popen([sys.executable, "-m", "bert_jax", *map(str, words)], stdout=subprocess.DEVNULL)

    for least in (1, 3):  # files of vectors
        started = [start(number) for number in (0, 1)]
        deadline = time.monotonic() + 120
        while len(list(out.rglob("*.npy"))) < least and time.monotonic() < deadline:
            time.sleep(0.005)
        for process in started:
            process.kill()
            process.wait()
    assert len(list(out.rglob("*.npy"))) >= 3
    codes = [process.wait(timeout=120) for process in [start(number) for number in (0, 1)]]
    assert codes == [0, 0]
    assert {name: data for name, data in files_of(out).items() if not name.rsplit("/")[-1].startswith(".")} == embedded


def test_the_shapes_of_a_file_do_not_depend_on_the_files_before_it(folder, tmp_path, monkeypatch):
    seen = []
    shapes = Pipeline._shapes

    def recorded(self, lengths):
        for shape in shapes(self, lengths):
            seen.append((len(shape[0]), *shape[1:]))
            yield shape

    monkeypatch.setattr(Pipeline, "_shapes", recorded)
    (tmp_path / "a.txt").write_text(f"{'the cat ' * 11}\n" * 40)
    (tmp_path / "b.txt").write_text(f"{'the dog ' * 3}\n" * 20)
    words = ["embed", folder / "vectors", "--out"]
    assert run(*words, tmp_path / "alone", "--shards", tmp_path / "b.txt") == 0
    alone, seen[:] = list(seen), []
    assert run(*words, tmp_path / "both", "--shards", tmp_path / "a.txt", tmp_path / "b.txt") == 0
    assert seen[-len(alone) :] == alone and len(seen) > len(alone)
    np.testing.assert_array_equal(np.load(tmp_path / "both" / "b.npy"), np.load(tmp_path / "alone" / "b.npy"))


def test_what_is_there_is_left_and_what_is_new_is_added(folder, tmp_path, capsys):
    texts = tmp_path / "in"
    texts.mkdir()
    (texts / "a.txt").write_text("the cat\n")
    words = ["classify", folder / "classes", "--shards", texts, "--out", tmp_path / "out"]
    assert run(*words) == 0
    (tmp_path / "out" / "a.jsonl").write_text("mine")
    (texts / "b.txt").write_text("the dog\n")
    assert run(*words) == 0
    assert "2 of 2 files, 1 answers" in capsys.readouterr().out
    assert (tmp_path / "out" / "a.jsonl").read_text() == "mine"


def test_a_file_that_cannot_be_read_stops_or_is_left_out(folder, tmp_path, capsys):
    texts = tmp_path / "in"
    texts.mkdir()
    for name in "acd":
        (texts / f"{name}.txt").write_text("the cat\nthe dog\n")
    (texts / "b.txt.gz").write_bytes(gzip.compress(b"the cat\n" * 9)[:-9])
    (texts / "d.txt").write_bytes(b"the cat\n\xff\xfe\n")
    words = ["classify", folder / "classes", "--shards", texts, "--out", tmp_path / "out"]
    assert run(*words) == 2
    assert "b.txt.gz: " in capsys.readouterr().err
    assert sorted(files_of(tmp_path / "out")) == ["a.jsonl", "shards.json"]
    assert run(*words, "--skip") == 1
    said = capsys.readouterr()
    told = said.err.splitlines()
    assert "b.txt.gz: expected a whole .gz file" in told[0] and told[0].endswith("; the file is left out")
    assert "d.txt: line 2: " in told[1] and told[-1].startswith("bert-jax: 1 files have no answers")
    assert "3 of 4 files, 3 answers" in said.out
    (texts / "b.txt.gz").write_bytes(gzip.compress(b"the cat\n"))
    assert run(*words, "--skip") == 0
    assert len(files_of(tmp_path / "out")) == 5


def test_on_a_bucket(folder, embedded, bucket):
    for name, data in files_of(folder / "in").items():
        bucket.write(f"in/{name}", data)
    at = f"gs://{bucket.name}"
    assert run("embed", folder / "vectors", "--shards", f"{at}/in", "--out", f"{at}/out/vectors") == 0
    found = {key.removeprefix("out/vectors/"): bucket.read(key) for key in bucket.keys("out/vectors/")}
    assert found.keys() == embedded.keys()
    assert all(found[name] == embedded[name] for name in found if name.endswith(".npy"))


def test_what_does_not_fit(folder, tmp_path, capsys):
    (tmp_path / "twice").mkdir()
    (tmp_path / "twice" / "a.txt").write_text("the cat\n")
    (tmp_path / "twice" / "a.jsonl").write_text('{"text": "the cat"}\n')
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "mine.txt").write_text("mine")
    texts = folder / "in" / "lines0.txt"
    assert run("classify", folder / "classes", "--shards", texts, "--out", tmp_path / "begun") == 0
    for words, says in (
        (["--shards", texts], "--out: expected a directory with --shards, found none"),
        (["--shards", texts, "--out", tmp_path / "foreign"], "or that of an earlier run, found other files"),
        (["--shards", texts, "--out", tmp_path / "begun", "--batch-size", "3"], "batch_size was None, is now 3"),
        (["--shards", texts, tmp_path / "twice" / "a.txt", "--out", tmp_path / "begun"], "folder of the files was"),
        (
            ["--shards", tmp_path / "twice", "--out", tmp_path / "new"],
            "expected names that differ without their suffixes",
        ),
        (["--shards", texts, "--out", folder / "in"], "--out: expected a directory other than that of"),
        (["--shards", folder / "in", "--out", folder / "in" / "out"], "--out: expected a directory outside of"),
        (["--shards", tmp_path / "*.none", "--out", tmp_path / "new"], "expected files, found none"),
        (["--shards", tmp_path / "none.txt", "--out", tmp_path / "new"], "none.txt: no such file"),
        (["--shards", texts, "--out", tmp_path / "new", "--process-id", "1"], "--process-id: expected 0 to 0, found 1"),
        (
            ["--shards", texts, "--file", texts, "--out", tmp_path / "new"],
            "--shards: expected neither texts nor --file",
        ),
        (["a text", "--out", tmp_path / "new"], "--out: expected --shards too, found none"),
    ):
        capsys.readouterr()
        assert run("classify", folder / "classes", *words) == 2, words
        said = capsys.readouterr().err
        assert says in said, said
    for words, says in (
        ([], "expected --data FILE or --shards FILES, found none"),
        (["--data", texts, "--format", "tsv"], "--format: expected --shards too"),
        (["--data", texts, "--distributed"], "--distributed: expected --shards, and neither"),
    ):
        assert run("predict", "--model", folder / "classes", *words, "--out", tmp_path / "p.jsonl") == 2
        assert says in capsys.readouterr().err
