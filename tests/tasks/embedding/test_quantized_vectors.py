"""Vectors in bytes and bits: those of sentence-transformers, in files and in indexes, with candidates scored again."""

import json

import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.tasks.embedding.dense.index import DenseIndex
from bert_jax.tasks.embedding.dense.quantization import (
    VECTOR_PRECISIONS,
    dequantize_vectors,
    quantization_ranges,
    quantize_vectors,
)
from bert_jax.tasks.embedding.index_files import IndexFiles, new_index
from bert_jax.tasks.embedding.segmented_index import SegmentedIndex

TEXTS = ["the cat", "a dog sleeps", "red fish", "one old house by the river", "a bird", "the young cat", "river"]


def unit(rng, count, width):
    vectors = rng.normal(size=(20, width))[rng.integers(0, 20, count)] + rng.normal(size=(count, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype("f4")


def written(path, vectors, similarity="cosine", **options):
    expected = {"kind": "sentence_embedding", "width": vectors.shape[1], "similarity": similarity}
    with new_index(path) as files:
        files.append_texts([str(i) for i in range(len(vectors))])
        about = DenseIndex.write(files, [vectors[:50], vectors[50:]], similarity, **options)
        files.close("sentence_embedding", about | expected)
    return SegmentedIndex(path, DenseIndex, expected)


@pytest.mark.slow  # as sentence-transformers takes long to import
@pytest.mark.oracle
@pytest.mark.parametrize("width", [40, 13])
def test_values_are_those_of_sentence_transformers(width):
    theirs = pytest.importorskip("sentence_transformers").util.quantization
    rng = np.random.default_rng(0)
    vectors, others = rng.normal(size=(300, width)).astype("f4"), rng.normal(size=(200, width)).astype("f4") * 0.7
    vectors[:, 3], vectors[:, 5] = 0.5, 0  # a dimension of one value has no range
    others[:, 3] = 0.5
    for precision in VECTOR_PRECISIONS:
        for calibration in (None, others):
            ranges = None if calibration is None else quantization_ranges(others)
            own = quantize_vectors(vectors, precision, ranges)
            expected = theirs.quantize_embeddings(vectors, precision, calibration_embeddings=calibration)
            assert own.dtype == expected.dtype
            np.testing.assert_array_equal(own, expected)
            empty = quantize_vectors(vectors[:0], precision)
            assert empty.shape == theirs.quantize_embeddings(vectors[:0], precision).shape
        if precision.endswith("int8"):
            expected = theirs._dequantize_embeddings(own, precision, ranges)
            np.testing.assert_allclose(dequantize_vectors(own, ranges), expected, atol=1e-6)


@pytest.mark.slow  # as sentence-transformers takes long to import
@pytest.mark.oracle
@pytest.mark.parametrize("width", [64, 40])
@pytest.mark.parametrize("precision", ["binary", "int8"])
def test_an_index_scores_as_sentence_transformers(tmp_path, precision, width):
    theirs = pytest.importorskip("sentence_transformers").util.quantization
    pytest.importorskip("usearch", reason="of the [usearch] extra")
    rng = np.random.default_rng(1)
    vectors, queries = unit(rng, 400, width), unit(rng, 20, width)
    ranges = quantization_ranges(vectors)
    index = written(tmp_path / "index", vectors, precision=precision)
    quantized, options = (
        theirs.quantize_embeddings(vectors, precision, ranges=ranges),
        {"exact": True, "ranges": ranges},
    )
    every, *_ = theirs.semantic_search_usearch(
        queries, quantized, corpus_precision=precision, top_k=400, rescore_multiplier=1, **options
    )
    score_of = np.array([[row["score"] for row in sorted(rows, key=lambda row: row["corpus_id"])] for rows in every])
    multiplier = 40 if precision == "binary" else None
    scores, numbers = index.nearest(queries, 10, multiplier)
    np.testing.assert_allclose(scores, [[row["score"] for row in rows[:10]] for rows in every], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scores, np.take_along_axis(score_of, numbers, 1), rtol=1e-5, atol=1e-6)
    if precision == "binary":
        hamming, *_ = theirs.semantic_search_usearch(
            queries, quantized, corpus_precision=precision, top_k=10, rescore=False, **options
        )
        scores, _ = index.nearest(queries, 10, 0)
        np.testing.assert_array_equal(scores, [[-row["score"] for row in rows] for rows in hamming])


@pytest.mark.parametrize("rescore", [None, "int8", "float16", "float32"])
def test_candidates_are_scored_again(tmp_path, rescore):
    rng = np.random.default_rng(2)
    vectors, queries = unit(rng, 300, 72), unit(rng, 10, 72)
    index = written(tmp_path / "index", vectors, precision="binary", rescore_precision=rescore)
    bits = vectors > 0
    ranges = quantization_ranges(vectors)
    stored = {None: bits.astype("f4"), "float32": vectors, "float16": vectors.astype("f2").astype("f4"),
              "int8": dequantize_vectors(quantize_vectors(vectors, "int8", ranges), ranges)}[rescore]  # fmt: skip
    for multiplier in (None, 1, 3):
        scores, numbers = index.nearest(queries, 5, multiplier)
        for row, query in enumerate(queries):
            distances = ((query > 0) != bits).sum(axis=1)
            candidates = np.sort(np.argsort(distances, kind="stable")[: 5 * (multiplier or 2)])
            again = stored[candidates] @ query
            order = np.argsort(-again, kind="stable")[:5]
            np.testing.assert_allclose(scores[row], again[order], rtol=1e-5, atol=1e-6)
            assert numbers[row].tolist() == candidates[order].tolist()
    if rescore == "float32":  # all are candidates: exact search
        exact = written(tmp_path / "exact", vectors).nearest(queries, 5)
        np.testing.assert_allclose(index.nearest(queries, 5, 60)[0], exact[0], rtol=1e-5)
        assert index.nearest(queries, 5, 60)[1].tolist() == exact[1].tolist()


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
def test_bytes_have_every_similarity(tmp_path, similarity):
    from bert_jax.inference.similarity import compare

    rng = np.random.default_rng(3)
    vectors, queries = unit(rng, 200, 24), unit(rng, 5, 24)
    index = written(tmp_path / "index", vectors, similarity, precision="int8")
    ranges = quantization_ranges(vectors)
    stored = dequantize_vectors(quantize_vectors(vectors, "int8", ranges), ranges)
    expected = -np.sort(-compare(similarity, queries, stored), axis=1)[:, :7]
    np.testing.assert_allclose(index.nearest(queries, 7)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", ["int8", "binary"])
def test_a_graph_of_bytes_or_bits(tmp_path, precision):
    pytest.importorskip("usearch", reason="of the [usearch] extra")
    rng = np.random.default_rng(4)
    vectors, queries = unit(rng, 2000, 64), unit(rng, 40, 64)
    graph = written(tmp_path / "graph", vectors, precision=precision, approximate=True)
    exact = written(tmp_path / "exact", vectors, precision=precision)
    (_, best), (scores, numbers) = exact.nearest(queries, 10), graph.nearest(queries, 10)
    assert np.mean([len({*a} & {*b}) for a, b in zip(best, numbers, strict=True)]) > 9
    assert (np.diff(scores, axis=1) <= 0).all()


def test_options_that_do_not_fit(tmp_path):
    vectors = np.ones((5, 16), "f4")
    for options, message in (
        ({"precision": "binary", "similarity": "euclidean"}, "expected a model of similarity cosine or dot for binary"),
        ({"precision": "int4"}, "precision: expected float32, float16, int8, binary for sentence embeddings, found 'i"),
        ({"precision": "int8", "rescore_precision": "int8"}, "expected a higher precision than int8, found int8"),
        ({"rescore_precision": "int8"}, "rescore_precision: expected a higher precision than float32, found int8"),
        ({"precision": "int8", "calibration": np.ones((9, 8), "f4")}, r"of floats \[N, 16\], found float32 \[9, 8\]"),
        ({"precision": "binary", "calibration": vectors}, "calibration: expected the precision int8, found another"),
    ):
        with pytest.raises(InputError, match=message):
            written(tmp_path / "index", vectors, **options)
    with pytest.raises(InputError, match="expected at least two texts or calibration vectors for int8, found one text"):
        written(tmp_path / "index", vectors[:1], precision="int8")
    with pytest.raises(InputError, match="rescore_multiplier: expected an index of precision binary or with a rescore"):
        written(tmp_path / "index", vectors).nearest(vectors, 2, 3)


@pytest.fixture(scope="module")
def model(tmp_path_factory, write_small):
    return str(write_small(tmp_path_factory.mktemp("model") / "model", "sentence_embedding", initializer_range=0.5))


def test_the_verbs(model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    embed = pipeline("sentence-embedding", model)
    vectors = embed(TEXTS, truncate_dim=20)
    run = ["embed", model, "--file", "texts.txt", "--truncate-dim", "20"]
    assert main([*run, "--out", "floats.npy"]) == 0
    for precision in VECTOR_PRECISIONS:
        assert main([*run, "--out", "own.npy", "--precision", precision]) == 0
        np.testing.assert_array_equal(np.load("own.npy"), quantize_vectors(vectors, precision))
    np.save("others.npy", vectors[:3] * 0.8)
    assert main([*run, "--json", "--precision", "int8", "--calibration", "others.npy"]) == 0
    rows = [json.loads(line)["embedding"] for line in capsys.readouterr().out.splitlines()[-len(TEXTS) :]]
    np.testing.assert_array_equal(rows, quantize_vectors(vectors, "int8", quantization_ranges(vectors[:3] * 0.8)))
    index = ["index", model, "--corpus", "texts.txt", "--truncate-dim", "20"]
    assert main([*index, "--precision", "binary", "--rescore-precision", "int8", "--out", "bits"]) == 0
    search = pipeline("search", model)
    search.open_index("bits")
    files = IndexFiles("bits")
    assert files.array("vectors", "<u8", (7, 1)).nbytes == 56 and files.array("rescore_vectors", "i1", (7, 20)).any()
    exact = search(TEXTS[0], TEXTS, 7, truncate_dim=20)
    found = search(TEXTS[0], top_k=7)
    assert [answer["score"] for answer in found] == pytest.approx([answer["score"] for answer in exact], abs=0.01)
    capsys.readouterr()
    assert main(["search", model, TEXTS[0], "--index", "bits", "--rescore-multiplier", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answers"][0]["score"] == 0
    for arguments, message in (
        ([*run, "--precision", "int8", "--json"], "--precision: expected --calibration or one --out FILE.npy for int8"),
        ([*run, "--precision", "binary"], "--precision: expected --out FILE.npy or --json for binary"),
        ([*run, "--calibration", "others.npy"], "--calibration: expected --precision int8 or uint8 with it, found flo"),
        ([*run, "--precision", "int8", "--out", "o.npy", "--calibration", "texts.txt"], "texts.txt: expected a .npy"),
        (
            ["search", model, "x", "--corpus", "texts.txt", "--rescore-multiplier", "3"],
            "rescore_multiplier: expected an",
        ),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err
