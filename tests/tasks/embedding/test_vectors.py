"""The verbs that print, write and compare vectors, with models of sparse embeddings."""

import json

import numpy as np
import pytest
from scipy import sparse

from bert_jax.cli import main
from bert_jax.inference import from_pretrained

TEXTS = ["a cat", "the red river runs", "a dog"]


@pytest.fixture(scope="module")
def splade(tmp_path_factory, write_small):
    return str(write_small(tmp_path_factory.mktemp("vectors") / "splade", "sparse_embedding", initializer_range=0.5))


def test_sparse_vectors_in_a_file(splade, tmp_path, capsys):
    out = str(tmp_path / "weights.npz")
    assert main(["embed", splade, *TEXTS, "--max-active-dims", "7", "--out", out]) == 0
    assert "3 sparse vectors with 21 weights of" in capsys.readouterr().out
    found, expected = sparse.load_npz(out), from_pretrained(splade).encode(TEXTS, max_active_dims=7)
    assert isinstance(found, sparse.csr_array) and found.dtype == np.float32 and found.has_sorted_indices
    assert found.shape == expected.shape and abs(found - expected).max() < 1e-5


def test_sparse_vectors_as_json_and_tables(splade, capsys):
    assert main(["embed", splade, *TEXTS, "--json", "--max-active-dims", "3"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == TEXTS
    for line in lines:
        weights = list(line["embedding"].values())
        assert len(weights) == 3 and weights == sorted(weights, reverse=True)
    assert main(["embed", splade, "a cat"]) == 0
    table = capsys.readouterr().out
    assert "a cat  (" in table and "weight" in table


def test_search_and_similarity(splade, tmp_path, capsys):
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS))
    assert main(["search", splade, "a cat", "--corpus", str(tmp_path / "corpus.txt"), "--json", "--top-k", "2"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert len(json.loads(line)["answers"]) == 2
    assert main(["similarity", splade, "a cat", "a dog", "--json"]) == 0
    model = from_pretrained(splade)
    expected = model.similarity(model.encode("a cat"), model.encode("a dog"))[0, 0]
    assert json.loads(capsys.readouterr().out)["score"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("verb", ["embed", "similarity", "search"])
def test_options_for_vectors_of_another_kind(splade, tmp_path, write_small, capsys, verb):
    dense = str(write_small(tmp_path / "dense", "sentence_embedding"))
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS))
    more = {"similarity": ["a dog"], "search": ["--corpus", str(tmp_path / "corpus.txt")]}.get(verb, [])
    for model, option, message in (
        (splade, "--truncate-dim", "expected a model of sentence embeddings, found one of sparse embeddings"),
        (dense, "--max-active-dims", "expected a model of sparse embeddings, found one of sentence embeddings"),
    ):
        assert main([verb, model, "a cat", *more, option, "4"]) == 2
        assert message in capsys.readouterr().err


def test_vectors_of_tokens(tmp_path, write_small, capsys):
    model = str(write_small(tmp_path / "colbert", "multi_vector", initializer_range=0.5))
    out = str(tmp_path / "vectors.npz")
    assert main(["embed", model, *TEXTS, "--task", "document", "--out", out]) == 0
    expected = from_pretrained(model).encode_document(TEXTS)
    assert f"3 texts with {sum(map(len, expected))} vectors of 32 dimensions" in capsys.readouterr().out
    found = np.load(out)
    for i, vectors in enumerate(expected):
        np.testing.assert_allclose(found["vectors"][found["starts"][i] : found["starts"][i + 1]], vectors, atol=1e-5)
    assert main(["embed", model, "a cat", "--json"]) == 0
    assert np.shape(json.loads(capsys.readouterr().out)["embedding"]) == (4, 32)
    assert main(["embed", model, "a cat"]) == 0
    assert "a cat  (4 vectors)" in capsys.readouterr().out
