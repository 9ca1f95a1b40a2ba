"""Sparse embeddings: SPLADE models of sentence-transformers against the library itself, and what it refuses."""

import json

import numpy as np
import pytest

from bert_jax.conversion.huggingface import convert, load_pretrained
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline
from bert_jax.tokenization import load_tokenizer

TEXTS = ["the cat sat on a mat", "Red RIVER", "a river of stone " * 9, "x", ""]
PROMPTS = {"query": "the dog: ", "passage": "one two "}
POOLINGS = [("max", "relu"), ("sum", "relu"), ("max", "log1p_relu"), ("sum", "log1p_relu")]


@pytest.fixture(scope="module")
def masked_lm(tmp_path_factory, write_small):
    return write_small(tmp_path_factory.mktemp("masked_lm") / "model", "masked_lm", initializer_range=0.5)


def saved(masked_lm, path, strategy="max", activation="relu", newer=False, **options):
    """A SparseEncoder as sentence-transformers writes it, and the library's own model of it."""
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    library = pytest.importorskip("sentence_transformers", reason="the oracle; installed on Python 3.11 only")
    modules = pytest.importorskip("sentence_transformers.sparse_encoder.modules")
    torch.manual_seed(0)
    base = pytest.importorskip("sentence_transformers.base.modules") if newer else None
    encoder = base.Transformer(str(masked_lm), transformer_task="fill-mask") if base else None
    parts = [encoder or modules.MLMTransformer(str(masked_lm)), modules.SpladePooling(strategy, activation)]
    library.SparseEncoder(modules=parts, device="cpu", **options).save(str(path))
    return path, library.SparseEncoder(str(path), device="cpu")


def relative(ours, theirs):
    theirs = theirs.to_dense().numpy() if theirs.is_sparse else theirs.numpy()
    assert ours.shape == theirs.shape
    return np.abs(ours.toarray() - theirs).max() / theirs.max()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("strategy", "activation"), POOLINGS)
def test_vectors_are_those_of_sentence_transformers(masked_lm, tmp_path, strategy, activation):
    path, theirs = saved(masked_lm, tmp_path / "model", strategy, activation, newer=activation == "relu")
    expected = theirs.encode(TEXTS)
    model = from_pretrained(path)
    assert model.head == "sparse_embedding" and model.missing == ()
    found = model.encode(TEXTS)
    assert relative(found, expected) < 1e-5 and found.dtype == np.float32 and found.nnz < found.toarray().size
    for i, text in enumerate(TEXTS):  # without padding
        assert relative(model.encode(text), expected.to_dense()[i : i + 1]) < 1e-5
    np.testing.assert_allclose(
        model.similarity(found, found), theirs.similarity(expected, expected), rtol=1e-5, atol=1e-4
    )


@pytest.mark.parametrize(("strategy", "activation"), POOLINGS)
def test_sentence_transformers_reads_the_model_as_written(masked_lm, tmp_path, strategy, activation):
    path, theirs = saved(
        masked_lm, tmp_path / "model", strategy, activation,
        prompts=PROMPTS, max_active_dims=7, similarity_fn_name="cosine",
    )  # fmt: skip
    convert(path, tmp_path / "converted", load_tokenizer)
    from_pretrained(path).save_pretrained(tmp_path / "again")
    before, expected = load_pretrained(path), theirs.encode(TEXTS)
    for written in ("converted", "again"):
        after = load_pretrained(tmp_path / written)
        assert after.config == before.config and after.settings == before.settings and not after.unused
        again = type(theirs)(str(tmp_path / written), device="cpu")
        assert (again.encode(TEXTS).to_dense() == expected.to_dense()).all()
        assert again.max_active_dims == 7 and again.similarity_fn_name == "cosine" and again.prompts == theirs.prompts


def test_prompts_of_queries_and_documents(masked_lm, tmp_path):
    path, theirs = saved(masked_lm, tmp_path / "model", prompts=PROMPTS, default_prompt_name="passage")
    model = from_pretrained(path)
    assert relative(model.encode_query(TEXTS), theirs.encode_query(TEXTS)) < 1e-5
    assert relative(model.encode_document(TEXTS), theirs.encode_document(TEXTS)) < 1e-5
    for options in ({}, {"prompt_name": "query"}, {"prompt": "a tree "}, {"prompt": ""}):
        assert relative(model.encode(TEXTS, **options), theirs.encode(TEXTS, **options)) < 1e-5
    assert np.abs(model.encode_query(TEXTS) - model.encode_document(TEXTS)).max() > 0.01
    with pytest.raises(InputError, match="task: expected query or document, found 'corpus'"):
        model.encode(TEXTS, task="corpus")


def test_the_greatest_weights(masked_lm, tmp_path):
    path, theirs = saved(masked_lm, tmp_path / "model", max_active_dims=9)
    model = from_pretrained(path)
    for options in ({}, {"max_active_dims": 3}, {"max_active_dims": 500}):
        found, expected = model.encode(TEXTS[:4], **options), theirs.encode(TEXTS[:4], **options)
        assert relative(found, expected) < 1e-5
    embed = pipeline("embed", path)
    vectors = embed(TEXTS[:2])
    for ours, tokens in zip(embed.decode(vectors, 4), theirs.decode(theirs.encode(TEXTS[:2]), 4), strict=True):
        assert [token for token, _ in ours] == [token for token, _ in tokens]
        np.testing.assert_allclose([w for _, w in ours], [w for _, w in tokens], rtol=1e-5)
    with pytest.raises(InputError, match="max_active_dims: expected a positive integer, found 0"):
        embed(TEXTS, max_active_dims=0)


def test_a_masked_lm_without_files_of_sentence_transformers(masked_lm, tmp_path):
    _, theirs = saved(masked_lm, tmp_path / "model")
    expected = theirs.encode(TEXTS)
    found = pipeline("sparse-embedding", masked_lm)
    assert relative(found(TEXTS), expected) < 1e-5
    assert relative(pipeline("sparse-embedding", from_pretrained(masked_lm))(TEXTS), expected) < 1e-5
    assert found.model.settings.similarity == "dot"
    back = pipeline("fill-mask", from_pretrained(tmp_path / "model"))
    assert back("the [MASK] sat") == pipeline("fill-mask", masked_lm)("the [MASK] sat")


def test_one_text_is_independent_of_the_others(masked_lm):
    model = from_pretrained(masked_lm, head="sparse_embedding")
    together = model.encode(TEXTS, batch_invariant=True)
    for i, text in enumerate(TEXTS):
        np.testing.assert_array_equal(model.encode(text, batch_invariant=True).toarray(), together[i : i + 1].toarray())
    assert model.encode([]).shape == (0, model.config.vocab_size)


def test_similarities_of_texts(masked_lm, tmp_path):
    for name in ("dot", "cosine", "euclidean", "manhattan"):
        path, theirs = saved(masked_lm, tmp_path / name, similarity_fn_name=name)
        vectors = theirs.encode(TEXTS)
        expected = theirs.similarity(vectors, vectors).numpy()
        np.testing.assert_allclose(pipeline("similarity", path)(TEXTS, TEXTS), expected, rtol=1e-4, atol=2e-2)
        assert pipeline("similarity", path)(TEXTS[0], TEXTS[1]) == pytest.approx(expected[0, 1], rel=1e-4)


ROUTER = {"type": "sentence_transformers.base.modules.router.Router", "path": ""}
POOLING = {"type": "sentence_transformers.sparse_encoder.models.SpladePooling", "path": "1_SpladePooling"}


@pytest.mark.parametrize(
    ("modules", "pooling", "message"),
    [
        ([ROUTER], {}, "expected an object with the modules of the routes, found None"),
        ([POOLING], {}, "expected an MLMTransformer and a SpladePooling, found SpladePooling"),
        (None, {"pooling_strategy": "mean"}, "pooling_strategy: expected max or sum, found 'mean'"),
        (None, {"activation_function": "gelu"}, "activation_function: expected relu or log1p_relu, found 'gelu'"),
    ],
)
def test_modules_that_are_not_supported(masked_lm, tmp_path, modules, pooling, message):
    path = tmp_path / "model"
    from_pretrained(masked_lm, head="sparse_embedding").save_pretrained(path)
    if modules is not None:
        (path / "modules.json").write_text(json.dumps(modules))
    (path / "1_SpladePooling" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(InputError, match=message):
        pipeline("embed", path)


@pytest.mark.parametrize("chunk", [2, 100])
@pytest.mark.parametrize("options", [{}, {"max_active_dims": 6}])
def test_search_is_brute_force(masked_lm, tmp_path, monkeypatch, chunk, options):
    monkeypatch.setattr("bert_jax.inference.corpus_chunks.CORPUS_CHUNK", chunk)
    path, theirs = saved(masked_lm, tmp_path / "model", prompts=PROMPTS)
    corpus, queries = [*TEXTS[:3], "a cat", "two birds", "the house"], ["the cat", "red river"]
    vectors = theirs.encode_query(queries, **options), theirs.encode_document(corpus, **options)
    expected = theirs.similarity(*vectors).numpy()
    search = pipeline("search", path)
    scores, numbers = search.nearest(queries, iter(corpus), 4, **options)
    assert numbers.tolist() == np.argsort(-expected, axis=1, kind="stable")[:, :4].tolist()
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :4], rtol=1e-5)
    assert search.index(corpus, **options) == 6
    np.testing.assert_allclose(search.nearest(queries, None, 4, **options)[0], scores, rtol=1e-6)
    with pytest.raises(InputError, match="truncate_dim: expected a model of sentence embeddings"):
        search(queries, corpus, truncate_dim=3)
    with pytest.raises(InputError, match="max_active_dims: expected a model of sparse embeddings"):
        pipeline("search", masked_lm)(queries, corpus, max_active_dims=3)
