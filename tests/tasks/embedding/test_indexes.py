"""Indexes on disk: every kind finds what brute force finds, in parts, with ties, and after damage says so."""

import dataclasses
import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.inference.similarity import compare, max_similarities
from bert_jax.tasks.embedding.dense.index import DenseIndex
from bert_jax.tasks.embedding.index_files import IndexFiles, new_index
from bert_jax.tasks.embedding.multi_vector import index as multi_vector_index
from bert_jax.tasks.embedding.multi_vector.index import MultiVectorIndex
from bert_jax.tasks.embedding.search_index import best_texts

WORDS = ["cat", "dog", "tree", "house", "bird", "red", "big", "young", "the", "a", "river", "ü"]
RNG = np.random.default_rng(0)
CORPUS = [" ".join(RNG.choice(WORDS, RNG.integers(0, 9))) for _ in range(70)] + ["the cat", "the cat"]
QUERIES = ["the cat", "red river", "a young bird"]
HEADS = ("sentence_embedding", "sparse_embedding", "multi_vector")


@pytest.fixture(scope="module")
def models(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("models")
    return {head: str(write_small(root / head, head, initializer_range=0.5)) for head in HEADS}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("head", HEADS)
def test_an_index_on_disk_is_brute_force(models, tmp_path, monkeypatch, head):
    plain, indexed = pipeline("search", models[head]), pipeline("search", models[head])
    monkeypatch.setattr("bert_jax.inference.corpus_chunks.CORPUS_CHUNK", 9)
    assert indexed.write_index(iter(CORPUS), tmp_path / "index") == len(CORPUS)
    assert indexed.open_index(tmp_path / "index") == len(CORPUS)
    every_score, order = plain.nearest(QUERIES, CORPUS, len(CORPUS))
    score_of = np.take_along_axis(every_score, np.argsort(order, axis=1), axis=1)
    for top_k in (1, 5, 500):
        scores, numbers = indexed.nearest(QUERIES, None, top_k)
        expected, theirs = plain.nearest(QUERIES, CORPUS, top_k)
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
        assert scores.shape == numbers.shape == theirs.shape
        own = np.take_along_axis(score_of, numbers, axis=1)  # another text only if its score is equal
        np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-5)
        assert all(len(set(row)) == len(row) for row in numbers.tolist())
    found = indexed("the cat", top_k=2)
    assert [answer["text"] for answer in found] == [CORPUS[answer["corpus_id"]] for answer in found]
    assert indexed.index(CORPUS[:3]) == 3 and len(indexed("the cat")) == 3  # replaces it


def test_sizes_of_an_index_are_those_of_queries(models, tmp_path):
    search = pipeline("search", models["sparse_embedding"])
    search.write_index(CORPUS, tmp_path / "index", max_active_dims=5)
    search.open_index(tmp_path / "index")
    expected = search.nearest(QUERIES, CORPUS, 3, max_active_dims=5)
    np.testing.assert_allclose(search.nearest(QUERIES, None, 3)[0], expected[0], rtol=1e-5)
    assert IndexFiles(tmp_path / "index").about["weights"] == 5 * len(CORPUS)


def test_an_index_without_a_size_is_searched_with_that_of_the_model(models, tmp_path):
    search = pipeline("search", models["sparse_embedding"])
    settings = dataclasses.replace(search.model.settings, max_active_dims=5)
    search.model = dataclasses.replace(search.model, settings=settings)
    search.write_index(CORPUS, tmp_path / "index")
    about = tmp_path / "index" / "index.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"size": None}))
    search.open_index(tmp_path / "index")
    np.testing.assert_allclose(search.nearest(QUERIES, None, 3)[0], search.nearest(QUERIES, CORPUS, 3)[0], rtol=1e-5)


def written(path, texts, precision="float32", centroids=None, similarity="maxsim"):
    with new_index(path) as files:
        chunks = [texts[:40], texts[40:]]
        about = MultiVectorIndex.write(files, chunks, similarity, precision=precision, centroids=centroids)
        files.close("multi_vector", about | {"similarity": similarity})
    return MultiVectorIndex(IndexFiles(path), texts[0].shape[1], similarity)


def draw(rng, count, width=8):
    centers = rng.normal(size=(12, width))
    tokens = [centers[rng.integers(0, 12, rng.integers(0, 9))] for _ in range(count)]
    noisy = [rows + rng.normal(size=rows.shape) * 0.1 for rows in tokens]
    return [(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)).astype("f4") for rows in noisy]


@pytest.mark.parametrize("block", [5, 1 << 16])
@pytest.mark.parametrize("precision", multi_vector_index.PRECISIONS)
def test_late_interaction_is_exact_for_the_stored_vectors(tmp_path, monkeypatch, precision, block):
    monkeypatch.setattr(multi_vector_index, "_BLOCK", block)
    monkeypatch.setattr(multi_vector_index, "_SCORED", 4)
    rng = np.random.default_rng(1)
    texts, queries = draw(rng, 200), [rows for rows in draw(rng, 9) if len(rows)]
    index = written(tmp_path / "index", texts, precision, 48)
    stored = [index.vectors(i) for i in range(len(texts))]
    scored = []

    def counting(name, given, documents):
        scored.append(len(documents))
        return max_similarities(name, given, documents)

    monkeypatch.setattr(multi_vector_index, "max_similarities", counting)
    scores, numbers = index.nearest(queries, 6)
    expected = max_similarities("maxsim", queries, stored)
    for row in range(len(queries)):
        _, best = best_texts(expected[row], 6)
        np.testing.assert_allclose(scores[row], expected[row][best], rtol=1e-5)
        np.testing.assert_allclose(expected[row][numbers[row]], expected[row][best], rtol=1e-5)
    assert sum(scored) < len(queries) * len(texts) / 2  # most texts are not read
    worst = max(np.abs(a - b).max(initial=0) for a, b in zip(texts, stored, strict=True))
    assert worst <= {"float32": 0, "float16": 1e-3, "int8": 5e-3}[precision]


def test_bounds_hold(tmp_path):
    rng = np.random.default_rng(2)
    texts = draw(rng, 100)
    index = written(tmp_path / "index", texts, "int8", 3)
    for query in draw(rng, 20):
        exact = max_similarities("maxsim", [query], [index.vectors(i) for i in range(len(texts))])[0]
        assert (index._bounds(query) >= exact).all()


def test_of_equal_scores_the_first_come_first():
    assert best_texts(np.array([1.0, 3, 2, 3, 3, 2]), 2)[1].tolist() == [1, 3]
    assert best_texts(np.array([1.0, 3, 2, 3, 3, 2]), 4)[1].tolist() == [1, 3, 4, 2]
    assert best_texts(np.array([1.0, 3]), 9)[1].tolist() == [1, 0]


def clustered(rng, count, width=16):
    vectors = rng.normal(size=(20, width))[rng.integers(0, 20, count)] + rng.normal(size=(count, width)) * 0.5
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype("f4")


def approximate(path, vectors, similarity="cosine"):
    """An index of vectors with a graph of them."""
    with new_index(path) as files:
        about = DenseIndex.write(files, [vectors[:1500], vectors[1500:]], similarity, approximate=True)
        files.close("sentence_embedding", about)
    return DenseIndex(IndexFiles(path), vectors.shape[1], similarity)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
def test_a_graph_finds_most_of_what_brute_force_finds(tmp_path, monkeypatch, similarity):
    pytest.importorskip("usearch", reason="of the [usearch] extra")
    rng = np.random.default_rng(3)
    vectors, queries = clustered(rng, 3000), clustered(rng, 50)
    if similarity != "cosine":
        vectors *= rng.uniform(0.5, 2, (len(vectors), 1)).astype("f4")
    index, compared = approximate(tmp_path / "index", vectors, similarity), []

    def counting(name, query, texts):
        compared.append(len(texts))
        return compare(name, query, texts)

    monkeypatch.setattr("bert_jax.tasks.embedding.dense.stored_vectors.compare", counting)
    scores, numbers = index.nearest(queries, 10)
    assert max(compared) <= 20
    every = compare(similarity, queries, vectors)
    best = np.argsort(-every, axis=1, kind="stable")[:, :10]
    assert np.mean([len({*row} & {*of_row}) for row, of_row in zip(numbers, best, strict=True)]) > 9.5
    np.testing.assert_allclose(scores, np.take_along_axis(every, numbers, 1), rtol=1e-4, atol=1e-5)
    assert (np.diff(scores, axis=1) <= 0).all()
    assert index.nearest(queries[:1], 2000)[1].shape == (1, 2000)  # of many every one is compared
    assert compared[-1] == len(vectors)


def test_the_graph_of_an_index_on_the_command_line(models, tmp_path, capsys):
    """The commands of the page."""
    pytest.importorskip("usearch", reason="of the [usearch] extra")
    page = (Path(__file__).parents[3] / "docs" / "retrieval.md").read_text()
    block = re.search(r"```bash\n([^`]*--approximate[^`]*)```", page)[1]
    texts = [f"{text or 'x'} {i}" for i, text in enumerate(CORPUS)]
    (tmp_path / "documents.txt").write_text("\n".join(texts))
    places = {"path/to/all-MiniLM-L6-v2": models["sentence_embedding"], "large_index": str(tmp_path / "index"),
              "documents.txt": str(tmp_path / "documents.txt")}  # fmt: skip
    for line in block.splitlines():
        words = [places.get(word, word) for word in shlex.split(line)]
        if words[0] == "bert-jax":
            assert main(words[1:]) == 0
    assert "graph" in IndexFiles(tmp_path / "index").about["arrays"]
    exact = pipeline("search", models["sentence_embedding"])("how do cats sleep?", texts, top_k=3)
    assert all(answer["text"] in capsys.readouterr().out for answer in exact[:1])


def test_a_graph_that_cannot_be_written_or_read(models, tmp_path, monkeypatch):
    dense = pipeline("search", models["sentence_embedding"])
    with pytest.raises(InputError, match="approximate: expected a model of sentence embeddings, found another one"):
        pipeline("search", models["multi_vector"]).write_index(CORPUS, tmp_path / "index", approximate=True)
    with pytest.raises(
        InputError, match="approximate: expected a model of similarity cosine, dot, euclidean, found ma"
    ):
        DenseIndex.write(None, [], "manhattan", approximate=True)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "usearch.index", None)
        with pytest.raises(InputError, match=r"expected the package usearch: pip install .*\[usearch\]'; found"):
            dense.write_index(CORPUS, tmp_path / "index", approximate=True)
    assert not (tmp_path / "index").exists()
    pytest.importorskip("usearch", reason="of the [usearch] extra")
    dense.write_index(CORPUS, tmp_path / "index", approximate=True)
    graph = tmp_path / "index" / "graph.bin"
    graph.write_bytes(graph.read_bytes()[:-1] + b"!")
    with pytest.raises(InputError, match=r"expected a graph with the checksum of index.json, found other values; the"):
        dense.open_index(tmp_path / "index")


def test_the_verb(models, tmp_path, capsys):
    (tmp_path / "corpus.txt").write_text("\n".join(text or "x" for text in CORPUS))
    for head in HEADS:
        out = str(tmp_path / head)
        assert main(["index", models[head], "--corpus", str(tmp_path / "corpus.txt"), "--out", out]) == 0
        assert f"index of {len(CORPUS)} texts" in capsys.readouterr().out
        assert main(["search", models[head], "the cat", "--index", out, "--json"]) == 0
        answers = json.loads(capsys.readouterr().out)["answers"]
        assert main(["search", models[head], "the cat", "--corpus", str(tmp_path / "corpus.txt"), "--json"]) == 0
        expected = json.loads(capsys.readouterr().out)["answers"]
        assert [a["score"] for a in answers] == pytest.approx([a["score"] for a in expected], rel=1e-4)
    for more, message in (
        ([], "expected a corpus, as --corpus FILE or as --index DIR"),
        (["--index", out, "--corpus-prompt", "x"], "--corpus-prompt: expected none with --index"),
        (["--index", str(tmp_path)], "expected a local directory with an index (index.json), found none"),
        (["--index", str(tmp_path / "sparse_embedding")], "expected an index of kind multi_vector, found sparse_emb"),
    ):
        assert main(["search", models["multi_vector"], "the cat", *more]) == 2
        assert message in capsys.readouterr().err


def test_options_and_files_that_do_not_fit(models, tmp_path, write_small):
    sparse = pipeline("search", models["sparse_embedding"])
    with pytest.raises(
        InputError, match="precision: expected a model of sentence embeddings or late interaction, found another one"
    ):
        sparse.write_index(CORPUS, tmp_path / "index", precision="int8")
    with pytest.raises(InputError, match="at least one text, found none"):
        sparse.write_index([], tmp_path / "index")
    assert not (tmp_path / "index").exists()
    with pytest.raises(InputError, match="expected a local directory, as an index is mapped into memory"):
        sparse.write_index(CORPUS, "gs://bucket/index")
    sparse.write_index(CORPUS, tmp_path / "index")
    weights = tmp_path / "index" / "token_weights.bin"
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(InputError, match=r"token_weights.bin: expected [\d,]+ bytes, found "):
        sparse.open_index(tmp_path / "index")
    (tmp_path / "index" / "index.json").write_text('{"version": 3}')
    with pytest.raises(InputError, match="expected an index of version 1 or 2, found 3"):
        sparse.open_index(tmp_path / "index")


@pytest.mark.parametrize(
    ("head", "name", "change", "message"),
    [
        ("sentence_embedding", "index.json", {"texts": -1}, "texts: expected a number, found -1"),
        ("sentence_embedding", "index.json", {"size": "x"}, "size: expected null or a positive number, found 'x'"),
        ("sentence_embedding", "index.json", {"arrays": {"vectors": {"dtype": "|O", "shape": [5, 4]}}},
         r"expected vectors of dtype <f4 and shape \[\d+, \d+\], found"),
        ("sentence_embedding", "vectors.bin", b"x", "vectors.bin: expected [0-9,]+ bytes, found"),
        ("sentence_embedding", "text_lengths.bin", np.int64(-5), "expected text_lengths with a sum of"),
        ("sentence_embedding", "texts.bin", np.uint8(255), "expected texts in UTF-8, found other values"),
        ("sparse_embedding", "token_texts.bin", np.int32(-1), "expected token_texts below"),
        ("sparse_embedding", "token_starts.bin", np.int64(7), "expected token_starts with a sum of"),
        ("multi_vector", "index.json", {"precision": "int4"}, "expected a precision of float32, float16, int8"),
        ("multi_vector", "codes.bin", np.int32(1 << 20), "expected codes below"),
        ("multi_vector", "lengths.bin", np.int64(1 << 40), "expected lengths with a sum of"),
    ],
)  # fmt: skip
def test_a_damaged_index_is_refused(models, tmp_path, head, name, change, message):
    search = pipeline("search", models[head])
    search.write_index(CORPUS, tmp_path / "index")
    file = tmp_path / "index" / name
    if isinstance(change, dict):
        file.write_text(json.dumps(json.loads(file.read_text()) | change))
    elif isinstance(change, bytes):
        file.write_bytes(file.read_bytes() + change)
    else:
        file.write_bytes(np.full(file.stat().st_size // change.itemsize, change).tobytes())
    with pytest.raises(InputError, match=message):
        search.open_index(tmp_path / "index")
        search("the cat", top_k=3)
