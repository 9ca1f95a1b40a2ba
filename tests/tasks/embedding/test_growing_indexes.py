"""Indexes that grow: an index of added and deleted texts is that of the same texts written at once."""

import itertools
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.tasks.embedding import index_updates
from bert_jax.tasks.embedding.index_files import IndexFiles
from bert_jax.tasks.embedding.segmented_index import SegmentedIndex

HEADS = ("sentence_embedding", "sparse_embedding", "multi_vector")
TEXTS = [f"text {i}" for i in range(60)]
QUERIES = ["query 1", "query 2", "query 3"]


def vectors_of(head, width):
    """A function of texts in place of a model: whole numbers, so that scores are equal to the last bit."""

    def of_text(text):
        rng = np.random.default_rng(zlib.crc32(text.encode()))
        if head == "multi_vector":
            return rng.integers(-4, 5, (rng.integers(1, 6), width)).astype("f4")
        vector = rng.integers(-4, 5, width).astype("f4")
        return vector * (rng.random(width) < 0.2) if head == "sparse_embedding" else vector

    def vectors(self, texts, prompt, size, task):
        of_texts = [of_text(text) for text in texts]
        if head == "multi_vector":
            return of_texts
        return sparse.csr_array(np.stack(of_texts)) if head == "sparse_embedding" else np.stack(of_texts)

    return vectors


@pytest.fixture(scope="module")
def models(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("models")
    return {head: str(write_small(root / head, head)) for head in HEADS}


@pytest.fixture
def search(models, monkeypatch, request):
    pipe = pipeline("search", models[request.param])
    monkeypatch.setattr(type(pipe), "_vectors", vectors_of(request.param, pipe._width))
    monkeypatch.setattr("bert_jax.inference.corpus_chunks.CORPUS_CHUNK", 7)
    return pipe


every_kind = pytest.mark.parametrize("search", HEADS, indirect=True)
dense = pytest.mark.parametrize("search", HEADS[:1], indirect=True)


def answers(search, directory, top_k=20):
    search.open_index(directory)
    return [
        [(answer["text"], answer["score"], answer.get("id")) for answer in row] for row in search(QUERIES, top_k=top_k)
    ]


@every_kind
def test_an_index_that_has_grown_is_one_written_at_once(search, tmp_path):
    search.write_index(TEXTS[:25], tmp_path / "grown")
    opened = pipeline("search", search.model)
    assert opened.open_index(tmp_path / "grown") == 25
    before = opened(QUERIES, top_k=25)
    assert search.update_index(tmp_path / "grown", TEXTS[25:40]) == (15, 0, 0, 40, False)
    assert search.update_index(tmp_path / "grown", TEXTS[40:], delete=[3, "30"]) == (20, 0, 2, 58, False)
    assert search.update_index(tmp_path / "grown", delete=range(40, 45)) == (0, 0, 5, 53, False)
    left = [text for i, text in enumerate(TEXTS) if i not in (3, 30, *range(40, 45))]
    search.write_index(left, tmp_path / "whole")
    for top_k in (1, 20, 100):
        assert answers(search, tmp_path / "grown", top_k) == answers(search, tmp_path / "whole", top_k)
    search.open_index(tmp_path / "grown")
    assert all(
        TEXTS[answer["corpus_id"]] == answer["text"] for answer in search(QUERIES, top_k=60)[0]
    )  # stable numbers
    assert search.update_index(tmp_path / "grown", compact=True) == (0, 0, 0, 53, True)
    assert sorted(path.name for path in (tmp_path / "grown").iterdir()) == ["index.json", "segment-4"]
    assert answers(search, tmp_path / "grown", 100) == answers(search, tmp_path / "whole", 100)
    assert opened(QUERIES, top_k=25) == before  # an open index keeps its version
    assert search.update_index(tmp_path / "grown", ["text 60"], delete=["59"]) == (1, 0, 1, 53, False)
    search.open_index(tmp_path / "grown")
    assert {answer["text"]: answer["corpus_id"] for answer in search(QUERIES, top_k=60)[0]}["text 60"] == 60


@dense
def test_the_number_of_a_deleted_text_is_not_given_again(search, tmp_path):
    search.write_index(TEXTS[:4], tmp_path / "index")
    assert search.update_index(tmp_path / "index", delete=[2, 3, 1], compact=True) == (0, 0, 3, 1, True)
    search.update_index(tmp_path / "index", ["text 4"])
    search.open_index(tmp_path / "index")
    assert sorted(answer["corpus_id"] for answer in search("query", top_k=9)) == [0, 4]


@every_kind
def test_a_text_is_replaced_by_its_id(search, tmp_path):
    search.write_index(TEXTS[:9], tmp_path / "index", ids=(f"id {i}" for i in range(9)))
    changes = search.update_index(tmp_path / "index", TEXTS[20:23], ids=["id 3", "new", "id 7"], delete=["id 0"])
    assert changes == (3, 2, 1, 9, False)
    kept = [1, 2, 4, 5, 6, 8]
    search.write_index([*(TEXTS[i] for i in kept), *TEXTS[20:23]], tmp_path / "whole",
                       ids=[*(f"id {i}" for i in kept), "id 3", "new", "id 7"])  # fmt: skip
    assert answers(search, tmp_path / "index") == answers(search, tmp_path / "whole")
    search.update_index(tmp_path / "index", compact=True)
    assert answers(search, tmp_path / "index") == answers(search, tmp_path / "whole")


@dense
def test_an_index_is_compacted_when_most_is_deleted_or_after_many_updates(search, tmp_path, monkeypatch):
    search.write_index(TEXTS[:10], tmp_path / "index")
    assert not search.update_index(tmp_path / "index", delete=range(5)).compacted
    assert search.update_index(tmp_path / "index", delete=[5]) == (0, 0, 1, 4, True)
    monkeypatch.setattr(index_updates, "_MOST_SEGMENTS", 3)
    compacted = [search.update_index(tmp_path / "index", [f"text {i}"]).compacted for i in range(10, 16)]
    assert compacted == [False, False, True, False, False, True]
    assert search.update_index(tmp_path / "index", delete=[6, 7, 8, 9, *range(10, 16)]).texts == 0
    search.open_index(tmp_path / "index")
    assert search(QUERIES) == [[], [], []]
    assert search.update_index(tmp_path / "index", TEXTS[:2]).texts == 2
    assert len(answers(search, tmp_path / "index")[0]) == 2


@dense
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delete": ["7"]}, r"delete: expected ids of texts in the index, found '7' \(1 in all\)"),
        ({"delete": ["a", "b", "a"], "corpus": ["x"]}, "expected ids of the texts, found none"),
        ({"corpus": ["x", "y"], "ids": ["c", "c"]}, "ids: text 1: expected a unique id, found 'c' again"),
        ({"corpus": ["x", "y"], "ids": ["c"]}, "ids: expected an id of each of the texts, found 1 ids"),
        ({"corpus": ["x"], "ids": ["c", "d"]}, "ids: expected an id of each of 1 texts, found more ids"),
        ({"corpus": ["x"], "ids": [3]}, "ids: text 0: expected an id, found 3"),
        ({"corpus": [], "ids": []}, "corpus: expected at least one text, found none"),
    ],
)
def test_updates_that_do_not_fit_change_nothing(search, tmp_path, options, message):
    search.write_index(["1", "2"], tmp_path / "index", ids=["a", "b"])
    files = {path.name: path.read_bytes() for path in (tmp_path / "index").iterdir()}
    with pytest.raises(InputError, match=message):
        search.update_index(tmp_path / "index", **options)
    assert {path.name: path.read_bytes() for path in (tmp_path / "index").iterdir()} == files


@dense
def test_a_damaged_or_foreign_index_is_not_updated(search, models, tmp_path):
    search.write_index(TEXTS[:5], tmp_path / "index")
    with pytest.raises(InputError, match="expected an index of kind sparse_embedding, found sentence_embedding"):
        pipeline("search", models["sparse_embedding"]).update_index(tmp_path / "index", ["x"])
    with pytest.raises(InputError, match="expected no ids, as in the index, found some"):
        search.update_index(tmp_path / "index", ["x"], ids=["a"])
    with (
        index_updates.updating(tmp_path / "index", search.index_class, search._expected),
        pytest.raises(InputError, match="another process is updating this index"),
    ):
        search.update_index(tmp_path / "index", ["x"])
    search.update_index(tmp_path / "index", ["x"], delete=[0])
    about = tmp_path / "index" / "index.json"
    for change, message in (
        ({"segments": "segment-1"}, "expected names of files in segments"),
        ({"segments": ["", "../elsewhere"]}, "expected names of files in segments"),
        ({"superseded": ["../model"]}, "expected names of files in superseded"),
        ({"generation": "1"}, "expected a generation of at least 0"),
        ({"segments": ["segment-1", ""]}, "expected numbers of texts above those of the segment before"),
        ({"segments": ["", "segment-9"]}, "segment-9: expected a local directory with an index"),
        ({"deleted": "nothing"}, "expected nothing of dtype <i8"),
    ):
        content = about.read_text()
        about.write_text(json.dumps(json.loads(content) | change))
        with pytest.raises(InputError, match=message):
            search.open_index(tmp_path / "index")
        about.write_text(content)
    search.open_index(tmp_path / "index")


KILLED = """
import itertools, os, shutil, sys
import numpy as np
from bert_jax.storage import paths
from bert_jax.tasks.embedding.dense.index import DenseIndex
from bert_jax.tasks.embedding.index_files import new_index
from bert_jax.tasks.embedding.index_updates import updating

EXPECTED = {"kind": "sentence_embedding", "width": 4, "similarity": "dot"}

def write(files, start, stop, entries):
    files.append_texts([f"text {i}" for i in range(start, stop)])
    about = DenseIndex.write(files, [np.eye(4, dtype="f4")[np.arange(start, stop) % 4]], "dot")
    files.close("sentence_embedding", entries(about))

def update(directory):
    with updating(directory, DenseIndex, EXPECTED) as update:
        with update.new_segment() as files:
            write(files, 10, 14, update.segment_entries)
        update.commit(4, np.array([1, 2]))
        update.compact()

if __name__ == "__main__":
    with new_index("start") as files:
        write(files, 0, 10, lambda about: about | EXPECTED)
    with updating("start", DenseIndex, EXPECTED) as first:
        first.commit(0, np.array([0]))
    for left in itertools.count():
        shutil.copytree("start", f"killed-{left}")
        if not os.fork():
            steps = itertools.count()
            def killing(function):
                def counted(*args, **options):
                    if next(steps) == left:
                        os._exit(9)
                    return function(*args, **options)
                return counted
            for place, name in ((paths.Path, "unlink"), (paths.Path, "rmtree"), (paths.Path, "replace"),
                                (paths.Path, "mkdir"), (os, "rename"), (os, "replace")):
                setattr(place, name, killing(getattr(place, name)))
            update(f"killed-{left}")
            os._exit(0)
        if os.wait()[1] == 0:
            break
"""


def test_an_update_that_is_killed_leaves_the_index_as_it_was(tmp_path):
    """The process is killed at each of its changes of files in turn; then the index is updated once more."""
    environment = os.environ | {"PYTHONPATH": str(Path(index_updates.__file__).parents[3])}
    subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, check=True, env=environment)
    child: dict = {"__name__": "child"}
    exec(KILLED, child)

    def numbers(path):
        index = SegmentedIndex(path, child["DenseIndex"], child["EXPECTED"])
        return sorted(index.nearest(np.eye(4, dtype="f4")[:1], 99)[1][0].tolist())

    killed = sorted(tmp_path.glob("killed-*"), key=lambda path: int(path.name.split("-")[1]))
    old, new, seen = [*range(1, 10)], [*range(3, 14)], [numbers(path) for path in killed]
    assert len(killed) > 6 and [key for key, _ in itertools.groupby(seen)] == [old, new]
    for path, before in zip(killed, seen, strict=True):
        if before == old:
            child["update"](path)
        assert numbers(path) == new
        with index_updates.updating(path, child["DenseIndex"], child["EXPECTED"]) as update:
            update.commit(0, np.array([5]))
        about = IndexFiles(path).about
        left = {entry.name for entry in path.iterdir()} - {"", *about["segments"], f"{about['deleted']}.bin"}
        assert left == {"index.json"} | ({f"{name}.bin" for name in about["arrays"]} - {f"{about['deleted']}.bin"})
