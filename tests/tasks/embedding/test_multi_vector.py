"""Embeddings with a vector for each token: ColBERT models in three layouts against sentence-transformers itself."""

import itertools
import json
import string

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_jax.conversion.huggingface import convert, load_pretrained
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline
from bert_jax.inference.similarity import max_similarities
from bert_jax.tokenization import load_tokenizer

TEXTS = ["the cat, sat on a mat.", "Red RIVER", "a river of stone " * 9, "x", "", "?!"]
FIXED = {"strategy": "fixed", "length": 12}
PUNCTUATION = list(string.punctuation)


@pytest.fixture(scope="module")
def encoders(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("encoders")
    write_small(root / "bert", initializer_range=0.5)
    write_small(root / "roberta", initializer_range=0.5, family="roberta", position_offset=2, pad_token_id=1,
                type_vocab_size=1, classifier_summary="tanh", choice_summary="pooler", drop_before_summary=True,
                head_act="gelu", pooler=False)  # fmt: skip
    return root


def library():
    pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    found = pytest.importorskip("sentence_transformers", reason="the oracle; installed on Python 3.11 only")
    if not hasattr(found, "MultiVectorEncoder"):
        pytest.skip("needs sentence-transformers 6")
    return found


def saved(encoder, path, *, expansion=None, words=PUNCTUATION, tasks=None, layers=1, prompts=None, similarity=None,
          **lengths):  # fmt: skip
    """A MultiVectorEncoder as sentence-transformers writes it, and the library's own model of it."""
    found = library()
    import torch
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    torch.manual_seed(0)
    tokens = {"module_input_name": "token_embeddings"}
    modules = [Transformer(str(encoder), query_expansion=expansion, **lengths)]
    widths = [32, 8, 16][: layers + 1]
    for a, b in itertools.pairwise(widths):
        modules.append(Dense(a, b, bias=layers > 1, activation_function=torch.nn.Identity(), **tokens))
    modules += [MultiVectorMask(words, skiplist_tasks=tasks), *([Normalize(**tokens)] if layers < 2 else [])]
    model = found.MultiVectorEncoder(modules=modules, device="cpu", prompts=prompts, similarity_fn_name=similarity)
    model.save(str(path))
    return path, found.MultiVectorEncoder(str(path), device="cpu")


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        b = b.numpy()
        assert a.shape == b.shape and a.dtype == np.float32
        assert not a.size or np.abs(a - b).max() < 1e-5 * max(np.abs(b).max(), 1)


def check(model, theirs, texts=TEXTS):
    for kind in ("encode", "encode_query", "encode_document"):
        assert_same(getattr(model, kind)(texts), getattr(theirs, kind)(texts))
    for text in texts[:3]:  # without padding
        assert_same([model.encode_query(text)], [theirs.encode_query(text)])
    expected = theirs.similarity(theirs.encode_query(texts), theirs.encode_document(texts)).numpy()
    found = model.similarity(model.encode_query(texts), model.encode_document(texts))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


CASES = {
    "bare": {"words": []},
    "classic": {"expansion": FIXED, "document_length": 20},
    "attended": {"expansion": FIXED | {"attend": True}, "prompts": {"query": "the dog: ", "document": "one two "}},
    "at least": {"expansion": FIXED | {"strategy": "min", "token": "[SEP]"}, "query_length": 20},
    "mean": {"similarity": "meanmaxsim", "query_length": 9, "tasks": ["query", "document"]},
    "two layers": {"layers": 2, "words": ["cat", "nothing of the kind"], "tasks": "query"},
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", CASES)
def test_vectors_are_those_of_sentence_transformers(encoders, tmp_path, name):
    path, theirs = saved(encoders / "bert", tmp_path / "model", **CASES[name])
    model = from_pretrained(path)
    assert model.head == "multi_vector" and model.missing == ()
    check(model, theirs)
    convert(path, tmp_path / "converted", load_tokenizer)
    model.save_pretrained(tmp_path / "again")
    for written in ("converted", "again"):
        after = load_pretrained(tmp_path / written)
        assert after.config == model.config and after.settings == model.settings
        again = type(theirs)(str(tmp_path / written), device="cpu")
        assert again.similarity_fn_name == theirs.similarity_fn_name and again.prompts == theirs.prompts
        for kind in ("encode", "encode_query", "encode_document"):
            for a, b in zip(getattr(again, kind)(TEXTS), getattr(theirs, kind)(TEXTS), strict=True):
                assert (a == b).all()


def test_positions_of_tokens_that_are_not_attended(encoders, tmp_path):
    """RoBERTa counts all tokens but padding, also those that fill up a query."""
    path, theirs = saved(encoders / "roberta", tmp_path / "model", expansion=FIXED)
    check(from_pretrained(path), theirs, [text[:40] for text in TEXTS])


def pylate(path, encoder, **content):
    """The layout of PyLate 1: only a Transformer and a Dense, and its own keys."""
    saved(encoder, path, words=[])
    modules = json.loads((path / "modules.json").read_text())[:2]
    modules[1]["type"] = "pylate.models.Dense.Dense"
    (path / "modules.json").write_text(json.dumps(modules))
    dense = json.loads((path / "1_Dense" / "config.json").read_text())
    kept = {key: value for key, value in dense.items() if not key.startswith("module_")}
    (path / "1_Dense" / "config.json").write_text(json.dumps(kept))
    described = {"model_type": "ColBERT", "similarity_fn_name": "MaxSim", "prompts": {}} | content
    (path / "config_sentence_transformers.json").write_text(json.dumps(described))
    return library().MultiVectorEncoder(str(path), device="cpu")


@pytest.mark.parametrize(
    "content",
    [
        {"query_prefix": "one ", "document_prefix": "two ", "query_length": 10, "document_length": 20},
        {"query_prefix": "[MASK] ", "document_prefix": "[Q] ", "attend_to_expansion_tokens": True,
         "skiplist_words": ["cat", "river"]},
        {"do_query_expansion": False, "query_length": 8, "prompts": {"query": "a dog "}},
    ],
)  # fmt: skip
def test_models_of_pylate(encoders, tmp_path, content):
    theirs = pylate(tmp_path / "model", encoders / "bert", **content)
    model = from_pretrained(tmp_path / "model")
    check(model, theirs)
    model.save_pretrained(tmp_path / "again")
    check(from_pretrained(tmp_path / "again"), theirs)
    check(model, type(theirs)(str(tmp_path / "again"), device="cpu"))


@pytest.mark.parametrize("metadata", [None, {"query_maxlen": 10, "doc_maxlen": 20, "mask_punctuation": False,
                                             "attend_to_mask_tokens": True, "query_token_id": "red"}])  # fmt: skip
def test_models_of_colberts_authors(encoders, tmp_path, metadata):
    path = tmp_path / "model"
    from_pretrained(encoders / "bert").save_pretrained(path)
    described = json.loads((path / "config.json").read_text()) | {"architectures": ["HF_ColBERT"]}
    (path / "config.json").write_text(json.dumps(described))
    tensors = {f"bert.{name}": tensor for name, tensor in load_file(path / "model.safetensors").items()}
    tensors["linear.weight"] = np.random.default_rng(0).normal(size=(8, 32)).astype(np.float32)
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    if metadata is not None:
        (path / "artifact.metadata").write_text(json.dumps(metadata | {"nbits": 2, "lr": 1e-5}))
    theirs = library().MultiVectorEncoder(str(path), device="cpu")
    model = from_pretrained(path)
    assert model.head == "multi_vector" and model.missing == ()
    check(model, theirs)
    model.save_pretrained(tmp_path / "again")
    check(from_pretrained(tmp_path / "again"), theirs)


def draw(rng, *lengths):
    return [rng.normal(size=(length, 6)).astype(np.float32) for length in lengths]


@pytest.mark.parametrize("at_once", [1, 7, 1000])
@pytest.mark.parametrize("name", ["maxsim", "meanmaxsim"])
def test_the_score_is_its_definition(monkeypatch, name, at_once):
    monkeypatch.setattr("bert_jax.inference.similarity._TOKENS_COMPARED", at_once)
    rng = np.random.default_rng(0)
    queries, documents = draw(rng, 3, 1, 5), draw(rng, 4, 0, 9, 1, 0)
    found = max_similarities(name, queries, documents)
    for i, query in enumerate(queries):
        for j, document in enumerate(documents):
            best = sum(max(a @ b for b in document) for a in query) if len(document) else -1e9
            assert found[i, j] == pytest.approx(best / (len(query) if name == "meanmaxsim" else 1), rel=1e-5)


@pytest.mark.parametrize("chunk", [2, 100])
def test_search_is_brute_force(encoders, tmp_path, monkeypatch, chunk):
    monkeypatch.setattr("bert_jax.inference.corpus_chunks.CORPUS_CHUNK", chunk)
    path, theirs = saved(encoders / "bert", tmp_path / "model", expansion=FIXED, prompts={"query": "the "})
    queries = ["the cat", "red river", "house"]
    expected = theirs.similarity(theirs.encode_query(queries), theirs.encode_document(TEXTS)).numpy()
    search = pipeline("search", path)
    scores, numbers = search.nearest(queries, iter(TEXTS), 3)
    assert numbers.tolist() == np.argsort(-expected, axis=1, kind="stable")[:, :3].tolist()
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :3], rtol=1e-5)
    np.testing.assert_allclose(pipeline("similarity", path)(queries, TEXTS), expected, rtol=1e-5)
    assert search.index(TEXTS) == len(TEXTS) and search(queries[0], top_k=1)[0]["corpus_id"] == numbers[0, 0]


MASK = {"type": "sentence_transformers.multi_vector_encoder.modules.MultiVectorMask", "path": "2_MultiVectorMask"}
POOLING = {"type": "sentence_transformers.multi_vector_encoder.modules.TokenPooling", "path": ""}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("modules.json", [MASK], "expected a Transformer, Dense and Normalize modules, one MultiVectorMask and"),
        ("modules.json", [MASK, POOLING], "found 'sentence_transformers.multi_vector_encoder.modules.TokenPooling'"),
        ("sentence_bert_config.json", {"query_expansion": {"strategy": "most", "length": 3}}, "strategy fixed or min"),
        ("sentence_bert_config.json", {"query_expansion": {"strategy": "min"}}, "query_expansion: expected a length"),
        ("1_MultiVectorMask/config.json", {"keep_only_token_ids": [3]}, "keep_only_token_ids: expected .*, found"),
        ("1_MultiVectorMask/config.json", {"skiplist_words": "x"}, "skiplist_words: expected a list of strings"),
        ("2_Normalize/config.json", {"module_input_name": "sentence_embedding"}, "expected 'token_embeddings', found"),
        ("config_sentence_transformers.json", {"model_type": "MultiVectorEncoder", "similarity_fn_name": "xtr"},
         "similarity_fn_name: expected maxsim, meanmaxsim, found 'xtr'"),
    ],
)  # fmt: skip
def test_files_that_are_not_supported(tmp_path, write_small, name, content, message):
    path = write_small(tmp_path / "model", "multi_vector")
    (path / name).write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        pipeline("embed", path)


def test_texts_that_are_too_long(tmp_path, write_small):
    embed = pipeline("embed", write_small(tmp_path / "model", "multi_vector"))
    assert embed("a cat " * 90).shape[0] == 32
    with pytest.raises(InputError, match="text 1: expected at most 32 tokens, found 182"):
        embed(["a", "a cat " * 90], truncation=False)
